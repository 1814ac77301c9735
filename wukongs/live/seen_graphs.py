"""The graphs that there are for the holder of a grant: what is checked where a graph is named or written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from wukongs.csparql.terms import Term, iri
from wukongs.errors import AccessError
from wukongs.query.plans.dataset import is_seen
from wukongs.rules.inference import InstalledRule, Ruleset
from wukongs.rules.program import Rule
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, UNBOUND
from wukongs.store.encoded import Encoded


def check_seen(name: str, only: Collection[str] | None, verb: str) -> None:
    """Raise AccessError if a graph or stream is not among those that somebody may see, whether it is there or not."""
    if is_seen(name, only):
        return
    what = "the default graph" if name == DEFAULT_GRAPH_IRI else f"<{name}>"
    raise AccessError(
        f"this token or key may not {verb} {what}: it is not on its list, or rules conclude into it from graphs that "
        "are not. Ask for one that has them"
    )


def check_encoded(encoded: Encoded, only: Collection[str], into: str) -> None:
    """Raise AccessError if a tuple is to be put into a graph that may not be written. into: the graph of those that
    name none."""
    graphs = np.unique(encoded.graphs)
    if UNBOUND in graphs:
        check_seen(into, only, "write")
    seen = [*encoded.codes_of([iri(name).text for name in only]), UNBOUND]
    unseen = np.setdiff1d(graphs, seen)
    for table in (encoded.terms, encoded.clashes) if len(unseen) else ():
        for text in table.texts():
            if np.isin(encoded.codes_of([text]), unseen).any():
                check_seen(Term(text).name, only, "write")
    assert not len(unseen), "each graph of a tuple has a text"


@lru_cache(64)
def seen_graphs(listed: tuple[str, ...], rules: tuple[InstalledRule, ...]) -> tuple[str, ...]:
    """Return those of the graphs on a list into which no rule concludes from a graph that is not on it: what rules have
    inferred in the others would tell of that. Rules that are paused count."""
    sources = _sources_of(Ruleset.of(replace(rule, error=None) for rule in rules).program.rules)
    return tuple(name for name in listed if sources.get(name, set()).issubset(listed))


def graphs_of(rule: Rule) -> set[str]:
    """Return the IRIs of the graphs that a rule reads or concludes into."""
    return {DEFAULT_GRAPH_IRI if graph is None else graph.name for graph in rule.graphs()}


def _sources_of(rules: Iterable[Rule]) -> dict[str, set[str]]:
    """Return the graphs from which rules conclude into each graph, directly or by other rules, by its IRI."""
    sources: dict[str, set[str]] = {}
    for rule in rules:
        into = DEFAULT_GRAPH_IRI if rule.into is None else rule.into.name
        sources.setdefault(into, set()).update(graphs_of(rule))
    is_more = True
    while is_more:
        is_more = False
        for found in sources.values():
            more = found.union(*(sources.get(one, set()) for one in found))
            is_more |= len(more) > len(found)
            found |= more
    return sources

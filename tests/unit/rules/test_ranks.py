"""Ranks, compiled and as plain functions, against a dictionary; and what they spare."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests.fuzz import fuzzed
from tests.oracles.rank_kernels import PlainRanks, Triple
from wukongs.rules import propagation, rank_kernels, ranks
from wukongs.rules.ranks import Ranks
from wukongs.store.quads import Quads

IDS = st.sampled_from([2, 3, 1 << 40, (1 << 62) + 4, (1 << 62) + 6])
TRIPLES = st.lists(st.tuples(st.sampled_from([2, (1 << 61)]), IDS, IDS, IDS), max_size=30)
STEPS = st.lists(st.tuples(TRIPLES, TRIPLES, TRIPLES), max_size=8)
EX = "http://ex/"
PREFIX = f"PREFIX : <{EX}> "
REACHES = f"""{PREFIX}
    RULE first: CONSTRUCT {{ :start :reaches ?x }} WHERE {{ :start :to ?x }}
    RULE next: CONSTRUCT {{ :start :reaches ?y }} WHERE {{ :start :reaches ?x . ?x :to ?y }}"""


def rank_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any change make ranks, however little it takes away."""
    monkeypatch.setattr(propagation, "RANKLESS_MIN", 0)
    monkeypatch.setattr(propagation, "RANKLESS_FACTOR", 0)


def quads_of(triples: list[Triple]) -> Quads:
    graphs, subjects, predicates, objects = np.array(triples, np.int64).reshape(-1, 4).T.copy()
    return graphs, subjects, predicates, objects


def compare(steps: list[tuple[list[Triple], list[Triple], list[Triple]]]) -> None:
    found, expected = Ranks(), PlainRanks()
    for put, gone, asked in steps:
        found.put(quads_of(put))
        expected.put(put)
        found.forget(quads_of(gone))
        expected.forget(gone)
        assert found.of(quads_of(asked)).tolist() == expected.raised([0] * len(asked), asked)
        raised = np.arange(len(asked), dtype=np.int64)
        found.raise_to(raised, quads_of(asked))
        assert raised.tolist() == expected.raised(list(range(len(asked))), asked)


@pytest.mark.nojit
@fuzzed(30)
@given(STEPS)
def test_ranks_are_those_of_a_dictionary(steps: list[tuple[list[Triple], list[Triple], list[Triple]]]) -> None:
    compare(steps)


@pytest.mark.slow
@pytest.mark.nojit
@fuzzed(30)
@given(STEPS)
def test_a_table_grows(steps: list[tuple[list[Triple], list[Triple], list[Triple]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_SLOTS_MIN", 4)
        compare(steps)


def test_plain_functions_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("put_ranks", "forget_ranks", "raise_to_ranks", "move_ranks"):
        monkeypatch.setattr(ranks, name, getattr(getattr(rank_kernels, name), "py_func", getattr(rank_kernels, name)))
    triples = [(2, at * 2 + 2, 4, at + 7) for at in range(2000)]
    compare([(triples[:900], [], triples), (triples[500:], triples[:3], triples), ([], triples[600:], triples)])


def test_what_stands_in_other_ways_is_not_deleted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node of a ladder is reached in two ways, so that an edge in it takes nothing away: without ranks all behind
    it goes and comes back."""
    looked_at = []
    overdelete = propagation.Propagation._overdelete

    def counted(self: propagation.Propagation, *args: object) -> Quads:
        lost = overdelete(self, *args)  # type: ignore[arg-type]
        looked_at.append(len(lost[0]))
        return lost

    monkeypatch.setattr(propagation.Propagation, "_overdelete", counted)
    rungs = 40
    sides = [(f"<{EX}{one}{at}>", f"<{EX}{other}{at + 1}>") for at in range(rungs) for one in "lr" for other in "lr"]
    starts = [(f"<{EX}start>", f"<{EX}{one}0>") for one in "lr"]
    edges = "".join(f"{one} <{EX}to> {other} .\n" for one, other in [*starts, *sides])
    counts = []
    for has_ranks in (False, True):
        if has_ranks:
            rank_soon(monkeypatch)
        with wukongs.Engine(rules=REACHES) as engine:
            engine.update(f"INSERT DATA {{ {edges} }}")
            looked_at.clear()
            for at in (5, 10, 20):
                engine.update(f"DELETE DATA {{ <{EX}l{at}> <{EX}to> <{EX}r{at + 1}> }}")
            counts.append(sum(looked_at))
            assert len(engine.query(f"SELECT ?x {{ <{EX}start> <{EX}reaches> ?x }}")) == 2 * (rungs + 1)
    assert counts[0] > 3 * rungs
    assert counts[1] == 0


def test_what_stands_by_a_new_edge_goes_with_the_node_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One change takes :late its edge and :early its own, and lets a new edge lead from :early to :late. By ranks
    :late stands on :early at first, which goes in the same round."""
    rank_soon(monkeypatch)
    with wukongs.Engine(rules=REACHES) as engine:
        engine.update(f"{PREFIX}INSERT DATA {{ :start :to :a . :a :to :early, :c . :c :to :d . :d :to :late }}")
        engine.update(f"{PREFIX}DELETE DATA {{ :d :to :late }}; INSERT DATA {{ :d :to :late }}")
        engine.update(f"{PREFIX}DELETE DATA {{ :a :to :early . :d :to :late }}; INSERT DATA {{ :early :to :late }}")
        found = engine.query(f"{PREFIX}SELECT ?x {{ :start :reaches ?x }}")
        assert {str(row[0]) for row in found} == {EX + "a", EX + "c", EX + "d"}


@pytest.mark.parametrize("still_follows", [False, True])
def test_what_becomes_explicit_while_ranks_are_made_stays(still_follows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change that needs ranks first also states a triple that was inferred."""
    rank_soon(monkeypatch)
    with wukongs.Engine(rules=REACHES) as engine:
        engine.update(f"{PREFIX}INSERT DATA {{ :start :to :a . :a :to :b . :b :to :c }}")
        other = "; INSERT DATA { :start :to :b }" if still_follows else ""
        engine.update(f"{PREFIX}INSERT DATA {{ :start :reaches :c }}; DELETE DATA {{ :a :to :b }} {other}")
        engine.update(f"{PREFIX}DELETE DATA {{ :start :to :b }}")
        found = engine.query(f"{PREFIX}SELECT ?x FROM <urn:x-wukongs:explicit> {{ :start :reaches ?x }}")
        assert found.texts() == [(f"<{EX}c>",)]

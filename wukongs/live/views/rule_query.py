"""RuleQuery: a registered CONSTRUCT into a stored graph, which is a rule, as its user holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from wukongs.csparql.algebra import Output
from wukongs.csparql.parser_rules import ParsedRule, rule_of_registered
from wukongs.errors import StreamError, UnsupportedFeatureError
from wukongs.live.backend import Backend
from wukongs.live.declarations import parse_registered
from wukongs.live.query_source import QuerySource
from wukongs.live.views.options import ViewOptions, check_view, is_rule
from wukongs.query.output.view_report import ViewReport
from wukongs.query.terms.names import written_graph
from wukongs.rules.inference import InstalledRule, Ruleset, text_of
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI

PAUSED = "its query is paused: resume() has it go on"


class RuleQuery:
    """It has the methods of a LiveView but for reports: a view that reads the graph has these.

    name: of the query, and of the rule.
    parsed: the rule.
    into, reads: as in InstalledRule."""

    is_stream = False

    def __init__(
        self,
        backend: Backend,
        source: QuerySource,
        options: ViewOptions,
        check: Callable[[Sequence[ParsedRule], str | None, str | None], None],
        name: str,
    ) -> None:
        """check: raises AccessError, RuleError for a rule that may not be there. Raises RuleError (what no rule has),
        DataError (a graph that is only read)."""
        assert options.into is not None
        self.name, self.source = name, source
        self.into: str | None = None
        self.reads: str | None = None
        if options.into != DEFAULT_GRAPH_IRI:
            self.into, self.reads = written_graph(options.into).name, DEFAULT_GRAPH_IRI
        self.parsed = rule_of_registered(source.text, source.base, name)
        self._backend, self._options, self._check = backend, options, check

    def added_to(self, ruleset: Ruleset) -> Ruleset:
        """Return some rules and this one; one that was found in the data folder goes on for whoever first registers the
        same text. Raises RuleError (a name that is taken)."""
        known = ruleset.rules.get(self.name)
        says = text_of(self.parsed), self.into, self.reads
        if known is not None and known.name in self._backend.recovered_rules and known.says == says:
            self._backend.recovered_rules.discard(self.name)
            return ruleset
        return ruleset.with_rules([self.parsed], self.into, self.reads)

    def _rule(self) -> InstalledRule:
        """Return the rule as it is now. Raises StreamError once it was dropped."""
        text = text_of(self.parsed)
        for rule in self._backend.rules():
            if (rule.name, rule.text, rule.into) == (self.name, text, self.into):
                return rule
        raise StreamError(f"query {self.name} is closed, and its rule dropped: register it again")

    @property
    def is_closed(self) -> bool:
        try:
            return self._rule() is None
        except StreamError:
            return True

    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None:
        """Follow another text from now on, under the same name. Raises as Engine.register."""
        source = self.source._replace(text=text, base=base, output=output)
        query = parse_registered(source)
        if query.dataset.windows:
            raise StreamError(f"query {self.name}: the other text has a window: close the query, and register it")
        check_view(query, source, self._options)
        is_rule(query, source, self._options, ())
        assert query.registration is not None
        if query.registration.name != self.name:
            raise StreamError(f"query {self.name}: the other text is registered as {query.registration.name}")
        self._rule()
        parsed = rule_of_registered(text, base, self.name)
        self._check([parsed], self.into, self.reads)
        self._backend.change_rules(
            lambda ruleset: ruleset.without([self.name]).with_rules([parsed], self.into, self.reads)
        )
        self.source, self.parsed = source, parsed

    def pause(self) -> None:
        """Pause the rule: what it alone concludes is not in the graph until resume()."""
        if not self._rule().is_paused:
            self._backend.change_rules(lambda ruleset: ruleset.paused(self.name, PAUSED))

    def resume(self) -> None:
        """Follow the rule again. Raises RuleError (it takes too much)."""
        self._rule()
        self._backend.change_rules(lambda ruleset: ruleset.resumed([self.name]))

    def close(self) -> None:
        """Drop the rule: what it alone concludes leaves the graph. Closing twice is allowed."""
        if not self.is_closed:
            self._backend.change_rules(lambda ruleset: ruleset.without([self.name]))

    @property
    def is_paused(self) -> bool:
        return self._rule().is_paused

    def why(self, row: Mapping[str, Any] | None = None) -> str:
        """Say whether the rule is followed."""
        if row is not None:
            raise UnsupportedFeatureError("why of a row of a rule", 1, 1, "Engine.why says it of a triple")
        if self.is_closed:
            return f"query {self.name} is closed"
        error = self._rule().error
        followed = f"query {self.name} is a rule: its triples are in the graph at each snapshot"
        return followed if error is None else f"query {self.name} is a rule, and paused: {error}"

    def stats(self) -> dict[str, Any]:
        """Return what it is as JSON."""
        return {"kind": "rule", "is_paused": self.is_paused, "into": self.into}

    def explain(self, *, analyze: bool = False) -> str:
        """Return the rule as text."""
        return self._rule().text

    def warnings(self) -> tuple[str, ...]:
        """Return likely mistakes: none are looked for."""
        return ()

    def results(self, timeout_s: float | None = None, *, group: str | None = None) -> Iterator[ViewReport]:
        """Raise UnsupportedFeatureError: it reports nothing."""
        self._refuse("results()")

    def aresults(self, timeout_s: float | None = None, *, group: str | None = None) -> AsyncIterator[ViewReport]:
        """Raise UnsupportedFeatureError: it reports nothing."""
        self._refuse("aresults()")

    def content(self, at: int | None = None, *, timeout_s: float | None = None) -> NoReturn:
        """Raise UnsupportedFeatureError: its content is in the graph."""
        self._refuse("content()")

    def _refuse(self, method: str) -> NoReturn:
        graph = "{ ?s ?p ?o }" if self.into is None else f"{{ GRAPH <{self.into}> {{ ?s ?p ?o }} }}"
        advice = f"its triples are in a stored graph: ask for them, or register a view over it: SELECT * WHERE {graph}"
        raise UnsupportedFeatureError(f"{method} of query {self.name}, which is a rule", 1, 1, advice)

    def __repr__(self) -> str:
        return f"<RuleQuery {self.name}>"

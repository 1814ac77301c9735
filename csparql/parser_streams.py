"""What C-SPARQL and RSP-QL add at the head of a query: REGISTER, and the dataset clause with its streams."""

from __future__ import annotations

import re
from dataclasses import replace

from wukongs.csparql.algebra import DatasetClause, Output, Registration, ReportPolicy, StreamWindow
from wukongs.csparql.parser_windows import WindowParser

_A_WINDOW = "a window such as [RANGE 10s STEP 1s] after the stream IRI"
_A_POLICY = "ON WINDOW CLOSE, ON CONTENT CHANGE, NON EMPTY CONTENT or NON EMPTY RESULT after REPORT"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
_OUTPUTS: dict[str, Output] = {"RSTREAM": "rstream", "ISTREAM": "istream", "DSTREAM": "dstream"}
_POLICIES: dict[tuple[str, ...], ReportPolicy] = {
    ("WINDOW", "CLOSE"): "window close",
    ("CONTENT", "CHANGE"): "content change",
    ("NON", "EMPTY", "CONTENT"): "non-empty content",
    ("NON", "EMPTY", "RESULT"): "non-empty result",
}


class StreamClauseParser(WindowParser):
    """Reads registrations and dataset clauses."""

    def registration(self) -> Registration | None:
        """Read `REGISTER QUERY | STREAM | RSTREAM | ISTREAM | DSTREAM name ... AS`, if the query has it."""
        if not self.accept("REGISTER"):
            return None
        kind = self.token.kind
        if kind not in ("QUERY", "STREAM", *_OUTPUTS):
            raise self.error("QUERY, STREAM, RSTREAM, ISTREAM or DSTREAM after REGISTER")
        self.advance()
        name = self._query_name("stream" if kind == "STREAM" else "query")
        every_ms: int | None = None
        report: tuple[ReportPolicy, ...] = ()
        while True:
            if every_ms is None and self.accept("COMPUTED"):
                self.expect("EVERY", "EVERY after COMPUTED")
                every_ms = self.duration_ms("EVERY")
            elif not report and self.accept("REPORT"):
                report = self._report()
            else:
                break
        first = every_ms is None and not report
        self.expect("AS", "AS and the query after its name" if first else "AS and the query")
        output = _OUTPUTS.get(kind, "rstream")
        return Registration(name, every_ms, output, report, kind == "STREAM", kind in _OUTPUTS)

    def output_operator(self, registration: Registration | None) -> Registration | None:
        """Read the ISTREAM of `SELECT ISTREAM` or `CONSTRUCT ISTREAM`, as some texts in RSP-QL have it."""
        if registration is None or self.token.kind not in _OUTPUTS:
            return registration
        output = _OUTPUTS[self.token.kind]
        if registration.has_operator and registration.output != output:
            raise self.error(f"no other operator than that of REGISTER {registration.output.upper()}")
        self.advance()
        return replace(registration, output=output, has_operator=True)

    def check_stream(self, registration: Registration | None, form: str) -> None:
        """Raise the error of a REGISTER STREAM that makes no triples. The next token is the query's form."""
        if registration is not None and registration.is_stream and form != "construct":
            following = self.peek().kind
            if not (form == "select" and following in _OUTPUTS):
                raise self.error(
                    "CONSTRUCT: a stream is made of triples (REGISTER QUERY, or RSTREAM, ISTREAM and DSTREAM in its "
                    "place, report rows)"
                )

    def _query_name(self, what: str) -> str:
        """Read a bare name, which may run over several tokens, a quoted one, or an IRI."""
        if self.at_iri():
            return self.iri_value("a name")
        expected = f"a name for the {what} (letters, digits, '_', '-', '.'), a quoted one or an IRI"
        if self.token.kind == "string":
            token = self.token
            name = self.string(expected)
            if not name.strip() or not name.isprintable():
                raise self.error(expected, token)
            return name
        match = _NAME.match(self.text, self.token.start)
        if match is None or self.token.kind == "end" or (self.token.kind == "AS" and match[0].upper() == "AS"):
            raise self.error(expected)
        while self.token.kind != "end" and self.token.start < match.end():
            self.advance()
        return match[0]

    def _report(self) -> tuple[ReportPolicy, ...]:
        """Read from after REPORT: one policy or more, all of which must hold."""
        found = [self._policy()]
        while self.accept(",") or self.accept("AND"):
            found.append(self._policy())
        return tuple(dict.fromkeys(found))

    def _policy(self) -> ReportPolicy:
        start = self.token
        if start.kind == "PERIODIC":
            raise self.unsupported("REPORT PERIODIC", advice="COMPUTED EVERY 10s says when to report")
        words: list[str] = []
        while len(words) < 4 and self.token.kind not in ("AS", "end", ",", "AND", "COMPUTED"):
            if self.token.kind != "-":
                words += self.token.kind.split("_")
            self.advance()
            policy = _POLICIES.get(tuple(words[1:] if words[:1] == ["ON"] else words))
            if policy is not None:
                return policy
        raise self.error(_A_POLICY, start)

    def dataset(self) -> DatasetClause:
        """Read any number of FROM, FROM NAMED, FROM [NAMED] STREAM and FROM [NAMED] WINDOW."""
        default_graphs: dict[str, None] = {}
        named_graphs: dict[str, None] = {}
        windows: list[StreamWindow] = []
        while self.accept("FROM"):
            named = self.accept("NAMED")
            if self.accept("WINDOW"):
                windows.append(self._window_on(named))
            elif self.accept("STREAM"):
                stream = self.iri_value("the IRI of a stream after STREAM")
                windows.append(self.window(stream, named, None, _A_WINDOW))
            else:
                name = self.iri_value("an IRI" if named else "an IRI, NAMED, STREAM or WINDOW after FROM")
                if self.token.kind == "[":  # Wukong+S's queries leave STREAM out
                    windows.append(self.window(name, named, None, _A_WINDOW))
                else:
                    (named_graphs if named else default_graphs)[name] = None
        self.windows = tuple(windows)
        return DatasetClause(tuple(default_graphs), tuple(named_graphs), self.windows)

    def _window_on(self, named: bool) -> StreamWindow:
        """Read the rest of `FROM [NAMED] WINDOW <w> ON [STREAM] <stream> [...]`; only a named one needs its name."""
        own_name = None
        if named or self.token.kind != "ON":
            own_name = self.iri_value("the IRI of a window after WINDOW")
        self.expect("ON", "ON and the IRI of a stream after the window's name")
        self.accept("STREAM")
        return self.window(self.iri_value("the IRI of a stream after ON"), named, own_name, _A_WINDOW)

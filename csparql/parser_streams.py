"""What C-SPARQL adds: REGISTER QUERY, FROM STREAM with windows; and the dataset clause as a whole."""

from __future__ import annotations

import re

from csparql.algebra import DatasetClause, Registration, StreamWindow
from csparql.parser_groups import GroupParser
from csparql.tokens import Token

_UNIT_WORDS_MS = {
    1: ("MS", "MILLISECOND", "MILLISECONDS"),
    1_000: ("S", "SEC", "SECS", "SECOND", "SECONDS"),
    60_000: ("M", "MIN", "MINS", "MINUTE", "MINUTES"),
    3_600_000: ("H", "HOUR", "HOURS"),
    86_400_000: ("D", "DAY", "DAYS"),
}
UNITS_MS = {word: length for length, words in _UNIT_WORDS_MS.items() for word in words}
_STEP_TRIPLES = 1
"""STEP of a window that counts triples, if it has none: C-SPARQL's [RANGE TRIPLES n] is always the last n."""
_A_WINDOW = "a window such as [RANGE 10s STEP 1s] after the stream IRI"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")


class StreamClauseParser(GroupParser):
    """Reads registrations and dataset clauses."""

    def registration(self) -> Registration | None:
        """Read `REGISTER QUERY name [COMPUTED EVERY n unit] AS`, if the query has it."""
        if not self.accept("REGISTER"):
            return None
        if self.token.kind in ("STREAM", "ISTREAM", "DSTREAM", "RSTREAM"):
            raise self.unsupported(f"REGISTER {self.token.kind}", advice="REGISTER QUERY reports every window as it is")
        self.expect("QUERY", "QUERY after REGISTER")
        name = self._query_name()
        every_ms = None
        if self.accept("COMPUTED"):
            self.expect("EVERY", "EVERY after COMPUTED")
            every_ms = self._duration_ms("EVERY")
        self.expect("AS", "AS and the query after its name" if every_ms is None else "AS and the query")
        return Registration(name, every_ms)

    def _query_name(self) -> str:
        """Read a bare name, which may run over several tokens, or an IRI."""
        if self.at_iri():
            return self.iri_value("a name")
        match = _NAME.match(self.text, self.token.start)
        if match is None or self.token.kind == "end" or (self.token.kind == "AS" and match[0].upper() == "AS"):
            raise self.error("a name for the query (letters, digits, '_', '-', '.') or an IRI")
        while self.token.kind != "end" and self.token.start < match.end():
            self.advance()
        return match[0]

    def dataset(self) -> DatasetClause:
        """Read any number of FROM, FROM NAMED, FROM STREAM and FROM NAMED STREAM."""
        default_graphs: dict[str, None] = {}
        named_graphs: dict[str, None] = {}
        windows: list[StreamWindow] = []
        while self.accept("FROM"):
            named = self.accept("NAMED")
            if named and self.token.kind == "WINDOW":
                advice = "write FROM NAMED STREAM <stream> [RANGE 10s STEP 1s]"
                raise self.unsupported("FROM NAMED WINDOW ... ON", advice=advice)
            if self.accept("STREAM"):
                windows.append(self._window(named))
            else:
                graphs = named_graphs if named else default_graphs
                graphs[self.iri_value("an IRI" if named else "an IRI, NAMED or STREAM after FROM")] = None
        return DatasetClause(tuple(default_graphs), tuple(named_graphs), tuple(windows))

    def _window(self, named: bool) -> StreamWindow:
        stream = self.iri_value("the IRI of a stream after STREAM")
        opening = self.expect("[", _A_WINDOW)
        self.expect("RANGE", "RANGE, as in [RANGE 10s STEP 1s]")
        if self.accept("TRIPLES"):
            return self._count_window(stream, named, opening)
        range_ms = self._duration_ms("RANGE")
        if self.accept("TUMBLING"):
            step_ms = range_ms
        else:
            self.expect("STEP", "STEP and its length, or TUMBLING, after the length of RANGE")
            step_ms = self._duration_ms("STEP")
        self.expect("]", "']' at the end of the window")
        line, column = self.place_of(opening)
        return StreamWindow(stream, range_ms, step_ms, named, line, column)

    def _count_window(self, stream: str, named: bool, opening: Token) -> StreamWindow:
        """Read `n [STEP m | TUMBLING] ]`, the rest of a window that counts arrivals."""
        count = self.whole_number("a whole number of triples above 0 after TRIPLES", minimum=1)
        step = _STEP_TRIPLES
        if self.accept("TUMBLING"):
            step = count
        elif self.accept("STEP"):
            step = self.whole_number("a whole number of triples above 0 after STEP", minimum=1)
            if self.token.kind in UNITS_MS:
                raise self.error("a STEP without a unit: a window that counts triples moves on by triples")
        self.expect("]", "']', or STEP and a whole number of triples" if step == _STEP_TRIPLES else "']' after STEP")
        line, column = self.place_of(opening)
        return StreamWindow(stream, 0, 0, named, line, column, count, step)

    def _duration_ms(self, clause: str) -> int:
        """Read a whole number above 0 and its unit; return milliseconds."""
        if re.fullmatch(r"P[0-9TDHMS.]+", self.token.kind):
            raise self.unsupported("a duration in ISO 8601", advice="write it like 10s, 500ms or 1 h")
        number = self.whole_number(f"a whole number above 0 and a unit after {clause}, such as 10s", minimum=1)
        if self.token.kind not in UNITS_MS:
            raise self.error("a unit of time: ms, s, m, h or d (or its long form, such as SECONDS)")
        return number * UNITS_MS[self.advance().kind]

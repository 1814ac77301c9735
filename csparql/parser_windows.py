"""Windows: `[RANGE 10s STEP 1s]` and its relatives, lengths of time, and the WINDOW blocks of RSP-QL."""

from __future__ import annotations

import re

from wukongs.csparql.algebra import Extend, Join, Node, StreamWindow, Union, Values
from wukongs.csparql.joining import join
from wukongs.csparql.parser_groups import GroupParser
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Variable, iri

_UNIT_WORDS_MS = {
    1: ("MS", "MSEC", "MSECS", "MILLISECOND", "MILLISECONDS"),
    1_000: ("S", "SEC", "SECS", "SECOND", "SECONDS"),
    60_000: ("M", "MIN", "MINS", "MINUTE", "MINUTES"),
    3_600_000: ("H", "HOUR", "HOURS"),
    86_400_000: ("D", "DAY", "DAYS"),
}
UNITS_MS = {word: length for length, words in _UNIT_WORDS_MS.items() for word in words}
DURATION_MAX_MS = 36_525 * 86_400_000
"""A hundred years. Event times have room for windows that reach so far back."""
_STEP_TRIPLES = 1
"""STEP of a window that counts triples, if it has none: C-SPARQL's [RANGE TRIPLES n] is always the last n."""
_COUNTED = ("TRIPLES", "ITEM", "ITEMS", "ELEMENTS")
"""How C-SPARQL and texts in RSP-QL say that a window counts."""
_ISO_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<Y>\d+)Y)?(?:(?P<M>\d+)M)?(?:(?P<W>\d+)W)?(?:(?P<D>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)(?:[.,](?P<f>\d+))?S)?)?(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_ISO_PARTS_MS = {"W": 7 * 86_400_000, "D": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_A_UNIT = "a unit of time: ms, s, m, h or d (or its long form, such as SECONDS)"


class WindowParser(GroupParser):
    """Reads windows, and the blocks that match patterns in one of them."""

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, base, source)
        self.windows: tuple[StreamWindow, ...] = ()
        """What the dataset clause declares, once it has been read."""
        self._in_any_window = False

    def window(self, stream: str, named: bool, own_name: str | None, expected: str) -> StreamWindow:
        """Read `[...]`. own_name: the window's IRI, if it is not its stream's."""
        opening = self.expect("[", expected)
        line, column = self.place_of(opening)
        lengths = self._window_lengths()
        for word in ("REPORT", "TICK"):
            if self.token.kind == word:
                raise self.unsupported(
                    f"{word} inside of a window",
                    advice="write REPORT before AS: it holds for all windows of the query, which time closes",
                )
        self.expect("]", "']' at the end of the window")
        return StreamWindow(stream, lengths[0], lengths[1], named, line, column, lengths[2], lengths[3], own_name)

    def _window_lengths(self) -> tuple[int, int, int, int]:
        """Read from after `[`; return RANGE and STEP in ms, and both in triples."""
        if self.token.kind in _COUNTED:
            self.advance()
            return (0, 0, *self._counts())
        if self.token.kind not in ("RANGE", "ELAPSED"):
            raise self.error("RANGE, as in [RANGE 10s STEP 1s]")
        self.advance()
        if self.token.kind in _COUNTED:
            self.advance()
            return (0, 0, *self._counts())
        range_ms = self.duration_ms("RANGE")
        if self.accept("TUMBLING"):
            return range_ms, range_ms, 0, 0
        if self.token.kind not in ("STEP", "SLIDE"):
            raise self.error("STEP and its length, or TUMBLING, after the length of RANGE")
        self.advance()
        return range_ms, self.duration_ms("STEP"), 0, 0

    def _counts(self) -> tuple[int, int]:
        """Read `n [STEP m | TUMBLING]`, of a window that counts arrivals."""
        count = self.whole_number("a whole number of triples above 0 after TRIPLES", minimum=1)
        if self.accept("TUMBLING"):
            return count, count
        if self.token.kind not in ("STEP", "SLIDE"):
            if self.token.kind != "]":
                raise self.error("']', or STEP and a whole number of triples")
            return count, _STEP_TRIPLES
        self.advance()
        step = self.whole_number("a whole number of triples above 0 after STEP", minimum=1)
        if self.token.kind in UNITS_MS:
            raise self.error("a STEP without a unit: a window that counts triples moves on by triples")
        if self.token.kind != "]":
            raise self.error("']' after STEP")
        return count, step

    # --- lengths of time ----------------------------------------------------------------------------------------------

    def duration_ms(self, clause: str) -> int:
        """Read `10s`, `10 seconds` or `PT10S`; return milliseconds, above 0."""
        token = self.token
        if token.kind.startswith("P"):
            length_ms = self._iso_duration_ms(clause)
        else:
            number = self.whole_number(f"a whole number above 0 and a unit after {clause}, such as 10s", minimum=1)
            if self.token.kind not in UNITS_MS:
                raise self.error(_A_UNIT)
            length_ms = number * UNITS_MS[self.advance().kind]
        if length_ms > DURATION_MAX_MS:
            raise self.error("a length of time of at most 36525 days", token)
        return length_ms

    def _iso_duration_ms(self, clause: str) -> int:
        """Read a duration of ISO 8601, which may run over several tokens. Months and years have no fixed length."""
        expected = f"a duration such as PT10S, PT0.5S or P1DT12H (or 10s) after {clause}"
        token = self.token
        match = _ISO_DURATION.match(self.text, token.start)
        if match is None or len(match[0]) > 100:
            raise self.error(expected)
        if match["Y"] is not None or match["M"] is not None:
            raise self.unsupported(
                f"a duration in {'months' if match['Y'] is None else 'years'}",
                advice="their lengths differ: write days, as in P30D",
            )
        while self.token.kind != "end" and self.token.start < match.end():
            self.advance()
        length_ms = sum(int(match[part] or 0) * part_ms for part, part_ms in _ISO_PARTS_MS.items())
        fraction = (match["f"] or "").rstrip("0")
        if len(fraction) > 3:
            raise self.error("a duration of whole milliseconds", token, f"'{match[0]}'")
        length_ms += int(fraction.ljust(3, "0"))
        if length_ms < 1:
            raise self.error(expected, token, f"'{match[0]}'")
        return length_ms

    # --- WINDOW blocks ------------------------------------------------------------------------------------------------

    def _element(self, node: Node) -> Node:
        if self.accept("WINDOW"):
            return join(node, self._window_block())
        return super()._element(node)

    def _window_block(self) -> Node:
        """Read the rest of `WINDOW <w> { ... }` or `WINDOW ?w { ... }`."""
        token = self.token
        names = list(dict.fromkeys(window.name for window in self.windows))
        declared = f"declared: {', '.join(f'<{name}>' for name in names) or 'none'}"
        if token.kind == "var":
            if not names:
                raise self.error("a window that WINDOW ?w can range over: FROM NAMED WINDOW <w> ON <stream> [...]")
            return self._any_window(self._variable(), names)
        name = self.iri_value("an IRI or a variable after WINDOW")
        if name not in names:
            raise self.error(f"a window that FROM [NAMED] WINDOW or STREAM declares ({declared})", token)
        return self._in_window(name)

    def _in_window(self, name: str) -> Node:
        outer_graph, self.graph = self.graph, iri(name)
        node = self.group()
        self.graph = outer_graph
        return node

    def _any_window(self, variable: Variable, names: list[str]) -> Node:
        """Read the block of `WINDOW ?w` once for each window that is declared; a solution says which it is of."""
        if self._in_any_window:
            raise self.unsupported(f"WINDOW ?{variable.name} inside of another WINDOW with a variable")
        self._in_any_window = True
        start, labels = self.index, dict(self.labels)
        branches: list[Node] = []
        for name in names:
            self.rewind(start)
            self.labels = dict(labels)
            node = self._in_window(name)
            if variable in possible_variables(node):
                node = Join(node, Values((variable,), ((iri(name),),)))
            else:
                node = Extend(node, variable, iri(name))
            branches.append(node)
        self._in_any_window = False
        found = branches[0]
        for branch in branches[1:]:
            found = Union(found, branch)
        return found

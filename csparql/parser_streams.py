"""The head of a query: REGISTER, and the dataset clause with its streams and windows, as C-SPARQL and RSP-QL have them.

`[RANGE 10s STEP 1s]` and its relatives; lengths of time with units or in ISO 8601. The WINDOW blocks of RSP-QL stand in
patterns: parser_patterns.py reads them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from wukongs.csparql.algebra import DatasetClause, Output, Registration, ReportPolicy, StreamWindow
from wukongs.csparql.parser_patterns import PatternParser

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


def read_registration(parser: PatternParser) -> Registration | None:
    """Read `REGISTER QUERY | STREAM | RSTREAM | ISTREAM | DSTREAM name ... AS`, if the query has it."""
    if not parser.accept("REGISTER"):
        return None
    kind = parser.token.kind
    if kind not in ("QUERY", "STREAM", *_OUTPUTS):
        raise parser.error("QUERY, STREAM, RSTREAM, ISTREAM or DSTREAM after REGISTER")
    parser.advance()
    name = _query_name(parser, "stream" if kind == "STREAM" else "query")
    every_ms: int | None = None
    report: tuple[ReportPolicy, ...] = ()
    while True:
        if every_ms is None and parser.accept("COMPUTED"):
            parser.expect("EVERY", "EVERY after COMPUTED")
            every_ms = _duration_ms(parser, "EVERY")
        elif not report and parser.accept("REPORT"):
            report = _report(parser)
        else:
            break
    first = every_ms is None and not report
    parser.expect("AS", "AS and the query after its name" if first else "AS and the query")
    output = _OUTPUTS.get(kind, "rstream")
    return Registration(name, every_ms, output, report, kind == "STREAM", kind in _OUTPUTS)


def read_output_operator(parser: PatternParser, registration: Registration | None) -> Registration | None:
    """Read the ISTREAM of `SELECT ISTREAM` or `CONSTRUCT ISTREAM`, as some texts in RSP-QL have it."""
    if registration is None or parser.token.kind not in _OUTPUTS:
        return registration
    output = _OUTPUTS[parser.token.kind]
    if registration.has_operator and registration.output != output:
        raise parser.error(f"no other operator than that of REGISTER {registration.output.upper()}")
    parser.advance()
    return replace(registration, output=output, has_operator=True)


def check_stream(parser: PatternParser, registration: Registration | None) -> None:
    """Raise the error of a REGISTER STREAM that makes no triples. The next token is the query's form."""
    form = parser.token.kind
    if registration is not None and registration.is_stream and form != "CONSTRUCT":
        following = parser.peek().kind
        if not (form == "SELECT" and following in _OUTPUTS):
            raise parser.error(
                "CONSTRUCT: a stream is made of triples (REGISTER QUERY, or RSTREAM, ISTREAM and DSTREAM in its "
                "place, report rows)"
            )


def _query_name(parser: PatternParser, what: str) -> str:
    """Read a bare name, which may run over several tokens, a quoted one, or an IRI."""
    if parser.at_iri():
        return parser.iri_value("a name")
    expected = f"a name for the {what} (letters, digits, '_', '-', '.'), a quoted one or an IRI"
    if parser.token.kind == "string":
        token = parser.token
        name = parser.string(expected)
        if not name.strip() or not name.isprintable():
            raise parser.error(expected, token)
        return name
    match = _NAME.match(parser.text, parser.token.start)
    if match is None or parser.token.kind == "end" or (parser.token.kind == "AS" and match[0].upper() == "AS"):
        raise parser.error(expected)
    while parser.token.kind != "end" and parser.token.start < match.end():
        parser.advance()
    return match[0]


def _report(parser: PatternParser) -> tuple[ReportPolicy, ...]:
    """Read from after REPORT: one policy or more, all of which must hold."""
    found = [_policy(parser)]
    while parser.accept(",") or parser.accept("AND"):
        found.append(_policy(parser))
    return tuple(dict.fromkeys(found))


def _policy(parser: PatternParser) -> ReportPolicy:
    start = parser.token
    if start.kind == "PERIODIC":
        raise parser.unsupported("REPORT PERIODIC", advice="COMPUTED EVERY 10s says when to report")
    words: list[str] = []
    while len(words) < 4 and parser.token.kind not in ("AS", "end", ",", "AND", "COMPUTED"):
        if parser.token.kind != "-":
            words += parser.token.kind.split("_")
        parser.advance()
        policy = _POLICIES.get(tuple(words[1:] if words[:1] == ["ON"] else words))
        if policy is not None:
            return policy
    raise parser.error(_A_POLICY, start)


def read_dataset(parser: PatternParser) -> DatasetClause:
    """Read any number of FROM, FROM NAMED, FROM [NAMED] STREAM and FROM [NAMED] WINDOW."""
    default_graphs: dict[str, None] = {}
    named_graphs: dict[str, None] = {}
    windows: list[StreamWindow] = []
    while parser.accept("FROM"):
        named = parser.accept("NAMED")
        if parser.accept("WINDOW"):
            windows.append(_window_on(parser, named))
        elif parser.accept("STREAM"):
            stream = parser.iri_value("the IRI of a stream after STREAM")
            windows.append(_window(parser, stream, named, None))
        else:
            name = parser.iri_value("an IRI" if named else "an IRI, NAMED, STREAM or WINDOW after FROM")
            if parser.token.kind == "[":  # Wukong+S's queries leave STREAM out
                windows.append(_window(parser, name, named, None))
            else:
                (named_graphs if named else default_graphs)[name] = None
    parser.windows = tuple(windows)
    return DatasetClause(tuple(default_graphs), tuple(named_graphs), parser.windows)


def _window_on(parser: PatternParser, named: bool) -> StreamWindow:
    """Read the rest of `FROM [NAMED] WINDOW <w> ON [STREAM] <stream> [...]`; only a named one needs its name."""
    own_name = None
    if named or parser.token.kind != "ON":
        own_name = parser.iri_value("the IRI of a window after WINDOW")
    parser.expect("ON", "ON and the IRI of a stream after the window's name")
    parser.accept("STREAM")
    return _window(parser, parser.iri_value("the IRI of a stream after ON"), named, own_name)


# --- windows ----------------------------------------------------------------------------------------------------------


def _window(parser: PatternParser, stream: str, named: bool, own_name: str | None) -> StreamWindow:
    """Read `[...]`. own_name: the window's IRI, if it is not its stream's."""
    opening = parser.expect("[", _A_WINDOW)
    line, column = parser.place_of(opening)
    lengths = _window_lengths(parser)
    for word in ("REPORT", "TICK"):
        if parser.token.kind == word:
            raise parser.unsupported(
                f"{word} inside of a window",
                advice="write REPORT before AS: it holds for all windows of the query, which time closes",
            )
    parser.expect("]", "']' at the end of the window")
    return StreamWindow(stream, lengths[0], lengths[1], named, line, column, lengths[2], lengths[3], own_name)


def _window_lengths(parser: PatternParser) -> tuple[int, int, int, int]:
    """Read from after `[`; return RANGE and STEP in ms, and both in triples."""
    if parser.token.kind in _COUNTED:
        parser.advance()
        return (0, 0, *_counts(parser))
    if parser.token.kind not in ("RANGE", "ELAPSED"):
        raise parser.error("RANGE, as in [RANGE 10s STEP 1s]")
    parser.advance()
    if parser.token.kind in _COUNTED:
        parser.advance()
        return (0, 0, *_counts(parser))
    range_ms = _duration_ms(parser, "RANGE")
    if parser.accept("TUMBLING"):
        return range_ms, range_ms, 0, 0
    if parser.token.kind not in ("STEP", "SLIDE"):
        raise parser.error("STEP and its length, or TUMBLING, after the length of RANGE")
    parser.advance()
    return range_ms, _duration_ms(parser, "STEP"), 0, 0


def _counts(parser: PatternParser) -> tuple[int, int]:
    """Read `n [STEP m | TUMBLING]`, of a window that counts arrivals."""
    count = parser.whole_number("a whole number of triples above 0 after TRIPLES", minimum=1)
    if parser.accept("TUMBLING"):
        return count, count
    if parser.token.kind not in ("STEP", "SLIDE"):
        if parser.token.kind != "]":
            raise parser.error("']', or STEP and a whole number of triples")
        return count, _STEP_TRIPLES
    parser.advance()
    step = parser.whole_number("a whole number of triples above 0 after STEP", minimum=1)
    if parser.token.kind in UNITS_MS:
        raise parser.error("a STEP without a unit: a window that counts triples moves on by triples")
    if parser.token.kind != "]":
        raise parser.error("']' after STEP")
    return count, step


# --- lengths of time --------------------------------------------------------------------------------------------------


def _duration_ms(parser: PatternParser, clause: str) -> int:
    """Read `10s`, `10 seconds` or `PT10S`; return milliseconds, above 0."""
    token = parser.token
    if token.kind.startswith("P"):
        length_ms = _iso_duration_ms(parser, clause)
    else:
        number = parser.whole_number(f"a whole number above 0 and a unit after {clause}, such as 10s", minimum=1)
        if parser.token.kind not in UNITS_MS:
            raise parser.error(_A_UNIT)
        length_ms = number * UNITS_MS[parser.advance().kind]
    if length_ms > DURATION_MAX_MS:
        raise parser.error("a length of time of at most 36525 days", token)
    return length_ms


def _iso_duration_ms(parser: PatternParser, clause: str) -> int:
    """Read a duration of ISO 8601, which may run over several tokens. Months and years have no fixed length."""
    expected = f"a duration such as PT10S, PT0.5S or P1DT12H (or 10s) after {clause}"
    token = parser.token
    match = _ISO_DURATION.match(parser.text, token.start)
    if match is None or len(match[0]) > 100:
        raise parser.error(expected)
    if match["Y"] is not None or match["M"] is not None:
        raise parser.unsupported(
            f"a duration in {'months' if match['Y'] is None else 'years'}",
            advice="their lengths differ: write days, as in P30D",
        )
    while parser.token.kind != "end" and parser.token.start < match.end():
        parser.advance()
    length_ms = sum(int(match[part] or 0) * part_ms for part, part_ms in _ISO_PARTS_MS.items())
    fraction = (match["f"] or "").rstrip("0")
    if len(fraction) > 3:
        raise parser.error("a duration of whole milliseconds", token, f"'{match[0]}'")
    length_ms += int(fraction.ljust(3, "0"))
    if length_ms < 1:
        raise parser.error(expected, token, f"'{match[0]}'")
    return length_ms

"""The same records as a file and as frames of messages, cut anywhere: the same triples, times and rows set aside."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.unit.adapters.helpers import NO_TIME, SCOPE, triples_of
from wukongs.adapters.feeds.decoder import Decoder
from wukongs.adapters.feeds.spool import Frame
from wukongs.adapters.mapping.mapping import Mapping, mapping_in
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.adapters.push import PartitionSetup, pieces_of
from wukongs.adapters.run_config import Format, RdfSource, RecordSource, TimestampedSource
from wukongs.adapters.source import Rows, SetAside, SourceIndex, StreamSource
from wukongs.adapters.sources.rdf_messages import prepare_rdf
from wukongs.adapters.sources.record_file import prepare_records
from wukongs.adapters.sources.timestamped_file import prepare_timestamped
from wukongs.settings.toml_places import TomlPlaces
from wukongs.settings.toml_reader import TableReader

Told = tuple[list[Any], list[SetAside], list[SetAside], int]


def told(rows: Rows) -> Told:
    """All that rows say. Blank nodes have labels of their place, so they are as they are."""
    found = list(zip(rows.offsets.tolist(), rows.encoded.timestamps.tolist(), triples_of(rows.encoded), strict=True))
    return found, rows.malformed, rows.backwards, rows.newest_ms


def mapping_of(value: str = "{v}", **time: Any) -> Mapping:
    triple = {"predicate": "http://ex/p", "value": value}
    table = {"subject": "http://ex/{id}", "time": time or {"column": "t", "format": "epoch_ms"}, "triple": [triple]}
    return mapping_in(TableReader(table, "m", "", {}, TomlPlaces("")))


def frames_of(messages: list[bytes], cuts: list[int], **place: Any) -> list[Frame]:
    """Cut messages into frames that follow each other. place: file, line, byte of the first, columns."""
    ends = sorted({0, len(messages), *(cut for cut in cuts if cut < len(messages))})
    found, line, byte = [], place.pop("line", 0), place.pop("byte", 0)
    for low, high in pairwise(ends):
        part = messages[low:high]
        lengths = np.array([len(one) for one in part], np.int64)
        found.append(Frame(low, 0, lengths, b"".join(part), line=line, byte=byte, **place))
        if place.get("file"):
            line, byte = line + len(part), byte + int(lengths.sum())
    return found


def decoded(format: Format, frames: list[Frame], partition: str = "in") -> Rows:
    return Decoder(partition, partition, format).rows(frames, NO_TIME, SCOPE, 62)


def in_chunks(format: Format, frames: list[Frame], partition: str) -> Told:
    """Decode frame by frame, as workers do that read a range after the other."""
    floor, found, bad, late = NO_TIME, list[Any](), list[SetAside](), list[SetAside]()
    for frame in frames:
        rows = Decoder(partition, partition, format).rows([frame], floor, SCOPE, 62)
        one = told(rows)
        found, bad, late, floor = found + one[0], bad + one[1], late + one[2], one[3]
    return found, bad, late, floor


def whole(pair: tuple[StreamSource, SourceIndex]) -> Told:
    source, index = pair
    return told(source.read(index.range(0, len(index)), SCOPE, 62))


CUTS = st.lists(st.integers(1, 20), max_size=6)
CELLS = st.sampled_from(["", "a", "7", "a b", '"q"', '"a,b"', '"a""b"', '"open', 'x"y', '"a"b', "é", "\udcff"])
TIMES = st.sampled_from(["0", "5", "10", "10", "20", "x", ""])
CSV_LINES = st.one_of(
    st.builds("{},{},{}".format, CELLS, TIMES, CELLS), st.sampled_from(["", "a", "a,1,b,c", '"', ",,", "   "])
)
ENDS = st.sampled_from(["\n", "\r\n"])


def same(format: Format, file: Told, frames: list[Frame], partition: str) -> None:
    assert alike(told(decoded(format, frames, partition))) == alike(file)
    assert alike(in_chunks(format, frames, partition)) == alike(file)


def alike(rows: Told) -> Told:
    """A quote that is not closed is found at the end of a message, and later in a file."""
    bad = [replace(one, column=0, reason="quote") if "quote" in one.reason else one for one in rows[1]]
    return rows[0], bad, rows[2], rows[3]


@fuzzed(120)
@given(lines=st.lists(st.tuples(CSV_LINES, ENDS), min_size=1, max_size=12), cuts=CUTS, bom=st.booleans())
def test_lines_of_csv(lines: list[tuple[str, str]], cuts: list[int], bom: bool) -> None:
    head = (b"\xef\xbb\xbf" if bom else b"") + b"id,t,v\n"
    records = [(line + end).encode("utf-8", "surrogateescape") for line, end in lines]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.csv"
        path.write_bytes(head + b"".join(records))
        format = RecordSource(kind="csv", paths=(str(path),), mapping=mapping_of())
        pair = prepare_records(format, str(path), Path(folder))
        if len(pair[1]) != len(records):  # a quote that goes on over a line end: lines know nothing of it
            return
        frames = frames_of(records, cuts, file=str(path), line=2, byte=len(head), columns=("id", "t", "v"))
        same(format, whole(pair), frames, "in.csv")


JSON_LINES = st.one_of(
    st.builds('{{"id": "{}", "t": {}, "v": {}}}'.format, st.sampled_from("ab"), TIMES, st.sampled_from("123")),
    st.sampled_from(["", "[]", "{", '{"id": 1}', '{"id": {"a": 1}, "t": 1, "v": 2}', "\ufeff{}", '"\\ud800"', "1e400"]),
)


@fuzzed(120)
@given(lines=st.lists(st.tuples(JSON_LINES, ENDS), min_size=1, max_size=12), cuts=CUTS)
def test_lines_of_json(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    records = [(line + end).encode() for line, end in lines]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_bytes(b"\n" + b"".join(records))
        format = RecordSource(kind="jsonl", paths=(str(path),), mapping=mapping_of("{v} {_row}"))
        file = whole(prepare_records(format, str(path), Path(folder)))
        frames = frames_of([b"\n", *records], cuts, file=str(path), line=1)
        same(format, file, frames, "in.jsonl")


NT_LINES = st.one_of(
    st.builds("<http://ex/{}> <http://ex/p> _:b . {}".format, st.sampled_from("ab"), TIMES),
    st.sampled_from(["", "# note", "<http://ex/a> <http://ex/p> .", "é", '<http://ex/a> <http://ex/p> "x"@en . 30']),
)


@fuzzed(120)
@given(lines=st.lists(st.tuples(NT_LINES, ENDS), min_size=1, max_size=12), cuts=CUTS)
def test_timestamped_lines(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    records = [(line + end).encode() for line, end in lines]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.nt"
        path.write_bytes(b"".join(records))
        file = whole(prepare_timestamped(str(path), "suffix", Path(folder)))
        same(TimestampedSource(paths=()), file, frames_of(records, cuts, file=str(path), line=1), "in.nt")


TTL = st.one_of(
    st.builds("_:x <http://ex/p> [] ; <http://ex/at> {} .".format, st.sampled_from(["1", "5", "9", "x", '"7"'])),
    st.sampled_from(["<http://ex/s> <http://ex/p> 1 .", "<broken", "<rel> <http://ex/at> 3 .", "é ."]),
)


@fuzzed(60)
@given(messages=st.lists(TTL, min_size=1, max_size=8), cuts=CUTS)
def test_messages_of_turtle(messages: list[str], cuts: list[int]) -> None:
    records = [(one + "\n\n").encode() for one in messages]
    format = RdfSource(paths=(), predicate="http://ex/at", time_format=TimeFormat("epoch_ms"), format="ttl")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.ttl"
        path.write_bytes(b"".join(records))
        found, bad, late, newest = whole(prepare_rdf(format, str(path), Path(folder)))

    def unplaced(rows: list[SetAside]) -> list[Any]:
        return [(one.row, one.column, one.reason, one.time_ms) for one in rows]

    frames = frames_of(records, cuts)
    for one in (told(decoded(format, frames, "in.ttl")), in_chunks(format, frames, "in.ttl")):
        assert (one[0], unplaced(one[1]), unplaced(one[2]), one[3]) == (found, unplaced(bad), unplaced(late), newest)


# --- messages ---------------------------------------------------------------------------------------------------------

FORMATS: list[Format] = [
    RecordSource(kind="jsonl", paths=(), mapping=mapping_of("{v} {_key}")),
    RecordSource(kind="jsonl", paths=(), mapping=mapping_of(column="_time", format="epoch_ms")),
    RecordSource(kind="csv", paths=(), mapping=mapping_of()),
    RecordSource(kind="tsv", paths=(), mapping=mapping_of(every_ms=10)),
    TimestampedSource(paths=()),
    TimestampedSource(paths=(), timestamps="prefix"),
    *[
        RdfSource(paths=(), predicate=predicate, time_format=TimeFormat("epoch_ms"), format=format)
        for predicate in ("", "http://ex/at")
        for format in ("ttl", "trig", "nt", "nq", "jsonld")
    ],
]
SEEDS = [
    b"",
    b"\n",
    b"\r",
    b"\xef\xbb\xbf",
    b'{"id": 1}',
    b'"a',
    b"a,1,b\n",
    b"<a> <b> <c> . 5\n",
    b"5\t<a> <b> <c> .\n",
    b"\0",
]
MESSAGES = st.lists(st.one_of(st.binary(max_size=30), st.lists(st.sampled_from(SEEDS), max_size=4).map(b"".join)))


@fuzzed(300)
@given(
    messages=MESSAGES.filter(bool), format=st.sampled_from(FORMATS), cuts=CUTS, columns=st.sampled_from([(), ("v",)])
)
def test_nothing_in_a_message_raises(
    messages: list[bytes], format: Format, cuts: list[int], columns: tuple[str, ...]
) -> None:
    rows = decoded(format, frames_of(messages, cuts, columns=columns))
    assert all(0 <= row < len(messages) for row in rows.offsets.tolist())
    assert (np.diff(rows.offsets) >= 0).all()
    assert all(one.row is not None and 0 <= one.row < len(messages) for one in [*rows.malformed, *rows.backwards])


def test_a_message_of_lines_of_several_times_is_not_cut_in_two() -> None:
    """Pieces tile rows, and a piece is of one stream batch: so a message has one time."""
    line = "<http://ex/s> <http://ex/p> <http://ex/o> . "
    messages = [f"{line}1\n{line}1\n{line}11".encode(), f"{line}12".encode()]
    rows = decoded(TimestampedSource(paths=()), frames_of(messages, []))
    setup = PartitionSetup("http://ex/s", _Named(), 1, 10, True, 62)
    pieces = [(one.first_offset, one.end_offset, len(one.encoded)) for one in pieces_of(setup, rows, 0, 2)]
    assert pieces == [(0, 1, 2), (1, 2, 1)]
    assert [(one.row, one.reason) for one in rows.malformed] == [(0, "its time 11 ms is not that of its message, 1 ms")]


class _Named:
    partition = "in"

    def read(self, *_: Any) -> Rows:
        raise AssertionError


def test_columns_change_between_files() -> None:
    """Each range has the columns of its frames; a column that a file lacks is empty."""
    format = RecordSource(kind="csv", paths=(), mapping=mapping_of())
    for columns, line in ((("id", "t", "v"), b"a,5,x\n"), (("v", "t", "other", "id"), b"x,5,-,a\n")):
        rows = decoded(format, frames_of([line], [], columns=columns))
        assert triples_of(rows.encoded) == [("<http://ex/a>", "<http://ex/p>", '"x"')]
    assert not len(decoded(format, frames_of([b"a,5\n"], [], columns=("id", "t"))).encoded)


def test_cells_and_times_that_come_beside_messages() -> None:
    format = RecordSource(kind="jsonl", paths=(), mapping=mapping_of("{v} {_key}", column="_time", format="epoch_ms"))
    first = Frame(0, 7, np.array([18]), b'{"id": "a","v": 1}', cells={"_key": ["k"]})
    second = Frame(1, 9, np.array([18]), b'{"id": "b","v": 2}')
    rows = decoded(format, [first, second])
    assert [(time, text) for _, time, (_, _, text) in told(rows)[0]] == [(7, '"1 k"')]

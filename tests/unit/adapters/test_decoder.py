"""Messages whose numbers leave gaps and that have times of their own, by each kind of format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.adapters.helpers import NO_TIME, SCOPE, triples_of
from wukongs.adapters.feeds.decoder import Decoder
from wukongs.adapters.feeds.spool import NO_BOUND, Frame
from wukongs.adapters.mapping.mapping import TimeMap, mapping_in
from wukongs.adapters.mapping.rml import load_rml
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.adapters.run_config import Format, RdfSource, RecordSource, TimestampedSource
from wukongs.adapters.source import Rows
from wukongs.settings.toml_places import TomlPlaces
from wukongs.settings.toml_reader import TableReader

XSD = "http://www.w3.org/2001/XMLSchema#"
NUMBERS, TIMES = [4, 7, 8, 20], [1000, 1001, 1001, 5000]


def _frame(*messages: str, **cells: list[str | None]) -> Frame:
    data = [message.encode() for message in messages]
    return Frame(
        NUMBERS[0],
        0,
        np.array([len(one) for one in data]),
        b"".join(data),
        cells={name: list(texts) for name, texts in cells.items()},
        rows=np.array(NUMBERS),
        times=np.array(TIMES),
    )


def _rows(format: Format, frame: Frame) -> Rows:
    return Decoder("t/0", "t/0", format).rows([frame], NO_TIME, SCOPE, 62)


def _records(**time: Any) -> RecordSource:
    triple = {"predicate": "http://ex/p", "value": "{_row} {v} {_key}"}
    table = {"subject": "http://ex/s", "time": time, "triple": [triple]}
    return RecordSource(kind="jsonl", paths=(), mapping=mapping_in(TableReader(table, "m", "", {}, TomlPlaces(""))))


def test_records_have_their_numbers_their_times_and_their_cells() -> None:
    frame = _frame('{"v": 1}', "broken", '{"v": 3}', '{"v": 4}', _key=["a", "b", "c", "d"])
    rows = _rows(_records(column="_time", format="epoch_ms"), frame)
    assert [text for _, _, text in triples_of(rows.encoded)] == ['"4 1 a"', '"8 3 c"', '"20 4 d"']
    assert (rows.offsets.tolist(), rows.encoded.timestamps.tolist()) == ([4, 8, 20], [1000, 1001, 5000])
    assert [(one.file, one.line, one.row) for one in rows.malformed] == [("t/0, offset 7", 1, 7)]


@pytest.mark.parametrize("end", ["\n", "\n\n", "\r\n\r\n", "\n\r\n\n"])
def test_blank_lines_behind_a_record_of_csv_are_no_second_one(end: str) -> None:
    table = {
        "subject": "http://ex/s",
        "csv": {"header": False, "columns": ["a", "b"]},
        "time": {"column": "_time", "format": "epoch_ms"},
        "triple": [{"predicate": "http://ex/p", "value": "{a}{b}"}],
    }
    mapping = mapping_in(TableReader(table, "m", "", {}, TomlPlaces("")))
    messages = f"1,2{end}", f'"3","4{end}"{end}', f"5,6{end}7,8", f"9,10{end}"
    rows = _rows(RecordSource(kind="csv", paths=(), mapping=mapping), _frame(*messages))
    assert rows.offsets.tolist() == [4, 7, 20]
    assert [(one.row, one.reason) for one in rows.malformed] == [
        (8, "expected one record in a message, found another line")
    ]


def test_a_line_of_text_is_a_cell() -> None:
    csv = {"header": False, "columns": ["value"], "quote": "", "delimiter": "\u001f"}
    table = {
        "subject": "http://ex/s",
        "csv": csv,
        "time": {"column": "_time", "format": "epoch_ms"},
        "triple": [{"predicate": "http://ex/p", "value": "{value}"}],
    }
    mapping = mapping_in(TableReader(table, "m", "", {}, TomlPlaces("")))
    rows = _rows(RecordSource(kind="csv", paths=(), mapping=mapping), _frame("a,b;c", 'says "d"', "", "e\tf"))
    assert [text for _, _, text in triples_of(rows.encoded)] == ['"a,b;c"', '"says "d""', '"e\tf"']
    assert rows.offsets.tolist() == [4, 7, 20]


def test_times_by_the_number_count_what_is_missing() -> None:
    frame = _frame(*['{"v": 1}'] * 4, _key=["k"] * 4)
    assert _rows(_records(every_ms=10), frame).encoded.timestamps.tolist() == [40, 70, 80, 200]


@pytest.mark.parametrize("predicate", ["", "http://ex/at"])
def test_messages_of_rdf(predicate: str) -> None:
    at = [f"; <http://ex/at> {number * 100} " if predicate else "" for number in NUMBERS]
    messages = [f"_:b <http://ex/p> {number} {at[place]}." for place, number in enumerate(NUMBERS)]
    messages[2] = "\n\n<broken"
    rows = _rows(
        RdfSource(paths=(), predicate=predicate, time_format=TimeFormat("epoch_ms"), format="ttl"), _frame(*messages)
    )
    subjects = {subject for subject, _, _ in triples_of(rows.encoded)}
    assert len(subjects) == 3
    assert set(rows.offsets.tolist()) == {4, 7, 20}
    expected = {400, 700, 2000} if predicate else {1000, 1001, 5000}
    assert set(rows.encoded.timestamps.tolist()) == expected
    assert [(one.file, one.row) for one in rows.malformed] == [("t/0, offset 8", 8)]


def test_timestamped_lines_several_a_message() -> None:
    lines = "<http://ex/s> <http://ex/p> <http://ex/o> . "
    messages = [f"{lines}1\n{lines}1", f"{lines}2", f"{lines}1", f"{lines}9\n"]
    rows = _rows(TimestampedSource(paths=()), _frame(*messages))
    assert (rows.offsets.tolist(), rows.encoded.timestamps.tolist()) == ([4, 4, 7, 20], [1, 1, 2, 9])
    assert [(one.file, one.row, one.time_ms) for one in rows.backwards] == [("t/0, offset 8", 8, 1)]


def test_a_message_that_is_an_array(tmp_path: Path) -> None:
    """Its elements are iterations, all at the message's time."""
    (tmp_path / "m.ttl").write_text(
        '@prefix rml: <http://w3id.org/rml/> . <#M> rml:logicalSource [ rml:source "in" ; '
        'rml:referenceFormulation rml:JSONPath ; rml:iterator "$[*]" ] ; rml:subjectMap [ rml:template '
        '"http://ex/{$.id}" ] ; rml:predicateObjectMap [ rml:predicate <http://ex/v> ; '
        'rml:objectMap [ rml:reference "$.v" ] ] .'
    )
    mapping = replace(load_rml(str(tmp_path / "m.ttl"), ()), time=TimeMap("_time", TimeFormat("epoch_ms")))
    format = RecordSource(kind="jsonl", paths=(), mapping=mapping)
    rows = _rows(format, _frame('[{"id": 1, "v": 2}, {"id": 3, "v": true}]', '{"id": 4, "v": "x"}', "[]", "7"))
    assert [text for _, _, text in triples_of(rows.encoded)] == [
        f'"2"^^<{XSD}integer>',
        f'"true"^^<{XSD}boolean>',
        '"x"',
    ]
    assert (rows.offsets.tolist(), rows.encoded.timestamps.tolist()) == ([4, 4, 7], [1000, 1000, 1001])
    assert [one.reason for one in rows.malformed] == ["expected a JSON object"]


DAY, NOW = 86_400_000, 1_800_000_000_000
_AHEAD = "is ahead of the clock: when it came no time after"


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (_records(column="t", format="epoch_ms"), '{{"t": {}, "v": 1}}'),
        (TimestampedSource(paths=()), "<http://ex/s> <http://ex/p> <http://ex/o> . {}"),
        (
            RdfSource(paths=(), predicate="http://ex/at", time_format=TimeFormat("epoch_ms"), format="ttl"),
            "<http://ex/s> <http://ex/at> {} .",
        ),
    ],
)
def test_times_that_are_ahead_of_the_clock_are_set_aside_and_move_no_watermark(format: Format, text: str) -> None:
    """DESIGN 6: more than jump_max_ms ahead of the wall clock at arrival. The frame says when, not a clock of today."""
    times = [NOW - 3 * DAY, NOW + DAY + 1, NOW, NOW + DAY]
    data = [(text.format(time) + "\n").encode() for time in times]
    lengths, whole = np.array([len(one) for one in data]), b"".join(data)
    cells: dict[str, list[str | None]] = {"_key": ["k"] * 4}
    plain = Frame(0, NOW, lengths, whole, cells=cells)
    for frame, jump_max_ms in (
        (plain, DAY),
        (replace(plain, latest_ms=NOW + DAY), 0),  # decided when it came, whatever holds today
        (replace(plain, time_ms=0, times=np.full(4, NOW), rows=np.arange(4)), DAY),  # by the broker's timestamps
    ):
        rows = Decoder("t/0", "t/0", format, jump_max_ms=jump_max_ms).rows([frame], NO_TIME, SCOPE, 62)
        assert rows.encoded.timestamps.tolist() == [times[0], times[2], times[3]]
        assert (rows.newest_ms, rows.backwards) == (NOW + DAY, [])
        (one,) = rows.malformed
        assert (one.row, f"its time {times[1]} ms {_AHEAD} {NOW + DAY} ms was believed" in one.reason) == (1, True)
    for frame in (plain, replace(plain, latest_ms=NO_BOUND)):
        rows = Decoder("t/0", "t/0", format).rows([frame], NO_TIME, SCOPE, 62)
        assert (rows.newest_ms, len(rows.malformed), len(rows.backwards)) == (NOW + DAY + 1, 0, 1 + 1)


def test_a_broker_without_timestamps_bounds_no_time() -> None:
    frame = replace(_frame(*['{"v": 1, "t": 1800000000000}'] * 4, _key=["k"] * 4), times=np.zeros(4, np.int64))
    rows = Decoder("t/0", "t/0", _records(column="t", format="epoch_ms"), jump_max_ms=DAY).rows(
        [frame], NO_TIME, SCOPE, 62
    )
    assert (len(rows.offsets), rows.malformed) == (4, [])


def test_a_time_that_is_not_believed_infers_nothing() -> None:
    """2026-10-25 02:30 in Berlin is the first one, whatever a clock that is wrong has said before."""
    texts = ["2026-10-25T02:20:00", "2031-01-01T00:00:00", "2026-10-25T02:30:00"]
    data = [json.dumps({"t": text, "v": 1}).encode() + b"\n" for text in texts]
    frame = Frame(0, NOW, np.array([len(one) for one in data]), b"".join(data), cells={"_key": ["k"] * 3})
    format = _records(column="t", zone="Europe/Berlin", ambiguous="infer")
    rows = Decoder("t/0", "t/0", format, jump_max_ms=DAY).rows([frame], NO_TIME, SCOPE, 62)
    assert rows.encoded.timestamps.tolist() == [1_792_887_600_000, 1_792_888_200_000]

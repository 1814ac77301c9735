"""Rows that are set aside: written once each, shown in bounds, judged by the records of their partition."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.adapters.helpers import read_all
from wukongs.adapters.bad_records import (
    FIRST_RECORDS,
    PART_CHARACTERS,
    PART_ROWS,
    SHOWN_MAX,
    BadRecords,
    BadRows,
    PartitionCounts,
    bad_parts,
)
from wukongs.adapters.source import TEXT_MAX, SetAside
from wukongs.adapters.sources import rows_kernels as kernels
from wukongs.adapters.sources.timestamped_file import prepare_timestamped
from wukongs.errors import DataError, StorageError

STREAM = "http://ex/s"


def _bad(row: int, text: str = "oops") -> SetAside:
    return SetAside("s.nt", row + 1, 1, "expected a subject", text, row, 5 * row)


def _part(first: int, count: int, part: int = 0, leading: int | None = None) -> BadRows:
    rows = tuple(_bad(row) for row in range(first, first + count))
    return BadRows(STREAM, "s.nt", first, part, count if leading is None else leading, rows)


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_s = 100.0

    def records(self, path: str = "", share_max: float = 0.1) -> BadRecords:
        return BadRecords(path, share_max, self.lines.append, lambda: self.now_s)


def test_the_bad_rows_of_a_chunk_travel_in_order_in_small_parts() -> None:
    rows = [_bad(row) for row in range(0, 3 * PART_ROWS, 2)]
    late = [_bad(row) for row in range(1, PART_ROWS, 2)]
    parts = list(bad_parts(STREAM, "s.nt", 7, [*rows, *late], first_good=3))
    assert [(one.first_offset, one.part, len(one.rows)) for one in parts] == [
        (7, 0, PART_ROWS),
        (7, 1, PART_ROWS),
    ]
    assert [one.row for part in parts for one in part.rows] == sorted(one.row or 0 for one in [*rows, *late])
    assert [one.leading for one in parts] == [3, 0]
    assert [one.leading for one in bad_parts(STREAM, "s.nt", 7, rows, None)] == [PART_ROWS, PART_ROWS // 2]
    long = [_bad(row, "x" * TEXT_MAX) for row in range(PART_ROWS)]
    sizes = [sum(len(one.text) for one in part.rows) for part in bad_parts(STREAM, "s.nt", 0, long, None)]
    assert len(sizes) == 2
    assert max(sizes) <= PART_CHARACTERS + TEXT_MAX
    assert BadRows.from_json(json.loads(json.dumps(parts[0].to_json()))) == parts[0]


def test_every_row_is_written_once_though_its_part_comes_again(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    records = Said().records(str(path))
    assert not path.exists()
    for part in (_part(0, 3), _part(3, 2), _part(0, 3), _part(3, 2), _part(5, 1)):
        records.take(part, False)
    records.close()
    assert [json.loads(line)["row"] for line in path.read_text().splitlines()] == [0, 1, 2, 3, 4, 5]


def test_a_later_run_appends_under_another_time(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    for _ in range(2):
        records = Said().records(str(path))
        records.take(_part(0, 1), False)
        records.close()
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first["run"] <= second["run"]


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.nt"
    path.write_text("my data")
    with pytest.raises(StorageError, match=r"s\.nt: expected a file of dead letters to append to"):
        Said().records(str(path)).take(_part(0, 1), False)
    assert path.read_text() == "my data"
    with pytest.raises(StorageError, match=r"cannot be written \(No such file or directory\)\. Name another file"):
        Said().records(str(tmp_path / "gone" / "x")).take(_part(0, 1), False)


def test_the_first_rows_are_shown_and_then_a_count_now_and_then() -> None:
    said = Said()
    records = said.records()
    records.take(_part(0, 3), True)
    assert said.lines == [f"set aside: {_bad(row)}" for row in range(3)]
    records.take(_part(3, 4), True)
    assert said.lines[3:] == [*(f"set aside: {_bad(row)}" for row in (3, 4)), "7 rows set aside so far"]
    for number in range(100):
        records.take(_part(10 + number, 1), True)
    assert len(said.lines) == SHOWN_MAX + 1
    said.now_s += 6
    records.take(_part(200, 1), True)
    assert said.lines[-1] == "108 rows set aside so far"


def test_the_first_records_of_a_partition_all_bad_end_the_run() -> None:
    records = Said().records()
    records.take(_part(0, FIRST_RECORDS - 1), False)
    with pytest.raises(
        DataError, match=r"s\.nt: the first 1,000 .* 1,000 of them: expected a subject\. .* s\.nt, line 1,"
    ):
        records.take(_part(FIRST_RECORDS, 1), False)


def test_late_records_are_one_reason_whatever_their_times() -> None:
    records = Said().records()
    late = [replace(_bad(row), reason=f"its time {row} ms is before 9 ms", time_ms=row) for row in range(3)]
    records.take(BadRows(STREAM, "s.nt", 0, 0, 0, (*late, _bad(3))), True)
    error = records.past_rate({(STREAM, "s.nt"): PartitionCounts(1, 4, True)})
    assert "Reasons: 3 of them: their times are before that of an earlier record; 1 of them: expected" in str(error)


def test_a_good_record_before_or_a_rate_of_one_lets_it_go_on() -> None:
    records = Said().records()
    records.take(_part(0, FIRST_RECORDS, leading=10), False)
    records.take(_part(FIRST_RECORDS, FIRST_RECORDS), True)
    lenient = Said().records(share_max=1.0)
    lenient.take(_part(0, 2 * FIRST_RECORDS), False)
    assert lenient.past_rate({(STREAM, "s.nt"): PartitionCounts(0, 2 * FIRST_RECORDS, True)}) is None


def test_a_partition_is_judged_at_its_end() -> None:
    records = Said().records("bad.jsonl")
    assert records.past_rate({(STREAM, "a"): PartitionCounts(9, 1, True), (STREAM, "b"): PartitionCounts()}) is None
    assert records.past_rate({(STREAM, "a"): PartitionCounts(0, 5, False)}) is None
    error = records.past_rate({(STREAM, "a"): PartitionCounts(89, 11, True)})
    assert str(error) == (
        "a (stream http://ex/s): 11 of 100 records are bad (11.0%, bad_records_max is 10.0%). All are in bad.jsonl"
    )


def test_a_row_that_is_set_aside_costs_no_scan_of_the_rows_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.nt"
    good = "<http://ex/a> <http://ex/p> <http://ex/o> ."
    path.write_text("".join(f"{good} {5 if row % 2 else 9}\n" if row % 3 else "oops\n" for row in range(3000)))
    source, index = prepare_timestamped(str(path), "suffix", tmp_path)
    scans = []
    for name in ("scan_rows", "scan_starts"):
        scan = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *given, scan=scan: (scans.append(1), scan(*given)))
    rows = read_all(source, index)
    assert len(rows.malformed) == 1000
    assert len(rows.backwards) > 900
    assert len(scans) == 1
    for one in [*rows.malformed, *rows.backwards]:
        assert one.row == one.line - 1
        assert path.read_bytes()[one.byte :].decode().startswith(one.text + "\n")

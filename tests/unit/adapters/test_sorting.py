"""`sort = true`: a file in any order gives the same tuples as one that is written in the order of its times."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz import scaled
from wukongs.adapters.mapping.mapping import load_mapping
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.adapters.run_config import (
    RdfSource,
    RecordSource,
    SourceConfig,
    StreamConfig,
    TimestampedSource,
    load_run_config,
)
from wukongs.adapters.source import PreparedSource
from wukongs.adapters.sources import prepare, sorting
from wukongs.adapters.sources.sorting import order_of
from wukongs.cli import main
from wukongs.errors import SettingsError

Row = tuple[int | None, str]
"""A time, None if it cannot be read, and a text."""
MAPPING = """
subject = "http://ex/s"
[time]
column = "t"
format = "epoch_ms"
[[triple]]
predicate = "http://ex/v"
value = "{v}"
"""
NO_TIME = sorting.NO_TIME


def rows_in_order(rows: list[Row]) -> list[int]:
    """Return the numbers of the rows by their times: one without a time stays behind the one before it."""
    keyed, newest = [], float("-inf")
    for number, (time, _) in enumerate(rows):
        newest = newest if time is None else time
        keyed.append((newest, number))
    return [number for _, number in sorted(keyed)]


def write(kind: str, rows: list[Row], path: Path) -> SourceConfig:
    """Write rows in their order; return the source that reads them."""
    mapping = path.with_name("m.toml")
    mapping.write_text(MAPPING)
    if kind == "parquet":
        times = pa.array([time for time, _ in rows], pa.int64())
        table = pa.table({"t": times, "v": pa.array([text for _, text in rows], pa.string())})
        pq.write_table(table, path, row_group_size=7)
        return RecordSource(kind="parquet", paths=(str(path),), mapping=load_mapping(str(mapping)))
    lines = [line(kind, *row) for row in rows]
    if kind == "json":
        path.write_text("[" + ",\n ".join(one.rstrip() for one in lines) + "]")
        return RecordSource(kind="json", paths=(str(path),), mapping=load_mapping(str(mapping)))
    head = "t,v\n" if kind == "csv" else "@prefix ex: <http://ex/> .\n\n" if kind == "ttl" else ""
    path.write_text((head + "".join(lines)).rstrip("\n"))
    if kind == "timestamped":
        return TimestampedSource(paths=(str(path),))
    if kind in ("csv", "jsonl"):
        return RecordSource(kind=kind, paths=(str(path),), mapping=load_mapping(str(mapping)))  # type: ignore[arg-type]
    return RdfSource(paths=(str(path),), predicate="http://ex/at", time_format=TimeFormat("epoch_ms"), format=kind)


def line(kind: str, time: int | None, text: str) -> str:
    """Return a row as the file has it. Some texts make a record of several lines."""
    if kind == "csv":
        return f'{"x" if time is None else time},"{text}\n{text}"\n'
    if kind in ("json", "jsonl"):
        return json.dumps({"t": "x" if time is None else time, "v": text}) + "\n"
    if kind == "timestamped":
        return f'<http://ex/s> <http://ex/v> "{text}" . {"x" if time is None else time}\n'
    at = "" if time is None else str(time)
    if kind == "nt":  # two subjects by turns: in order of time, messages of one subject may stand side by side
        subject = f"<http://ex/s{int(text.lstrip('v')) % 2}>"
        return f'{subject} <http://ex/v> "{text}" .\n{subject} <http://ex/at> "{at}" .\n'
    return f'ex:s ex:v "{text}" ;\n  ex:at "{at}" .\n\n'


def opened(config: SourceConfig, folder: Path, is_sorted: bool) -> PreparedSource:
    folder.mkdir(exist_ok=True)
    assert not hasattr(config, "times")
    config = replace(config, is_sorted=is_sorted)  # type: ignore[call-arg]
    (found,) = prepare([StreamConfig(iri="http://ex/s", sources=(config,))], folder)
    return found


def tuples(found: PreparedSource, step: int) -> tuple[list[tuple[int, ...]], list[tuple[int, str]]]:
    """Return the tuples that ranges of a source give (ids, time), and line and text of what is set aside."""
    rows, faults = list[tuple[int, ...]](), list[tuple[int, str]]()
    for first in range(0, len(found.index), step):
        read = found.source.read(found.index.range(first, min(first + step, len(found.index))), b"http://ex/s", 62)
        columns = (read.encoded.subjects, read.encoded.predicates, read.encoded.objects, read.encoded.timestamps)
        rows += zip(*(column.tolist() for column in columns), strict=True)
        faults += [(one.line, one.text.strip()) for one in (*read.malformed, *read.backwards)]
    return rows, sorted(faults)


def test_order_of_rows_with_and_without_times() -> None:
    times = np.array([NO_TIME, 5, NO_TIME, 3, 5, NO_TIME, 4], np.int64)
    order = order_of(times)
    assert order is not None
    assert order.tolist() == [0, 3, 6, 1, 2, 4, 5]
    assert order_of(times[order]) is None
    assert order_of(times[:0]) is None


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl", "timestamped", "ttl", "nt", "parquet"])
def test_a_file_in_any_order_gives_what_a_sorted_one_gives(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "PART_BYTES", 200)  # many parts, and chunks that end anywhere
    monkeypatch.setattr(sorting, "READ_ROWS", 7)
    ending = {"timestamped": "nt"}.get(kind, kind)
    for seed in range(scaled(40)):
        draw = random.Random(seed)
        rows: list[Row] = [
            (None if draw.random() < 0.1 else draw.randrange(50), "v" * draw.randrange(1, 9) + str(number))
            for number in range(draw.choice((1, 2, 30, 60)))
        ]
        folder = tmp_path / str(seed)
        folder.mkdir()
        unsorted = write(kind, rows, folder / f"in.{ending}")
        order = rows_in_order(rows)
        (folder / "oracle").mkdir()
        by_hand = write(kind, [rows[number] for number in order], folder / "oracle" / f"in.{ending}")
        got, faults = tuples(opened(unsorted, folder / "scratch", is_sorted=True), draw.choice((1, 5, 100)))
        if kind == "nt":  # side by side in a file, messages of one subject are one: so none is to be compared with
            times = [time for time, _ in rows if time is not None]
            assert sorted(time for *_, time in got) == sorted(times * 2)
            assert [time for *_, time in got] == sorted(time for *_, time in got)
            continue
        wanted, _ = tuples(opened(by_hand, folder / "scratch", is_sorted=False), 100)
        assert got == wanted
        assert len(faults) == sum(time is None for time, _ in rows)
        text = (folder / f"in.{ending}").read_bytes()
        for line, shown in faults if kind not in ("json", "parquet") else ():
            assert text.split(b"\n", line - 1)[-1].decode().startswith(shown)


def test_reports_and_row_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MAPPING.replace('"{v}"', '"{v} {_row}"'))
    (tmp_path / "in.csv").write_text('t,v\n30,"a\nb"\n10,c\nx,d\n20,e\n')
    config = RecordSource(kind="csv", paths=(str(tmp_path / "in.csv"),), mapping=load_mapping(str(tmp_path / "m.toml")))
    found = opened(config, tmp_path / "scratch", is_sorted=True)
    made = found.source.make(found.index.range(0, 4), b"s", 62)  # type: ignore[attr-defined]
    assert made.text.tobytes().decode().splitlines() == [
        f'<http://ex/s> <http://ex/v> "{value}" .' for value in ("c 1", "e 3", "a\\nb 0")
    ]
    (fault,) = made.reported().malformed
    assert (fault.line, fault.byte, fault.text) == (5, 18, "x,d")


RUN = """
[[stream]]
iri = "http://ex/s"
batch_ms = 10
timing = true
source = { kind = "csv", path = "in.csv", mapping = "m.toml"%s }
[[query]]
name = "q"
text = "REGISTER QUERY q AS SELECT ?v FROM STREAM <http://ex/s> [RANGE 30ms TUMBLING] WHERE { ?s ?p ?v }"
"""


def test_a_run_says_that_a_file_is_not_in_order_and_sorts_it_if_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.toml").write_text(MAPPING)
    (tmp_path / "in.csv").write_text("t,v\n30,a\n10,c\n20,e\n")
    run = tmp_path / "run.toml"
    run.write_text(RUN % "")
    assert main(["run", "--local", "--plain", str(run)]) == 1
    shown = capsys.readouterr()
    assert "its time 10 ms is before 30 ms" in shown.err
    assert shown.err.count("`sort = true` of its source puts a file in order of time") == 1
    assert main(["run", "--check", str(run)]) == 1
    assert "    `sort = true` of its source puts a file in order of time" in capsys.readouterr().out
    run.write_text(RUN % ", sort = true")
    assert main(["run", "--local", "--plain", str(run)]) == 0
    assert "q\t(0, 30]\t3 rows" in capsys.readouterr().out


def test_sort_is_for_files_with_times_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("t,v\n")
    (tmp_path / "m.toml").write_text(MAPPING.replace('column = "t"\nformat = "epoch_ms"', "every_ms = 5"))
    (tmp_path / "run.toml").write_text(RUN % ", sort = true")
    with pytest.raises(SettingsError, match=r"source\.sort: expected a time in the records .*found every_ms"):
        load_run_config(tmp_path / "run.toml")

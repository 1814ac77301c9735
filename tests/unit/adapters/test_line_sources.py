"""Timestamped N-Triples files and LSBench's own: rows, offsets, ranges, and what is set aside."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tests.unit.adapters.helpers import SCOPE, read_all, triples_of
from wukongs.adapters.run_config import LsbenchSource, StreamConfig, TimestampedSource
from wukongs.adapters.source import NO_TIME, RowRange, Rows
from wukongs.adapters.sources import prepare, timestamped_file
from wukongs.adapters.sources.lsbench_file import prepare_lsbench
from wukongs.adapters.sources.timestamped_file import prepare_timestamped
from wukongs.errors import DataError, SettingsError

pytestmark = pytest.mark.nojit

A = '<http://ex/a> <http://ex/p> "x"'


def _read(tmp_path: Path, text: str | bytes, mode: Literal["suffix", "prefix"] = "suffix") -> Rows:
    path = tmp_path / "in.nt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_all(*prepare_timestamped(str(path), mode, tmp_path))


def test_both_forms_give_tuples_times_and_row_numbers(tmp_path: Path) -> None:
    for mode, text in (("suffix", f"{A} . 5\n\n# note\n{A} . 7\n"), ("prefix", f"5\t{A} .\n\n# note\n7\t{A} .")):
        rows = _read(tmp_path, text, mode)  # type: ignore[arg-type]
        assert rows.encoded.timestamps.tolist() == [5, 7]
        assert rows.offsets.tolist() == [0, 3]
        assert triples_of(rows.encoded) == [("<http://ex/a>", "<http://ex/p>", '"x"')] * 2
        assert not rows.malformed


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_line_ends_and_a_byte_order_mark_are_all_right(tmp_path: Path, end: str) -> None:
    text = "\ufeff" + end.join([f"{A} . 1", f"{A} . 2", "", f"{A} . 3 # the last"])
    rows = _read(tmp_path, text)
    assert rows.encoded.timestamps.tolist() == [1, 2, 3]
    assert rows.offsets.tolist() == [0, 1, 3]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_are_not_looked_for_where_each_line_is_one(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.nt"
    path.write_text(end.join(f'<http://ex/s> <http://ex/p> "{row}" . {row}' for row in range(9)), newline="")
    source, index = prepare_timestamped(str(path), "suffix", tmp_path)
    monkeypatch.setattr(timestamped_file, "scan", None)
    rows = source.read(index.range(2, 9), SCOPE, 62)
    assert rows.offsets.tolist() == rows.encoded.timestamps.tolist() == list(range(2, 9))
    assert (rows.malformed, rows.backwards, rows.newest_ms) == ([], [], 8)
    with pytest.raises(TypeError):  # a floor that the first time is before: this row has to be found
        source.read(replace(index.range(2, 9), floor_ms=3), SCOPE, 62)


def test_a_file_that_was_changed_is_said_though_its_rows_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "in.nt"
    path.write_text("".join(f"{A} . {time}\n" for time in range(4)))
    source, index = prepare_timestamped(str(path), "suffix", tmp_path)
    half = len(f"{A} . 0\n")
    path.write_text(f"#{'-' * (half - 2)}\n" * 2 + f"{A} . 2\n" * 2)
    assert source.read(index.range(0, 4), SCOPE, 62).offsets.tolist() == [2, 3]
    path.write_text(f"#{'-' * (2 * half - 2)}\n" + f"{A} . 2\n" * 2)
    with pytest.raises(DataError, match="changed"):
        source.read(index.range(0, 4), SCOPE, 62)


@pytest.mark.parametrize("name", ["in.nt", "in.nt.gz", "in.NTRIPLES", "in.nq", "in.stream"])
def test_a_file_whose_name_says_n_triples_names_no_graphs(tmp_path: Path, name: str) -> None:
    """RDF 1.1 N-Triples, 2: a line has three terms. Any other name may hold N-Quads."""
    text = f'VERSION "1.2"\n{A} . 1\n{A} <http://ex/g> . 2\n{A} . 3\n'.encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    rows = read_all(*prepare_timestamped(str(path), "suffix", tmp_path))
    is_strict = ".nt" in name.lower()
    assert rows.encoded.timestamps.tolist() == ([1, 3] if is_strict else [1, 2, 3])
    assert [(one.line, one.column) for one in rows.malformed] == ([(3, 33)] if is_strict else [])


def test_graph_terms_stay_and_gzip_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "in.nq.gz"
    path.write_bytes(gzip.compress(f"{A} <http://ex/g> . 1\n{A} . 2\n".encode()))
    source, index = prepare_timestamped(str(path), "suffix", tmp_path)
    rows = read_all(source, index)
    assert (rows.encoded.graphs == -1).tolist() == [False, True]
    assert source.partition == "in.nq.gz"


def test_malformed_lines_are_set_aside_with_their_place(tmp_path: Path) -> None:
    lines = [
        f"{A} . 1",
        '<http://ex/a> <http://ex/p> "cut . 2',
        f"{A} . soon",
        f"{A} 3",
        b'<http://ex/a> <http://ex/p> "\xff" . 4',
        f"{A} . 5",
    ]
    data = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    rows = _read(tmp_path, data)
    assert rows.encoded.timestamps.tolist() == [1, 5]
    assert rows.offsets.tolist() == [0, 5]
    path = str(tmp_path / "in.nt")
    assert [(one.file, one.line, one.column) for one in rows.malformed] == [
        (path, 2, 29),
        (path, 3, 35),
        (path, 4, 33),
        (path, 5, 30),
    ]
    assert "no closing quote" in rows.malformed[0].reason
    assert "expected a timestamp" in rows.malformed[1].reason
    assert "UTF-8" in rows.malformed[3].reason
    assert rows.malformed[0].text == lines[1]
    assert str(rows.malformed[1]).startswith(f"{path}, line 3, column 35: expected a timestamp")


def test_a_decreasing_time_is_set_aside_within_a_range_and_across_ranges(tmp_path: Path) -> None:
    path = tmp_path / "in.nt"
    path.write_text("".join(f"{A} . {time}\n" for time in (5, 9, 7, 9, 8, 12)))
    source, index = prepare_timestamped(str(path), "suffix", tmp_path)
    assert index.times.tolist() == [5, 9, 9, 9, 9, 12]
    whole = read_all(source, index)
    assert whole.encoded.timestamps.tolist() == [5, 9, 9, 12]
    assert whole.offsets.tolist() == [0, 1, 3, 5]
    assert [(one.line, one.reason) for one in whole.backwards] == [
        (3, "its time 7 ms is before 9 ms"),
        (5, "its time 8 ms is before 9 ms"),
    ]
    assert whole.backwards[0].text == f"{A} . 7"
    part = source.read(index.range(2, 3), SCOPE, 62)
    assert len(part.encoded) == 0
    assert [one.line for one in part.backwards] == [3]


def test_ranges_put_together_give_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "in.nt"
    path.write_text("".join(f'<http://ex/s{row}> <http://ex/p> "{row}" . {row // 3}\n' for row in range(100)))
    source, index = prepare_timestamped(str(path), "suffix", tmp_path)
    whole = read_all(source, index)
    parts = [source.read(index.range(first, min(first + 7, 100)), SCOPE, 62) for first in range(0, 100, 7)]
    assert np.concatenate([one.offsets for one in parts]).tolist() == whole.offsets.tolist() == list(range(100))
    assert [triple for one in parts for triple in triples_of(one.encoded)] == triples_of(whole.encoded)
    assert index.rows_until(10) == 33
    assert index.rows_until(-1) == 0


def test_an_empty_file_and_one_of_garbage_have_rows_but_no_tuples(tmp_path: Path) -> None:
    assert len(_read(tmp_path, b"").encoded) == 0
    rows = _read(tmp_path, b"\x00\x01\x02\nwhat is this\n")
    assert len(rows.encoded) == 0
    assert len(rows.malformed) == 2


def test_times_before_the_first_known_one_are_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "in.nt"
    path.write_text(f"# a note\nbroken\n{A} . 40\n")
    _, index = prepare_timestamped(str(path), "suffix", tmp_path)
    assert index.times.tolist() == [40, 40, 40]
    assert index.range(0, 3).floor_ms == NO_TIME


def test_a_file_that_changes_while_it_is_replayed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.nt"
    path.write_text(f"{A} . 1\n{A} . 2\n")
    source, index = prepare_timestamped(str(path), "suffix", tmp_path)
    path.write_text(f"{A} . 1\n")
    with pytest.raises(
        DataError, match=r"in\.nt: expected \d+ bytes, found \d+: the file was cut while it was replayed"
    ):
        read_all(source, index)
    path.write_text(f"{A} . 1\n{A} . 2\n".replace(" . 1\n", "\n. 1\n"))
    with pytest.raises(DataError, match="changed while it was replayed"):
        source.read(RowRange(0, 2, 0, path.stat().st_size, NO_TIME), SCOPE, 62)
    path.unlink()
    with pytest.raises(DataError, match=r"in\.nt: cannot be read \(No such file"):
        read_all(source, index)


def test_a_broken_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.nt.gz"
    path.write_bytes(gzip.compress(A.encode() * 1000)[:-20])
    with pytest.raises(DataError, match=r"in\.nt\.gz: cannot be unpacked .*Check that it is a whole gzip file"):
        prepare_timestamped(str(path), "suffix", tmp_path)


def test_two_partitions_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "in.nt").write_text(f"{A} . 1\n")
    paths = tuple(str(tmp_path / folder / "in.nt") for folder in ("one", "two"))
    stream = StreamConfig(iri="http://ex/s", sources=(TimestampedSource(paths=paths),))
    with pytest.raises(SettingsError, match=r"stream http://ex/s: two of its sources are called in\.nt. Rename one"):
        prepare([stream], tmp_path)


# --- LSBench ----------------------------------------------------------------------------------------------------------

HEAD = (
    "@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .\n@prefix ex: <http://ex/> .\n@prefix u: <http://ex/user#u> .\n"
)


def _lsbench(tmp_path: Path, lines: str | bytes, times: str) -> Rows:
    path = tmp_path / "po.nt"
    path.write_bytes(HEAD.encode() + (lines if isinstance(lines, bytes) else lines.encode()))
    (tmp_path / "po.ts").write_text(times)
    config = LsbenchSource(path=str(path), times=str(tmp_path / "po.ts"))
    return read_all(*prepare_lsbench(config, tmp_path))


def test_prefixed_names_become_iris_and_literals_keep_their_spaces(tmp_path: Path) -> None:
    lines = [
        "u:7 a ex:Post .",
        'ex:po1 ex:content "two words  and . dots" .',
        'ex:po1 ex:created "2010-02-01T08:10:40Z"^^xsd:dateTime .',
        'ex:po1 ex:title "grüezi"@DE .',
        "<http://other/x> ex:p _:b .",
        'ex:po1 ex:quoted "say \\"hi\\"" .',
    ]
    rows = _lsbench(tmp_path, "\n".join(lines) + "\n", "1\n1\n2\n2\n3\n3\n")
    assert not rows.malformed
    found = triples_of(rows.encoded)
    assert found[:4] == [
        ("<http://ex/user#u7>", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>", "<http://ex/Post>"),
        ("<http://ex/po1>", "<http://ex/content>", '"two words  and . dots"'),
        (
            "<http://ex/po1>",
            "<http://ex/created>",
            '"2010-02-01T08:10:40Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
        ),
        ("<http://ex/po1>", "<http://ex/title>", '"grüezi"@de'),
    ]
    assert found[4][0] == "<http://other/x>"
    assert found[4][2].endswith("xb")
    assert found[5][2] == '"say "hi""'
    assert rows.encoded.timestamps.tolist() == [1, 1, 2, 2, 3, 3]


def test_broken_lsbench_lines_are_set_aside_with_their_place(tmp_path: Path) -> None:
    lines = [
        b"u:1 ex:p u:2 .",
        b"u:1 ex:p",
        b"u:1 nope:p u:2 .",
        b"u:1 ex:p u:2",
        b'u:1 ex:p "open .',
        b"",
        b'u:1 ex:p "\xff" .',
        b"u:1 ex:p u:3 .",
        b"u:1 ex:p u:4 .",
        b"u:1 ex:p u:5 .",
    ]
    rows = _lsbench(tmp_path, b"\n".join(lines), "1\n2\n3\n4\n5\n6\n7\nnoon\n9\n8")
    assert rows.offsets.tolist() == [0, 8]
    assert rows.encoded.timestamps.tolist() == [1, 9]
    found = {one.line: one for one in rows.malformed}
    assert sorted(found) == [5, 6, 7, 8, 10, 11]
    assert (found[5].column, found[5].reason) == (9, "expected subject, predicate and object, parted by single spaces")
    assert (found[6].column, found[6].reason) == (5, "expected a name with one of the file's prefixes")
    assert "expected ' .'" in found[7].reason
    assert (found[8].column, found[8].reason) == (10, "this literal has no closing quote")
    assert "UTF-8" in found[10].reason
    assert "po.ts, line 8: expected a time in ms" in found[11].reason
    assert found[6].text == "u:1 nope:p u:2 ."
    assert [(one.line, one.reason) for one in rows.backwards] == [(13, "its time 8 ms is before 9 ms")]


def test_a_time_for_every_triple_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"po\.ts: expected one time for each of the 2 triples of .*po\.nt, found 1"):
        _lsbench(tmp_path, "u:1 ex:p u:2 .\nu:1 ex:p u:3 .\n", "1\n")

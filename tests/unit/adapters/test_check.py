"""`wukongs map` and `wukongs run --check`: what they print and how they end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from wukongs.adapters.sources.timestamped_file import prepare_timestamped
from wukongs.cli import main

MAPPING = """
subject = "http://ex/{id}"
[time]
column = "t"
format = "epoch_s"
[[triple]]
predicate = "http://ex/v"
value = "{v}"
datatype = "xsd:integer"
"""
RUN = """
[[stream]]
iri = "http://ex/s"
source = { kind = "csv", path = "a.csv", mapping = "m.toml" }
[[stream]]
iri = "http://ex/r"
source = { kind = "timestamped", path = "b.nt" }
"""
GOOD = "id,t,v\na,1,5\nb,2.5,6\n"
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.toml").write_text(MAPPING)
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "b.nt").write_text("<http://ex/a> <http://ex/p> <http://ex/b> . 7\n")
    return tmp_path


def test_check_tells_of_each_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--check", str(folder / "run.toml")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{folder / 'run.toml'}: 0 [[stored]], 2 [[stream]], 0 [[query]], 0 [[ask]]",
        "stream http://ex/s",
        "  a.csv: 2 records, from 1970-01-01T00:00:01.000Z to 1970-01-01T00:00:02.500Z; the first 2 give 2 triples",
        "stream http://ex/r",
        "  b.nt: 1 record, from 1970-01-01T00:00:00.007Z to 1970-01-01T00:00:00.007Z; the first 1 give 1 triple",
        "ready to run",
    ]


def test_check_has_the_warnings_of_the_queries(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "REGISTER QUERY q AS SELECT ?x (AVG(?v) AS ?m) FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] {} GROUP BY ?x"
    (folder / "run.toml").write_text(
        RUN + f'[[query]]\nname = "q"\ntext = "{query.replace("{}", "{ ?x <http://ex/v> ?v }")}"\n'
    )
    assert main(["run", "--check", str(folder / "run.toml")]) == 0
    warning, last = capsys.readouterr().out.splitlines()[-2:]
    assert warning.startswith("query q: warning: line 10, column 81: AVG(?v) counts equal readings once: a window is")
    assert last == "ready to run"


def test_check_ends_with_1_if_more_than_a_tenth_is_bad(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.csv").write_text(GOOD + "c,3,many\n")
    assert main(["run", "--check", str(folder / "run.toml")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == f"    {folder / 'a.csv'}, line 4, column 5: expected xsd:integer in v, found 'many': c,3,many"
    assert lines[-1] == "not ready: see above"
    (folder / "a.csv").write_text("id,t,v\n" + "".join(f"{row},{row},1\n" for row in range(20)) + "c,99,many\n")
    assert main(["run", "--check", str(folder / "run.toml")]) == 0
    assert "line 22, column 6: expected xsd:integer in v, found 'many'" in capsys.readouterr().out


def test_check_tells_what_makes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.csv").write_text("id,t,v\na,1,\nb,2,\n")
    assert main(["run", "--check", str(folder / "run.toml")]) == 1
    out = capsys.readouterr().out
    assert "    no triple at all: see the conditions of the mapping, and which cells are empty\n" in out
    assert "    no record has a value at v\n" in out


def test_check_reads_the_head_of_a_large_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wukongs.adapters.check._HEAD_BYTES", 40)
    (folder / "a.csv").write_text("id,t,v\n" + "".join(f"{row},{row},1\n" for row in range(50)))
    assert main(["run", "--check", str(folder / "run.toml")]) == 0
    assert (
        "  a.csv: over 5 records, from 1970-01-01T00:00:00.000Z; the first 5 give 5 triples\n"
        in capsys.readouterr().out
    )


def test_the_size_of_a_packed_file_is_that_of_what_it_holds(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.adapters.check._HEAD_BYTES", 1000)
    packed = gzip.compress(("id,t,v\n" + "a,1,5\n" * 1000).encode())
    assert len(packed) < 1000
    (folder / "a.csv.gz").write_bytes(packed)
    (folder / "run.toml").write_text(RUN.replace("a.csv", "a.csv.gz"))
    assert main(["run", "--check", str(folder / "run.toml")]) == 0
    assert "  a.csv.gz: over 165 records, from " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RUN.replace("m.toml", "n.toml"), "line 4, stream[0].source.mapping: expected a file, found "),
        (RUN.replace("csv", "csw"), "line 4, stream[0].source.kind: expected one of "),
    ],
)
def test_check_names_the_fault_of_the_file(
    folder: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text(text)
    assert main(["run", "--check", str(folder / "run.toml")]) == 2
    assert message in capsys.readouterr().err


def test_check_names_a_column_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.csv").write_text("id,t,value_\n1,1,1\n")
    (folder / "m.toml").write_text(MAPPING.replace("{v}", "{value}"))
    assert main(["run", "--check", str(folder / "run.toml")]) == 2
    err = capsys.readouterr().err
    assert "m.toml: expected a column 'value' in" in err
    assert err.endswith("found id, t, value_. Did you mean 'value_'?\n")


def test_map_prints_what_timestamped_reads(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", str(folder / "run.toml")]) == 0
    out = capsys.readouterr().out
    assert out == (
        f'<http://ex/a> <http://ex/v> "5"{INTEGER} . 1000\n<http://ex/b> <http://ex/v> "6"{INTEGER} . 2500\n'
    )
    (tmp_path / "again.nt").write_text(out)
    source, index = prepare_timestamped(str(tmp_path / "again.nt"), "suffix", tmp_path)
    rows = source.read(index.range(0, len(index)), b"s", 62)
    assert rows.encoded.timestamps.tolist() == [1000, 2500]


def test_map_of_a_mapping_and_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "d.txt").write_text('{"id": "x", "t": 1, "v": 2}\n{"id": "y", "t": 2, "v": "no"}\n')
    (folder / "m.toml").write_text(MAPPING.replace("{v}", "{v}{unit}").replace('datatype = "xsd:integer"', ""))
    arguments = ["map", str(folder / "m.toml"), str(folder / "d.txt"), "--kind", "jsonl", "--with", "unit= EUR"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[0] == '<http://ex/x> <http://ex/v> "2 EUR" . 1000'
    assert main([*arguments, "--limit", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_map_says_on_standard_error_what_is_bad(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.csv").write_text("id,t,v\na,1,x\nb,2,y\n")
    assert main(["map", str(folder / "run.toml")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "2 records were set aside, 0 triples made"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["run.toml", "--stream", "http://ex/none"], 1, "expected a [[stream]] of the IRI http://ex/none, found"),
        (["run.toml", "--stream", "http://ex/r"], 1, "expected a stream whose source has a mapping"),
        (["m.toml", "b.nt"], 2, "expected one of .csv, .tsv, .jsonl, .ndjson, .json, .parquet at the end of"),
        (["run.toml", "--kind", "csv"], 2, "--kind, --with and --base are for DATA"),
        (["m.toml", "a.csv", "--stream", "x"], 2, "--stream names a stream of a run file"),
        (["run.toml", "--limit", "0"], 2, "expected an integer from 1 on, found '0'"),
        (["m.toml", "a.csv", "--with", "x"], 2, "expected NAME=TEXT, found 'x'"),
        (["no.toml"], 1, "no such file"),
        (["m.toml"], 2, "m.toml: expected a run file, found a mapping: name files of records behind it"),
    ],
)
def test_map_refuses_wrong_arguments(
    folder: Path,
    arguments: list[str],
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    assert main(["map", *arguments]) == status
    assert message in capsys.readouterr().err

"""`wukongs load --spark`: parts of files, sent by Spark's workers, make the same graph as one load."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clusters import PATIENT, cluster
from tests.faces import listening, served_node
from tests.unit.adapters.receiver import RecordingNode
from wukongs import Engine
from wukongs.adapters.sink import Access
from wukongs.adapters.spark.load import LoadTarget, PartLoaded, load_part, parts_of
from wukongs.cli import main
from wukongs.errors import DataError
from wukongs.remote.service import Service
from wukongs.settings import Settings

COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as found:
        yield found


@pytest.fixture
def address(engine: Engine) -> Iterator[str]:
    service = Service(engine, Settings())
    try:
        with listening(service.handlers, RecordingNode()) as found:
            yield found
    finally:
        service.close()


def _write(path: Path, count: int) -> list[str]:
    """Lines of all lengths, with blank nodes that come again, comments and a last line without an end."""
    random.seed(5)
    lines = [f'_:b{row % 7} <http://ex/p> "{"x" * random.randrange(60)}{row}" .' for row in range(count)]
    path.write_text("\n".join([*lines[:10], "# a comment", "", *lines[10:]]), "utf-8")
    return lines


@pytest.mark.parametrize("part_bytes", [1, 7, 64, 1000, 10**6])
def test_parts_tile_a_file_at_line_ends(part_bytes: int, tmp_path: Path) -> None:
    _write(tmp_path / "a.nt", 50)
    data = (tmp_path / "a.nt").read_bytes()
    parts = parts_of([str(tmp_path / "a.nt")], None, part_bytes)
    pieces = [data[part.first : part.end] for part in parts]
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])
    assert len({part.scope for part in parts}) == 1
    if part_bytes == 1:
        assert len(pieces) == len(data.splitlines())


def test_other_formats_are_one_part_and_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("a.ttl", "b.nt.gz", "c.rdf"):
        (tmp_path / name).write_bytes(b"x" * 100)
    parts = parts_of([str(tmp_path / name) for name in ("a.ttl", "b.nt.gz", "c.rdf")], None, 10)
    assert [(part.first, part.end) for part in parts] == [(0, 100)] * 3
    assert len(parts_of([str(tmp_path / "a.ttl")], "nt", 10)) == 1  # no line end in it
    with pytest.raises(DataError, match=r"none\.nt: cannot be read"):
        parts_of([str(tmp_path / "none.nt")], None)


def test_parts_of_one_file_share_their_blank_nodes(engine: Engine, address: str, tmp_path: Path) -> None:
    lines = _write(tmp_path / "a.nt", 60)
    target = LoadTarget(Access((address,)))
    parts = parts_of([str(tmp_path / "a.nt")], None, 500)
    assert len(parts) > 3
    loaded = [load_part(number, part, target) for number, part in enumerate(parts)]
    again = load_part(0, parts[0], target)  # a task that Spark runs again
    assert [one.malformed_count for one in [*loaded, again]] == [0] * (len(parts) + 1)
    rows = engine.query("SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT ?s) AS ?nodes) WHERE { ?s ?p ?o }").texts()
    assert [text.split('"')[1] for text in rows[0] if text] == [str(len(set(lines))), "7"]


def test_malformed_lines_and_refused_parts_are_told(address: str, tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text("<http://ex/a> <http://ex/p> <http://ex/b> .\nnonsense\n")
    (tmp_path / "b.ttl").write_text("this is no Turtle")
    target = LoadTarget(Access((address,)))
    first, second = (
        load_part(0, part, target) for part in parts_of([str(tmp_path / name) for name in ("a.nt", "b.ttl")], None)
    )
    assert isinstance(first, PartLoaded)
    assert (first.malformed_count, first.malformed[0][1].line, first.refused) == (1, 2, None)
    assert second.refused is not None
    assert "b.ttl" in second.refused
    with pytest.raises(DataError):
        load_part(0, parts_of([str(tmp_path / "a.nt")], None)[0], LoadTarget(Access((address,)), strict=True))


def test_spark_needs_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.nt").write_text("")
    assert main(["load", "--spark", "local[2]", "--data-dir", str(tmp_path / "db"), str(tmp_path / "a.nt")]) == 2
    assert "--spark loads into running nodes: give --server, too" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.slow
def test_a_cluster_is_loaded_through_local_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _write(tmp_path / "a.nt", 2000)
    (tmp_path / "b.ttl").write_text("<http://ex/x> <http://ex/p> <http://ex/y> .")
    (tmp_path / "c.nt").write_text("nonsense\n")
    with cluster(2, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        addresses = [stack.enter_context(served_node(node, Settings())) for node in nodes]
        files = [str(tmp_path / name) for name in ("a.nt", "b.ttl", "c.nt")]
        assert main(["load", "--server", ",".join(addresses), "--spark", "local[2]", *files]) == 3
        (row,) = nodes[0].engine.query(COUNT).texts()
    assert str(row[0]).split('"')[1] == str(len(set(lines)) + 1)
    out = capsys.readouterr().out
    assert out.startswith("files: 3 in 3 parts, 0 parts refused\nmalformed lines: 1 set aside, kept nowhere")

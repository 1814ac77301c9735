"""`wukongs load` and `wukongs query` on a data folder that an engine has used."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, names, register_text, subjects, windows
from tests.unit.conftest import Ran
from wukongs.cli.engine_load import EngineLoad

LINE = b"<http://ex/loaded> <http://ex/p> <http://ex/o> .\n"
SUBJECTS = "SELECT ?s WHERE { ?s ?p ?o } ORDER BY ?s"
GRAPHS = "SELECT ?g ?s WHERE { GRAPH ?g { ?s ?p ?o } }"
TUMBLING = "RANGE 100ms STEP 100ms"


def used(folder: Path, is_killed: bool) -> str:
    """A folder in which an engine has loaded, pushed and fired, with two windows unread and a tuple that waits."""
    engine = wukongs.Engine(folder / "db")
    engine.load(io.BytesIO(LINE), format="nt")
    stream = engine.stream(A, batch_ms=100, timing=[EX + "seen"], history_ms=0)
    engine.register(register_text(TUMBLING))
    stream.push([at("a", 50), at("b", 150, "seen"), at("c", 250)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    if is_killed:
        shutil.copytree(folder / "db", folder / "killed")
    engine.close()
    return str(folder / ("killed" if is_killed else "db"))


def asked(ran: Ran, folder: str, query: str) -> list[str]:
    status, out, err = ran("query", "--data-dir", folder, "--format", "csv", query)
    assert status == 0, err
    return [line.replace(EX, "") for line in out.splitlines()[1:]]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_file_is_added_and_streams_and_queries_go_on(ran: Ran, tmp_path: Path, is_killed: bool) -> None:
    folder = used(tmp_path, is_killed)
    before = sorted((path.name, path.stat().st_size) for path in Path(folder).rglob("*"))
    assert asked(ran, folder, SUBJECTS) == ["a", "loaded"]
    assert sorted((path.name, path.stat().st_size) for path in Path(folder).rglob("*")) == before
    file = tmp_path / "more.nt"
    file.write_text("<http://ex/more> <http://ex/p> _:b .\nno triple\n")
    status, out, _ = ran("load", "--data-dir", folder, "--graph", "http://g/one", str(file))
    assert (status, "1 loaded" in out, "1 read, 1 new" in out, "1 set aside" in out) == (3, True, True, True)
    assert asked(ran, folder, GRAPHS) == ["http://g/one,more"]
    assert asked(ran, folder, SUBJECTS) == ["a", "loaded"]
    status, out, _ = ran("load", "--data-dir", folder, "--graph", "http://g/one", str(file))
    assert (status, "1 skipped" in out, "; 3 in all" in out) == (0, True, True)
    with wukongs.Engine(folder) as engine:
        assert (subjects(engine), engine.graph_names()) == (["a", "loaded"], ["http://g/one"])
        query = engine.register(register_text(TUMBLING))
        stream = engine.stream(A, batch_ms=100, timing=[EX + "seen"], history_ms=0)
        stream.advance(300)
        engine.settle(timeout_s=60)
        assert windows(query) == {100: ["a"], 200: ["b"], 300: ["c"]}
        assert names(engine.query("SELECT ?s { GRAPH ?g { ?s ?p ?o } }")) == ["more"]
        assert subjects(engine) == ["a", "c", "loaded"]


def test_a_query_over_files_and_such_a_folder_writes_nothing_there(ran: Ran, tmp_path: Path) -> None:
    folder = used(tmp_path, is_killed=True)
    file = tmp_path / "beside.nt"
    file.write_text("<http://ex/beside> <http://ex/p> <http://ex/o> .\n")
    status, out, _ = ran("query", "--data-dir", folder, "--data", str(file), "--format", "csv", SUBJECTS)
    assert (status, out.replace(EX, "").split()) == (0, ["s", "a", "beside", "loaded"])
    assert asked(ran, folder, SUBJECTS) == ["a", "loaded"]


def test_a_file_that_is_not_read_to_its_end_adds_nothing(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = used(tmp_path, is_killed=False)
    file = tmp_path / "more.nt"
    file.write_text("<http://ex/more> <http://ex/p> <http://ex/o> .\nno triple\n")
    status, _, err = ran("load", "--data-dir", folder, "--strict", str(file))
    assert (status, "more.nt, line 2" in err) == (1, True)
    with EngineLoad(Path(folder), wukongs.Settings()) as load:
        assert not load.load(file, on_run=lambda *_: True).is_done
        assert load.known(file, None) is None
    assert asked(ran, folder, SUBJECTS) == ["a", "loaded"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINE.replace(b"loaded", b"piped"))))
    assert ran("load", "--data-dir", folder, "-")[0] == 0
    assert asked(ran, folder, SUBJECTS) == ["a", "loaded", "piped"]

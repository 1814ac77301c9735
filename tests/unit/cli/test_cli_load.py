"""`wukongs load`: what it loads, skips and refuses; how it goes on after an interruption."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.unit.conftest import Ran
from wukongs.cli.load import find_files
from wukongs.cli.progress import short_bytes
from wukongs.durable import folder_load
from wukongs.errors import DataError
from wukongs.store.bulk import BulkPlan

COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
ROWS = "SELECT * WHERE { ?s ?p ?o } ORDER BY ?s ?p ?o"


def write(path: Path, numbers: range, more: str = "") -> str:
    path.write_text("".join(f"<e:s{n}> <e:p> _:b{n % 7} .\n" for n in numbers) + more)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "db")


@pytest.fixture
def tiny_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BulkPlan, "of", staticmethod(lambda bytes_max, workers=0: BulkPlan(2, 64, 4)))


def count(ran: Ran, folder: str) -> int:
    status, out, _ = ran("query", "--data-dir", folder, "--format", "csv", COUNT)
    assert status == 0
    return int(out.splitlines()[1])


def test_files_are_loaded_and_asked(ran: Ran, folder: str, data: str, more: str) -> None:
    status, out, err = ran("load", "--data-dir", folder, data, more)
    assert (status, err) == (0, "")
    assert out.splitlines()[:3] == [
        "files: 2 loaded, 0 skipped, 0 refused",
        "triples: 4 read, 4 new, 0 duplicates; 4 in all",
        "malformed lines: 0 set aside",
    ]
    assert count(ran, folder) == 4
    # Both together, and nothing of it is written.
    status, out, _ = ran("query", "--data-dir", folder, "--data", more, "--format", "csv", COUNT)
    assert (status, out.split()) == (0, ["n", "4"])


def test_what_was_loaded_is_skipped_until_it_changes(ran: Ran, folder: str, tmp_path: Path) -> None:
    file = write(tmp_path / "x.nt", range(10))
    assert ran("load", "--data-dir", folder, file)[0] == 0
    out = ran("load", "--data-dir", folder, file)[1]
    assert "files: 0 loaded, 1 skipped" in out
    assert f"skipped {file}: loaded before; --again" in out
    # Its blank nodes are others each time that it is loaded as a whole.
    assert "triples: 10 read, 10 new, 0 duplicates; 20 in all" in ran("load", "--data-dir", folder, "--again", file)[1]
    write(tmp_path / "x.nt", range(11))
    assert "triples: 11 read, 11 new" in ran("load", "--data-dir", folder, file)[1]
    assert "triples: 11 read, 11 new" in ran("load", "--data-dir", folder, file, "--graph", "http://ex/g")[1]
    out = ran("query", "--data-dir", folder, "--format", "csv", "SELECT DISTINCT ?g WHERE { GRAPH ?g { ?s ?p ?o } }")[1]
    assert out.split() == ["g", "http://ex/g"]


def test_malformed_lines_are_set_aside_and_written(ran: Ran, folder: str, tmp_path: Path) -> None:
    file = write(tmp_path / "x.nt", range(3), "oops\n<e:a> <e:p> <e:b> .\n\n<e:a> nothing\n")
    rejects = tmp_path / "bad.nt"
    status, out, err = ran("load", "--data-dir", folder, file, "--rejects", str(rejects))
    assert status == 3
    assert f"malformed lines: 2 set aside, kept in {rejects}\n" in out
    assert err.startswith(f"wukongs: malformed lines: 2 set aside, kept in {rejects}. All others are loaded.")
    assert f"  {file}, line 4, column 1: expected a subject" in out
    assert rejects.read_text().splitlines()[1::2] == ["oops", "<e:a> nothing"]
    assert rejects.read_text().startswith(f"# {file}, line 4, column 1: ")
    assert count(ran, folder) == 4


def test_malformed_lines_may_be_allowed(ran: Ran, folder: str, tmp_path: Path) -> None:
    """The lines are told all the same. A file that is refused counts for more."""
    file = write(tmp_path / "x.nt", range(3), "oops\n")
    (tmp_path / "bad.ttl").write_text("oops")
    status, out, err = ran("load", "--data-dir", folder, file)
    assert (status, "--allow-malformed" in err) == (3, True)
    told = "malformed lines: 1 set aside, kept nowhere (--rejects FILE keeps them)\n"
    assert told in out
    status, out, err = ran("load", "--data-dir", folder, "--again", "--allow-malformed", file)
    assert (status, told in out, err) == (0, True, "")
    assert ran("load", "--data-dir", folder, "--again", file, str(tmp_path / "bad.ttl"))[0] == 1
    assert ran("load", "--data-dir", folder, "--strict", "--allow-malformed", file)[0] == 2


@pytest.mark.parametrize(
    "command",
    [
        ("load", "--data-dir", "FOLDER", "FILE"),
        ("update", "--data-dir", "FOLDER", "CLEAR ALL"),
        ("push", "--data-dir", "FOLDER", "--stream", "http://ex/s", "--format", "timestamped", "FILE"),
        ("serve", "--data-dir", "FOLDER", "--port", "0"),
    ],
)
def test_a_folder_with_other_files_is_left_alone(ran: Ran, tmp_path: Path, command: tuple[str, ...]) -> None:
    foreign, file = tmp_path / "thesis", write(tmp_path / "x.nt", range(1))
    foreign.mkdir()
    for name in ("chapter1.tex", "chapter2.tex", ".gitignore"):
        (foreign / name).write_text("x")
    given = [{"FOLDER": str(foreign), "FILE": file}.get(word, word) for word in command]
    status, out, err = ran(*given)
    assert (status, out) == (1, "")
    assert err.startswith(
        f"wukongs: {foreign}: is no data folder, and holds chapter1.tex and 1 more: nothing was written"
    )
    assert sorted(path.name for path in foreign.iterdir()) == [".gitignore", "chapter1.tex", "chapter2.tex"]


def test_a_data_folder_may_have_other_files_and_a_new_one_hidden_files(ran: Ran, tmp_path: Path) -> None:
    """So may one whose first load was killed: then there is nothing but its lock."""
    file = write(tmp_path / "x.nt", range(1))
    for name in (".gitignore", "lost+found", "LOCK"):
        folder = tmp_path / f"with{name}"
        folder.mkdir()
        (folder / name).touch()
        assert ran("load", "--data-dir", str(folder), file)[0] == 0
        (folder / "notes.txt").touch()
        assert ran("load", "--data-dir", str(folder), "--again", file)[0] == 0


def test_strict_stops_and_keeps_what_came_before(ran: Ran, folder: str, tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.nt", range(3)), write(tmp_path / "b.nt", range(3), "oops\n")
    status, out, err = ran("load", "--data-dir", folder, "--strict", good, bad)
    assert (status, out) == (1, "")
    assert f"{bad}, line 4, column 1" in err
    assert count(ran, folder) == 3


def test_a_file_that_is_refused_does_not_stop_the_others(ran: Ran, folder: str, tmp_path: Path) -> None:
    (tmp_path / "bad.ttl").write_text("<e:a> <e:p> <e:b> .\n<e:a> <e:p> oops .")
    (tmp_path / "cut.nt.gz").write_bytes(b"\x1f\x8b\x08\x00")
    good = write(tmp_path / "good.nt", range(3))
    status, out, _ = ran("load", "--data-dir", folder, str(tmp_path / "bad.ttl"), str(tmp_path / "cut.nt.gz"), good)
    assert status == 1
    assert "files: 1 loaded, 0 skipped, 2 refused" in out
    assert f"refused {tmp_path / 'bad.ttl'}" in out
    assert count(ran, folder) == 3


def test_standard_input(ran: Ran, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b"<e:a> <e:p> <e:b> .\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert ran("load", "--data-dir", folder, "-")[0] == 0
    assert count(ran, folder) == 1


def test_globs_and_folders(tmp_path: Path) -> None:
    files = [write(tmp_path / name, range(1)) for name in ("a.nt", "b.nt", "[c].nt")]
    assert find_files([str(tmp_path / "[ab].nt"), files[1]]) == files[:2]
    assert find_files([files[2], "-"]) == [files[2], "-"]
    with pytest.raises(DataError, match="no file matches"):
        find_files([str(tmp_path / "*.nq")])
    with pytest.raises(DataError, match=r"is a directory: name the files in it, as '.*/\*\.nt'"):
        find_files([str(tmp_path)])
    with pytest.raises(DataError, match="no such file"):
        find_files([str(tmp_path / "z.nt")])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["x.nt"], "no --data-dir and no --server"),
        (["--data-dir", "db"], "required: FILE"),
        (["--data-dir", "db", "x.nt", "--workers", "0"], "expected an integer from 1 to 256"),
        (["--data-dir", "db", "x.nt", "--memory", "3x"], "expected bytes, at least 1M"),
        (["--data-dir", "db", "x.nt", "--memory", "2K"], "expected bytes, at least 1M"),
    ],
)
def test_wrong_usage(ran: Ran, arguments: list[str], expected: str) -> None:
    status, _, err = ran("load", *arguments)
    assert status == 2
    assert expected in err


def test_a_folder_in_use_and_one_with_a_foreign_log_are_refused(ran: Ran, folder: str, tmp_path: Path) -> None:
    file = write(tmp_path / "x.nt", range(3))
    with folder_load.FolderLoad(Path(folder), BulkPlan.of(1 << 20), 62):
        status, _, err = ran("load", "--data-dir", folder, file)
        assert (status, "in use by" in err) == (1, True)
    log = Path(folder) / "log"
    log.mkdir()
    (log / f"{1:020d}.log").write_bytes(b"no record of ours")
    for command in (("load", "--data-dir", folder, file), ("query", "--data-dir", folder, COUNT)):
        status, _, err = ran(*command)
        assert (status, "expected a log segment" in err) == (1, True)


def test_a_folder_that_is_not_there(ran: Ran, folder: str) -> None:
    status, _, err = ran("query", "--data-dir", folder, COUNT)
    assert (status, err) == (1, f"wukongs: {folder}: no such data folder: `wukongs load --data-dir` makes one\n")


@pytest.mark.usefixtures("tiny_runs")
@pytest.mark.parametrize("commit_seconds", [0.0, 1e9])
def test_an_interrupted_load_goes_on(
    ran: Ran, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_seconds: float
) -> None:
    file = write(tmp_path / "x.nt", range(40), "oops\n")
    assert ran("load", "--data-dir", str(tmp_path / "whole"), file)[0] == 3
    expected = ran("query", "--data-dir", str(tmp_path / "whole"), "--format", "csv", ROWS)[1]
    monkeypatch.setattr(folder_load, "COMMIT_SECONDS", commit_seconds)
    seal, sealed = folder_load.FolderLoad._seal, 0

    def interrupted(*arguments: object) -> None:
        nonlocal sealed
        sealed += 1
        if sealed == 3:
            os.kill(os.getpid(), signal.SIGINT)
        seal(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(folder_load.FolderLoad, "_seal", interrupted)
        status, out, err = ran("load", "--data-dir", folder, file)
    assert status == 130
    assert "the same command goes on from there" in err
    assert 0 < count(ran, folder) < 40
    status, out, _ = ran("load", "--data-dir", folder, file)
    assert status == 3
    assert f"went on with {file}: from line " in out
    assert "malformed lines: 1 set aside" in out
    # The same blank nodes, as if it had never been interrupted.
    assert ran("query", "--data-dir", folder, "--format", "csv", ROWS)[1] == expected
    assert "1 skipped" in ran("load", "--data-dir", folder, file)[1]


@pytest.mark.usefixtures("tiny_runs")
def test_a_load_that_died_goes_on_behind_its_last_commit(
    ran: Ran, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "x.nt", range(40))
    monkeypatch.setattr(folder_load, "COMMIT_SECONDS", 0.0)
    seal, sealed = folder_load.FolderLoad._seal, 0

    def dies(*arguments: object) -> None:
        nonlocal sealed
        sealed += 1
        if sealed == 5:
            raise KeyboardInterrupt
        seal(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(folder_load.FolderLoad, "_seal", dies)
        assert ran("load", "--data-dir", folder, file)[0] == 130
    assert 0 < count(ran, folder) < 40
    assert f"went on with {file}" in ran("load", "--data-dir", folder, file)[1]
    assert count(ran, folder) == 40


@pytest.mark.usefixtures("tiny_runs")
def test_a_file_without_lines_is_all_or_nothing(
    ran: Ran, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_load, "COMMIT_SECONDS", 0.0)
    path = tmp_path / "x.ttl"
    path.write_text("".join(f"<e:s{n}> <e:p> <e:o> .\n" for n in range(40)) + "oops")
    assert ran("load", "--data-dir", folder, str(path))[0] == 1
    assert count(ran, folder) == 0


def test_progress_without_a_terminal(ran: Ran, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.cli.progress.LINE_SECONDS", 0.0)
    file = write(tmp_path / "x.nt", range(10))
    _, _, err = ran("load", "--data-dir", folder, file)
    assert err.startswith(f"{file}: 0.")
    assert "M triples/s, 100 % of " in err


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e12, "2.5 TB")])
def test_sizes_are_short(size: float, text: str) -> None:
    assert short_bytes(size) == text


def test_a_pipe_is_read_once(ran: Ran, folder: str, tmp_path: Path) -> None:
    pipe = tmp_path / "x.nt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("<e:a> <e:p> <e:b> .\n",))
    writer.start()
    status, out, _ = ran("load", "--data-dir", folder, str(pipe))
    writer.join()
    assert (status, "triples: 1 read, 1 new" in out) == (0, True)


def test_a_graph_that_is_no_iri_is_wrong_usage(ran: Ran, folder: str, data: str) -> None:
    status, out, err = ran("load", "--data-dir", folder, "--graph", "a b", data)
    assert (status, out) == (2, "")
    assert "argument --graph: expected an IRI, without spaces" in err
    assert not Path(folder).exists()


def test_rejects_do_not_empty_a_file_that_is_loaded(ran: Ran, folder: str, tmp_path: Path) -> None:
    file, link = tmp_path / "a.nt", tmp_path / "b.nt"
    write(file, range(2), "oops\n")
    link.symlink_to(file)
    held = file.read_bytes()
    status, out, err = ran("load", "--data-dir", folder, "--rejects", str(link), str(file))
    assert (status, out, file.read_bytes()) == (2, "", held)
    assert f"--rejects {link} is one of the files to load, and would be emptied: name another file\n" in err


def test_rejects_that_cannot_be_written(ran: Ran, folder: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.nt"
    file.write_text("nonsense\n")
    status, out, err = ran("load", "--data-dir", folder, "--rejects", str(tmp_path), str(file))
    expected = f"wukongs: cannot write the rejects to {tmp_path}: Is a directory. "
    assert (status, out, err) == (1, "", f"{expected}Give --rejects a file that can be written\n")
    if os.path.exists("/dev/full"):
        status, out, err = ran("load", "--data-dir", folder, "--rejects", "/dev/full", str(file))
        assert (status, out) == (1, "")
        assert err.startswith("wukongs: cannot write the rejects to /dev/full: No space left on device. ")


def test_contexts_of_json_ld_are_files(ran: Ran, folder: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonld").write_text('{"@context": {"p": "http://e/p"}}')
    (tmp_path / "d.jsonld").write_text('{"@context": "http://e/c", "@id": "http://e/a", "p": "x"}')
    document, context = str(tmp_path / "d.jsonld"), f"http://e/c={tmp_path / 'c.jsonld'}"
    status, out, _ = ran("load", "--data-dir", folder, document)
    assert (status, "the @context <http://e/c> is a remote document, and nothing is fetched" in out) == (1, True)
    assert ran("load", "--data-dir", folder, "--context", context, document)[0] == 0
    assert count(ran, folder) == 1
    status, out, _ = ran("query", "--data", document, "--context", context, "--format", "csv", COUNT)
    assert (status, out.split()) == (0, ["n", "1"])
    status, _, err = ran("query", "--data", document, "--context", "http://e/c", COUNT)
    assert (status, "expected IRI=FILE, found 'http://e/c'" in err) == (2, True)

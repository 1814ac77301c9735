"""Updates in a data folder: what was returned for is there again, at its SN; what was not committed is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, rows
from tests.inside import core_of

PREFIX = "PREFIX : <http://ex/> "
ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


def quads(engine: wukongs.Engine) -> list[str]:
    return [" ".join(row) for row in rows(engine.query(ALL))]


def crashed(engine: wukongs.Engine, folder: Path, name: str = "copy") -> Path:
    """A copy of the folder as the process has written it."""
    copy = folder.with_name(name)
    shutil.copytree(folder, copy)
    engine.close()
    return copy


REQUESTS = [
    "INSERT DATA { :a :p 1, 'some text of which no id could hold the letters' . GRAPH :g { :a :p _:x . _:x :q :b } }",
    "DELETE { ?s :p 1 } INSERT { ?s :n [] GRAPH :made { ?s :n 2 } } WHERE { ?s :p 1 }",
    "COPY :g TO :h ; INSERT DATA { GRAPH :g { :late :p 3 } } ; DELETE WHERE { GRAPH :h { ?s :q :b } }",
    "CLEAR GRAPH :g ; INSERT DATA { GRAPH :g { :a :p 4 } } ; MOVE :made TO DEFAULT",
    "CLEAR DEFAULT",
    "DROP ALL ; INSERT DATA { :end :p 5 }",
]


@pytest.mark.parametrize("hash_bits", [62, 4])
@pytest.mark.parametrize("checkpoint_after", [None, 0, 2, 4])
def test_updates_survive(tmp_path: Path, hash_bits: int, checkpoint_after: int | None) -> None:
    """With four bits nearly every term has an exception, and the log must not depend on the ids that were given."""
    settings = wukongs.Settings(hash_bits=hash_bits)
    folder = tmp_path / "db"
    engine = wukongs.Engine(folder, settings=settings)
    for number, request in enumerate(REQUESTS):
        sn = engine.update(PREFIX + request)
        before = quads(engine)
        if number == checkpoint_after:
            engine.checkpoint()
        folder = crashed(engine, folder, f"db{number}")
        engine = wukongs.Engine(folder, settings=settings)
        assert (quads(engine), engine.stats()["sn"]) == (before, sn)
    assert before == [" end p 5"]
    assert engine.stats()["stored_triples"] == 1
    engine.close()
    with wukongs.Engine(folder, settings=settings) as engine:
        assert quads(engine) == before


def test_all_in_one_life(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "db") as engine, wukongs.Engine() as twin:
        for request in REQUESTS[:4]:
            assert engine.update(PREFIX + request) == twin.update(PREFIX + request)
        expected = quads(twin)
        copy = crashed(engine, tmp_path / "db")
    for folder in (copy, tmp_path / "db"):
        with wukongs.Engine(folder) as engine:
            assert quads(engine) == expected
            assert engine.update(PREFIX + REQUESTS[4]) == len(REQUESTS) - 1


def test_an_update_after_a_restart_makes_other_blank_nodes(tmp_path: Path) -> None:
    for lives in range(1, 4):
        with wukongs.Engine(tmp_path / "db") as engine:
            engine.update(PREFIX + "INSERT DATA { [] :p 1 } ; INSERT { [] :p ?o } WHERE { ?s :p ?o }")
            engine.checkpoint()
            nodes = {row[0] for row in rows(engine.query("SELECT ?s { ?s ?p ?o }"))}
        assert len(nodes) == 2 ** (lives + 1) - 2  # one more, and one for each that there is then


def test_a_request_that_fails_leaves_nothing(tmp_path: Path) -> None:
    engine = wukongs.Engine(tmp_path / "db")
    engine.update(PREFIX + "INSERT DATA { :a :p 1 }")
    with pytest.raises(wukongs.UpdateError):
        engine.update(PREFIX + "INSERT DATA { :b :p 2 } ; DROP GRAPH :none")
    with wukongs.Engine(crashed(engine, tmp_path / "db")) as engine:
        assert quads(engine) == [" a p 1"]


def test_tuples_without_their_record_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends after what goes and comes was logged, but before the record that commits it."""
    engine = wukongs.Engine(tmp_path / "db")
    engine.update(PREFIX + "INSERT DATA { :a :p 1 }")
    real = core_of(engine).journal.commit

    def dies(change: Any) -> int:
        core_of(engine).journal.wait()
        shutil.copytree(tmp_path / "db", tmp_path / "copy")
        return real(change)

    monkeypatch.setattr(core_of(engine).journal, "commit", dies)
    engine.update(PREFIX + "DELETE { ?s :p 1 } INSERT { ?s :p 2 } WHERE { ?s :p 1 }")
    with wukongs.Engine(tmp_path / "copy") as other:
        assert quads(other) == [" a p 1"]
        other.update(PREFIX + "INSERT DATA { :c :p 3 }")
        assert quads(other) == [" a p 1", " c p 3"]
    engine.close()
    with wukongs.Engine(tmp_path / "copy") as other:
        assert quads(other) == [" a p 1", " c p 3"]


def test_a_full_disk_refuses_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = wukongs.Engine(tmp_path / "db")
    engine.update(PREFIX + "INSERT DATA { :a :p 1 }")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(core_of(engine).journal.wal._disk, "write", full)  # type: ignore[attr-defined]
    with pytest.raises(wukongs.StorageError, match="No space left"):
        engine.update(PREFIX + "DELETE DATA { :a :p 1 }")
    assert quads(engine) == [" a p 1"]
    monkeypatch.undo()
    engine.close()
    with wukongs.Engine(tmp_path / "db") as engine:
        assert quads(engine) == [" a p 1"]


def test_updates_between_seals_and_loads(tmp_path: Path) -> None:
    """Deletions and what streams absorb come in the order of their SNs again."""
    (tmp_path / "x.nt").write_text("<http://ex/s1> <http://ex/p> <http://ex/o> .\n")
    engine = wukongs.Engine(tmp_path / "db")
    stream = engine.stream(A, batch_ms=100)
    for number, request in enumerate(("DELETE WHERE { ?s :p :o }", "DELETE DATA { :s2 :p :o }", "CLEAR DEFAULT"), 1):
        stream.push([at(f"s{number}", 100 * number)])
        stream.advance(100 * number)
        engine.settle(timeout_s=60)
        engine.load(tmp_path / "x.nt")
        engine.update(PREFIX + f"INSERT DATA {{ :kept{number} :q {number} }}")
        engine.update(PREFIX + request)
    stream.push([at("s1", 350)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    expected = quads(engine)
    assert expected == [" s1 p o"]
    with wukongs.Engine(crashed(engine, tmp_path / "db")) as engine:
        engine.settle(timeout_s=60)
        assert quads(engine) == expected


def test_backup_and_restore(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        for request in REQUESTS[:3]:
            engine.update(PREFIX + request)
        expected = quads(engine)
        engine.backup(tmp_path / "backup")
        engine.update(PREFIX + "DROP ALL")
    with wukongs.restore(tmp_path / "backup", tmp_path / "again") as engine:
        assert quads(engine) == expected


def test_a_cleared_graph_is_one_word_in_the_log(tmp_path: Path) -> None:
    """Not the tuples that go with it."""
    (tmp_path / "x.nt").write_text("".join(f"<http://ex/s{n}> <http://ex/p> <http://ex/o{n}> .\n" for n in range(5000)))
    with wukongs.Engine(tmp_path / "db") as engine:
        engine.load(tmp_path / "x.nt", graph="http://ex/g")
        before = engine.stats()["durability"]["log_bytes_written"]
        engine.update(PREFIX + "CLEAR GRAPH :g")
        assert engine.stats()["durability"]["log_bytes_written"] - before < 300
        assert engine.stats()["updates"]["deleted"] == 5000
        copy = crashed(engine, tmp_path / "db")
    with wukongs.Engine(copy) as engine:
        assert engine.stats()["stored_triples"] == 0


def test_one_small_update_is_one_sync(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        before = engine.stats()["durability"]["log_syncs"]
        engine.update(PREFIX + "DELETE { ?s :p 1 } INSERT { :a :p 2 } WHERE { OPTIONAL { ?s :p 1 } }")
        assert engine.stats()["durability"]["log_syncs"] == before + 1

"""Backups of a cluster: one snapshot, whatever goes on meanwhile, and restored into any number of nodes."""

from __future__ import annotations

import errno
import io
import random
import shutil
import threading
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster, cut_off
from tests.failing_disk import CountingDisk, FullDisk
from tests.fuzz import first_and_slow, slow
from tests.inside import core_of
from wukongs.durable import content
from wukongs.errors import CorruptionError, StorageError
from wukongs.settings import Settings
from wukongs.store.manifest import read_manifest

EX = "http://ex/"
GRAPHS = ("", f"<{EX}g0>", f"<{EX}g1>")
PLAIN = f"REGISTER QUERY plain AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}p> ?o }}"
READER = f"REGISTER QUERY reader AS SELECT ?s FROM STREAM <{EX}made> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}q> ?o }}"
MAKER = (
    f"REGISTER STREAM <{EX}made> AS CONSTRUCT {{ ?s <{EX}q> ?o }} "
    f"FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}p> ?o }}"
)
PAUSED = PLAIN.replace("plain", "paused")
GROUPED = f"REGISTER QUERY grouped AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
BINDINGS = [{"s": f"<{EX}a1>"}, {"s": f"<{EX}a2>"}]
END_S = 60.0

Quads = set[tuple[str, str, str, str]]


def contents(engine: Any) -> Quads:
    """Return all quads, as texts, with the labels of blank nodes as the engine has them."""
    found = {("", *row) for row in cells(engine.query("SELECT ?s ?p ?o { ?s ?p ?o }"))}
    return found | set(cells(engine.query("SELECT ?g ?s ?p ?o { GRAPH ?g { ?s ?p ?o } }")))


def cells(result: Any) -> list[Any]:
    """Return rows as terms of Turtle."""
    return [tuple(line.split("\t")) for line in result.serialize("tsv").splitlines()[1:]]


def nquads(rng: random.Random, count: int) -> bytes:
    """Random quads in three graphs, with blank nodes, short and long literals, and triple terms."""
    ends = [f"<{EX}n{n}>" for n in range(12)] + [f"_:b{n}" for n in range(6)]
    terms = [*ends, '"x"', '"7"^^<http://www.w3.org/2001/XMLSchema#integer>', '"a long literal that is hashed"@en']
    lines = []
    for _ in range(count):
        s, p, o = rng.choice(ends), f"<{EX}p{rng.randrange(4)}>", rng.choice(terms)
        if rng.random() < 0.1:
            o = f"<<( {rng.choice(ends)} <{EX}p0> {o} )>>"
        lines.append(f"{s} {p} {o} {rng.choice(GRAPHS)} .\n")
    return "".join(lines).encode()


def fill(engine: Any, rng: random.Random) -> Any:
    """Load, declare, register, push and update; return the stream."""
    engine.load(io.BytesIO(nquads(rng, 300)), format="nq")
    engine.load(io.BytesIO(nquads(rng, 50)), format="nq")
    stream = engine.stream(EX + "s", batch_ms=100, into=EX + "g0")
    idle = {"idle_timeout_ms": 3_600_000, "idle_advance": "wall"}
    engine.stream(EX + "t", timing=True, batch_ms=200, lateness_ms=300, on_late="count", **idle)
    engine.register(PLAIN, unread_bytes_max=12345)
    engine.register(MAKER)
    engine.register(READER)
    engine.register(GROUPED, bindings=BINDINGS)
    engine.register(PAUSED).pause()
    push(stream, 0, 20)
    engine.update(f"DELETE {{ ?s <{EX}p1> ?o }} INSERT {{ ?s <{EX}p9> [] }} WHERE {{ ?s <{EX}p1> ?o }}")
    engine.settle(END_S)
    return stream


def push(stream: Any, first: int, last: int) -> None:
    """Push a tuple each 100 ms, from number `first` to `last`, and go on to the end."""
    stream.push([(f"<{EX}a{n % 7}>", f"<{EX}p>", f"<{EX}b{n}>", n * 100 + 50) for n in range(first, last)])
    stream.advance(last * 100)


def windows(query: Any, count: int) -> list[tuple[int, list[str]]]:
    found = islice(query.results(timeout_s=END_S), count)
    return [(window.end_ms, sorted(cells(window))) for window in found]


def check_restored(engine: Any, stream: Any, others: list[Any], before: Quads) -> None:
    """Everything is there, at each node, and the queries fire for what is pushed from now on."""
    assert [contents(one) for one in others] == [before] * len(others)
    assert sorted(engine.streams()) == [EX + name for name in ("made", "s", "t")]
    queries = {query.name: query for query in engine.queries()}
    assert sorted(queries) == ["grouped", EX + "made", "paused", "plain", "reader"]
    assert queries["plain"].source.unread_bytes_max == 12345
    other = core_of(engine).streams[EX + "t"].options
    assert (other["timing"], other["lateness_ms"], other["on_late"]) == (True, 300, "count")
    assert (other["idle_timeout_ms"], other["idle_advance"]) == (3_600_000, "wall")
    push(stream, 100, 120)
    engine.settle(END_S)
    pairs = [(f"<{EX}a{n % 7}>", f"<{EX}b{n}>") for n in range(100, 120)]
    assert windows(queries["plain"], 2) == [(11_000, sorted(pairs[:10])), (12_000, sorted(pairs[10:]))]
    [(_, grouped), *_] = windows(queries["grouped"], 1)
    assert sorted(row[-1] for row in grouped) == sorted(o for s, o in pairs[:10] if s[-2] in "12")
    assert windows(queries["reader"], 1)[0] == (11_000, sorted((s,) for s, _ in pairs[:10]))
    queries["paused"].resume()
    push(stream, 120, 140)
    engine.settle(END_S)
    assert windows(queries["paused"], 1)[0][0] in (13_000, 14_000)
    pairs += [(f"<{EX}a{n % 7}>", f"<{EX}b{n}>") for n in range(120, 140)]
    pushed = {(f"<{EX}g0>", s, f"<{EX}p>", o) for s, o in pairs}
    assert [contents(one) for one in others] == [before | pushed] * len(others)


def check_new_blank_nodes(engine: Any) -> None:
    """Loads and updates make blank nodes that were not there, though their labels were those of other loads."""
    known = {term for quad in contents(engine) for term in quad if term.startswith("_:")}
    assert len(known) > 6
    for _ in range(3):
        engine.load(io.BytesIO(b"_:b0 <http://ex/fresh> _:b1 ."), format="nt")
        engine.update("INSERT { _:blank <http://ex/fresh> _:blank } WHERE {}")
    fresh = [term for row in cells(engine.query("SELECT ?s ?o { ?s <http://ex/fresh> ?o }")) for term in row]
    assert len(set(fresh)) == 9
    assert not known.intersection(fresh), "new blank nodes are those of the backup"


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Quads]:
    """A backup of a cluster, and its graph."""
    folder = tmp_path_factory.mktemp("backup") / "of" / "three"
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        fill(nodes[1].engine, random.Random(7))
        before = contents(nodes[2].engine)
        nodes[0].engine.backup(folder)
        assert contents(nodes[0].engine) == before
    assert len(before) > 200
    assert any("<<(" in o and "_:" in o for *_, o in before), "triple terms with blank nodes are missing"
    return folder, before


@pytest.mark.parametrize(("node_count", "replica_count"), [(3, 2), slow(2, 1), slow(5, 2)])
def test_it_is_restored_into_another_number_of_nodes(
    backup: tuple[Path, Quads], node_count: int, replica_count: int
) -> None:
    folder, before = backup
    with cluster(node_count, replica_count, silence_pulses_max=PATIENT) as nodes:
        engines = [node.engine for node in nodes]
        engines[-1].restore(folder)
        with pytest.raises(StorageError, match=r"not empty, but has \d+ stored triples, 3 streams, 5 queries"):
            engines[0].restore(folder)
        check_restored(engines[-1], nodes[-1].backend.declared(EX + "s"), engines, before)


@pytest.mark.parametrize("is_durable", [False, True])
def test_it_is_restored_into_an_engine_of_its_own(backup: tuple[Path, Quads], tmp_path: Path, is_durable: bool) -> None:
    folder, before = backup
    with wukongs.Engine(tmp_path / "db" if is_durable else None) as engine:
        engine.restore(folder)
        if is_durable:
            engine.close()
            engine = wukongs.Engine(tmp_path / "db")
        with engine:
            check_restored(engine, engine.stream(EX + "s", batch_ms=100, into=EX + "g0"), [engine], before)


def test_it_is_a_data_folder_of_an_engine(backup: tuple[Path, Quads], tmp_path: Path) -> None:
    folder, before = backup
    with wukongs.restore(folder, tmp_path / "db") as engine:
        check_restored(engine, engine.stream(EX + "s", batch_ms=100, into=EX + "g0"), [engine], before)
        check_new_blank_nodes(engine)


def test_an_engine_moves_into_a_cluster_and_back(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        fill(engine, random.Random(3))
        before = contents(engine)
        with cluster(2, 1, silence_pulses_max=PATIENT) as nodes, pytest.raises(StorageError, match="use"):
            nodes[0].engine.restore(tmp_path / "db")
    with wukongs.Engine() as engine:
        engine.restore(tmp_path / "db")
        assert contents(engine) == before
        check_new_blank_nodes(engine)
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        nodes[0].engine.restore(tmp_path / "db")
        assert contents(nodes[1].engine) == before
        check_new_blank_nodes(nodes[1].engine)
        nodes[1].engine.load(io.BytesIO(b"_:b0 <http://ex/new> _:b1 ."), format="nt")
        before = contents(nodes[1].engine)
        nodes[1].engine.backup(tmp_path / "back")
    with wukongs.Engine(tmp_path / "back") as engine:
        check_restored(engine, engine.stream(EX + "s", batch_ms=100, into=EX + "g0"), [engine], before)
        engine.update("DELETE WHERE { ?s <http://ex/fresh> ?o }")
        check_new_blank_nodes(engine)


@pytest.mark.parametrize(("node_count", "replica_count"), [(2, 2), slow(3, 1)])
def test_a_backup_is_the_graph_at_one_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node_count: int, replica_count: int
) -> None:
    """Updates and pushes go on at other nodes while it is made: it equals the graph at its snapshot."""
    monkeypatch.setattr(content, "ROWS_AT_A_TIME", 40)
    rng = random.Random(node_count)
    with cluster(node_count, replica_count, silence_pulses_max=PATIENT) as nodes:
        stream = fill(nodes[0].engine, rng)
        for node in nodes:
            node.engine.settle(END_S)
        done, changed = threading.Event(), threading.Event()

        def change() -> None:
            number = 200
            while not done.is_set():
                nodes[-1].engine.update(f"INSERT DATA {{ <{EX}new> <{EX}number> {number} }}")
                changed.set()
                push(stream, number, number + 10)
                number += 10

        changing = threading.Thread(target=change)
        changing.start()
        try:
            for number in range(3):
                if number == 2:
                    assert changed.wait(END_S), "nothing goes on meanwhile"
                nodes[number % node_count].engine.backup(tmp_path / f"backup{number}")
        finally:
            done.set()
            changing.join()
        # The graph grows only, in order: its state at an SN is told by which numbers are in it.
        nodes[0].engine.settle(END_S)
        after = contents(nodes[0].engine)
    for number in range(3):
        manifest = read_manifest(tmp_path / f"backup{number}")
        assert manifest is not None
        with wukongs.Engine(tmp_path / f"backup{number}") as engine:
            found = contents(engine)
            assert len(found) == manifest.about[content.BACKUP]["triples"]
        assert found <= after
        inserted = sorted(int(o.split('"')[1]) for _, s, _, o in found if s == f"<{EX}new>")
        assert inserted == list(range(200, 200 + 10 * len(inserted), 10)), "an earlier update is missing"
        pushed = sorted(int(o[len(EX) + 2 : -1]) for _, s, p, o in found if p == f"<{EX}p>" and o.startswith(f"<{EX}b"))
        whole = [*range(20), *range(200, 200 + len(pushed) - 20)]
        assert pushed == whole, "tuples of an earlier time are missing"
    assert inserted, "nothing went on meanwhile"


@pytest.mark.parametrize("late", first_and_slow([1, 0, 2]))
def test_a_node_that_is_asked_late_gives_the_same_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """An update and a push come between the choice of the snapshot and the answer of one node."""
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = fill(nodes[0].engine, random.Random(8))
        before = contents(nodes[0].engine)
        backups, is_asked, is_changed = nodes[late].backups, threading.Event(), threading.Event()
        open_now = backups._open

        def open_late(name: str, sn: int, shards: Any) -> None:
            is_asked.set()
            assert is_changed.wait(END_S)
            open_now(name, sn, shards)

        monkeypatch.setattr(backups, "_open", open_late)
        writing = threading.Thread(target=nodes[0].engine.backup, args=(tmp_path / "backup",))
        writing.start()
        assert is_asked.wait(END_S)
        nodes[1].engine.update(f"DELETE {{ ?s <{EX}p0> ?o }} INSERT {{ ?o <{EX}p7> ?s }} WHERE {{ ?s <{EX}p0> ?o }}")
        push(stream, 50, 90)
        nodes[2].engine.settle(END_S)
        is_changed.set()
        writing.join()
        assert contents(nodes[0].engine) != before
    with wukongs.Engine(tmp_path / "backup") as engine:
        assert contents(engine) == before


@pytest.mark.slow
def test_a_node_that_has_just_died_is_done_without(tmp_path: Path) -> None:
    with cluster(3, 2) as nodes:
        fill(nodes[0].engine, random.Random(5))
        before = contents(nodes[1].engine)
        nodes[2].close()
        nodes[0].engine.backup(tmp_path / "backup")
    with wukongs.Engine(tmp_path / "backup") as engine:
        assert contents(engine) == before


class NoRename(CountingDisk):
    """Has no room for the name of a folder."""

    def rename(self, old: Path, new: Path) -> None:
        if old.is_dir():
            raise OSError(errno.ENOSPC, "no room for a name")
        super().rename(old, new)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        fill(nodes[0].engine, random.Random(4))
        before = contents(nodes[1].engine)
        counting, full_count = CountingDisk(), 0
        nodes[0].backups.write(tmp_path / "whole", counting)
        steps = len(counting.steps)
        disks: list[CountingDisk] = [FullDisk(at) for at in {0, 1, *random.Random(4).sample(range(steps), 8)}]
        for number, disk in enumerate([*disks, NoRename()]):
            target = tmp_path / f"full{number}" / "backup"
            try:
                nodes[0].backups.write(target, disk)
            except StorageError:
                full_count += 1
            with wukongs.Engine(target) if target.exists() else nullcontext() as engine:
                assert engine is None or contents(engine) == before
            assert {path.name for path in target.parent.iterdir()} <= {"backup"}
        assert full_count > 5
        nodes[0].engine.backup(tmp_path / "again")
    for name in ("whole", "again"):
        with wukongs.Engine(tmp_path / name) as engine:
            assert contents(engine) == before


def test_where_it_cannot_be_written(backup: tuple[Path, Quads], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        for target in (backup[0], tmp_path / "file"):
            with pytest.raises(StorageError, match="expected a folder that is empty or not there"):
                nodes[0].engine.backup(target)
        with pytest.raises(StorageError, match="cannot write to"):
            nodes[0].engine.backup(tmp_path / "file" / "below")
        nodes[0].engine.backup(tmp_path / "empty")
    with wukongs.Engine(tmp_path / "empty") as engine:
        assert not contents(engine), "a cluster without a triple"


def test_what_cannot_be_restored(backup: tuple[Path, Quads], tmp_path: Path) -> None:
    """Nothing is in the cluster then, and a right backup can be restored still."""
    folder, before = backup
    (tmp_path / "other").mkdir()
    shortened = tmp_path / "shortened"
    shutil.copytree(folder, shortened)
    largest = max(shortened.glob("*.arrow"), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.truncate(largest.stat().st_size - 8)
    unnamed = tmp_path / "unnamed"
    shutil.copytree(folder, unnamed)
    (unnamed / "MANIFEST").unlink()
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path / "nodes") as nodes:
        engine = nodes[1].engine
        for path, error, said in (
            (tmp_path / "none", StorageError, "no such folder"),
            (tmp_path / "other", StorageError, "neither MANIFEST nor log in it"),
            (tmp_path / "nodes" / "node0", StorageError, "use|node of a cluster"),
            (shortened, CorruptionError, largest.name),
            (unnamed, CorruptionError, "MANIFEST"),
        ):
            with pytest.raises(error, match=said):
                engine.restore(path)
        assert not contents(engine)
        assert not engine.streams()
        engine.restore(folder)
        assert contents(nodes[0].engine) == before
    other = Settings(hash_bits=40)
    with cluster(2, 1, other, silence_pulses_max=PATIENT) as nodes, pytest.raises(StorageError, match="hash_bits"):
        nodes[0].engine.restore(folder)


def test_texts_of_one_hash_keep_their_ids_apart(tmp_path: Path) -> None:
    """With 16 bits of hash, many texts want the same id."""
    settings = Settings(hash_bits=16)
    text = "".join(f"<{EX}s{n}> <{EX}p> <{EX}o{n}> .\n" for n in range(1500)).encode()
    with cluster(3, 1, settings, silence_pulses_max=PATIENT) as nodes:
        nodes[0].engine.load(io.BytesIO(text), format="nt")
        assert len(nodes[2].store.terms.exceptions) > 10
        nodes[2].engine.backup(tmp_path / "backup")
    rows = [(f"<{EX}s{n}>", f"<{EX}o{n}>") for n in range(1500)]
    asked = f"SELECT ?s ?o {{ VALUES (?s ?o) {{ {' '.join(f'({s} {o})' for s, o in rows)} }} ?s <{EX}p> ?o }}"
    for numbers in (2, 3):
        with cluster(numbers, 1, settings, silence_pulses_max=PATIENT) as nodes:
            nodes[0].engine.restore(tmp_path / "backup")
            assert {(s, o) for _, s, _, o in contents(nodes[1].engine)} == set(rows)
            assert sorted(cells(nodes[1].engine.query(asked))) == sorted(rows)
    with wukongs.Engine(tmp_path / "backup", settings=settings) as engine:
        assert sorted(cells(engine.query(asked))) == sorted(rows), "a text is not known by its id"


def test_checkpoints_of_a_cluster(tmp_path: Path) -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        with pytest.raises(StorageError, match="without a data folder: node 0, node 1"):
            nodes[0].engine.checkpoint()
        assert nodes[0].engine.stats()["durability"] == {}
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        fill(nodes[0].engine, random.Random(1))
        before = contents(nodes[0].engine)
        nodes[1].engine.checkpoint()
        found = nodes[2].engine.stats()["durability"]
        assert {node: facts["checkpoints"] for node, facts in found.items()} == {"0": 1, "1": 1, "2": 1}
        assert all(facts["log_start_lsn"] > 1 and facts["failure"] is None for facts in found.values())
        cut_off(nodes)
    with cluster(3, 2, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        assert contents(nodes[1].engine) == before

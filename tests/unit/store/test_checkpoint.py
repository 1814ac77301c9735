"""CheckpointStore: what is written, what is read back, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import PROJECT_ROOT
from tests.failing_disk import CountingDisk
from tests.quads import arrays_of, assert_same_batch, batch_of, quads_of, spread
from tests.stored_graph import Row, StoredGraph, reopen
from wukongs.errors import CorruptionError, StorageError
from wukongs.store import commit as commit_module
from wukongs.store.batch import batch_of as batch_of_columns
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.column_file import ALIGNMENT
from wukongs.store.dictionary import Dictionary
from wukongs.store.disk import Disk
from wukongs.store.encoded import TermTable
from wukongs.store.term_registry import TermRegistry
from wukongs.store.trace import Trace, TraceEntry


def rows(start: int, stop: int) -> list[Row]:
    return [(f"<http://s/{n}>", f"<http://p/{n % 3}>", f'"text {n % 7} é"@en') for n in range(start, stop)]


def reopen_copy(folder: Path) -> tuple[StoredGraph, object]:
    """Do the same as reopen, with a folder that is in use."""
    return reopen(Path(shutil.copytree(folder, folder.parent / f"{folder.name}-copy")))


def names(folder: Path, kind: str) -> set[str]:
    return {path.name for path in folder.glob(f"{kind}-*")}


def test_what_was_committed_comes_back(tmp_path: Path) -> None:
    graph = StoredGraph()
    with CheckpointStore(tmp_path / "data") as store:
        assert store.open() is None
        graph.absorb(rows(0, 100), sn=5)
        graph.absorb(rows(90, 110), sn=9)
        graph.trace.advance(30)
        graph.commit(store, {"lsn": 7, "names": ["é", None]})
    found, about = reopen(tmp_path / "data")
    assert about == {"lsn": 7, "names": ["é", None]}
    assert found.texts() == graph.texts() == sorted(rows(0, 110))
    assert found.trace.upper == 30
    assert found.trace.since == graph.trace.since
    assert found.texts(5) == sorted(rows(0, 100))
    assert [(e.lower, e.upper) for e in found.trace.entries()] == [(5, 6), (9, 10)]
    found.absorb(rows(100, 120))
    found.trace.merge_all()
    assert found.texts() == sorted(rows(0, 120))


def test_the_names_of_new_folders_are_on_the_disk_before_what_is_in_them(tmp_path: Path) -> None:
    class NotingDisk(Disk):
        def fsync_folder(self, folder: Path) -> None:
            super().fsync_folder(folder)
            synced.append(folder)

    synced: list[Path] = []
    with CheckpointStore(tmp_path / "above" / "data", NotingDisk()):
        assert synced == [tmp_path / "above", tmp_path]
    with CheckpointStore(tmp_path / "above" / "data", NotingDisk()):
        assert len(synced) == 2


def test_every_array_comes_back_aligned_and_through_any_reader_of_arrow(tmp_path: Path) -> None:
    trace = Trace("t")
    trace.seal(3, batch_of([(spread(n % 2), spread(n), spread(n % 5), spread(n % 7)) for n in range(50)]))
    with CheckpointStore(tmp_path) as store:
        store.open()
        store.commit(trace.entries(), trace.upper, TermRegistry(), {})
        restored = store.open()
    assert restored is not None
    (entry,) = restored.entries
    assert_same_batch(entry.batch, trace.entries()[0].batch)
    assert arrays_of(entry.batch).keys() == arrays_of(trace.entries()[0].batch).keys()
    assert entry.batch.source is not None
    table = pa.ipc.open_file(entry.batch.source.path).read_all()
    for name, array in entry.batch.source.columns.items():
        assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0, name
        np.testing.assert_array_equal(table[name][0].values.to_numpy(), array)


def test_the_columns_of_a_batch_are_all_that_its_descriptor_leads_to() -> None:
    batch = batch_of([(spread(n % 2), spread(n), spread(n % 5), spread(n % 7)) for n in range(200)], range(200))
    held = {array.ctypes.data for array in batch.columns().values()}
    addresses = {value for value in batch.descriptor.tolist() if value > 1 << 32}
    assert addresses <= held
    again = batch_of_columns({name: array.copy() for name, array in batch.columns().items()})
    assert_same_batch(again, batch)
    for value, other in zip(batch.descriptor.tolist(), again.descriptor.tolist(), strict=True):
        assert value == other or value in addresses


def test_tombstones_come_back_with_their_entry(tmp_path: Path) -> None:
    added, gone = batch_of([(0, spread(1), spread(2), spread(3))]), batch_of([(0, spread(4), spread(5), spread(6))])
    with CheckpointStore(tmp_path) as store:
        store.open()
        store.commit([TraceEntry(added, 1, 2), TraceEntry(added, 4, 7, tombstones=gone)], 9, TermRegistry(), {})
        restored = store.open()
    assert restored is not None
    assert restored.upper == 9
    first, second = restored.entries
    assert first.tombstones is None
    assert second.tombstones is not None
    assert quads_of(second.tombstones) == quads_of(gone)
    assert quads_of(second.batch) == quads_of(first.batch) == quads_of(added)


def test_what_merges_while_a_commit_writes_is_written_as_it_was(tmp_path: Path) -> None:
    graph = StoredGraph()

    class BusyDisk(Disk):
        def create(self, path: Path) -> BinaryIO:
            graph.absorb(rows(1000 + graph.trace.upper, 1010 + graph.trace.upper))
            graph.trace.merge_all()
            return super().create(path)

    with CheckpointStore(tmp_path, BusyDisk()) as store:
        store.open()
        graph.absorb(rows(0, 100))
        graph.absorb(rows(90, 110))
        graph.commit(store)
        found, _ = reopen_copy(tmp_path)
        assert found.texts() == sorted(rows(0, 110))
        assert len(found.registry.persistent) >= len({text for row in rows(0, 110) for text in row})
        graph.commit(store)
    assert set(rows(0, 110)) < set(reopen(tmp_path)[0].texts())


@pytest.mark.parametrize(("limit", "value"), [("TEXT_BYTES_MAX", 200), ("TERMS_MAX", 8)])
def test_a_large_dictionary_is_cut_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(commit_module, limit, value)
    graph = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb([*rows(0, 50), ("<http://s>", "<http://p>", f'"{"long" * 100}"')])
        manifest = graph.commit(store)
        graph.absorb(rows(50, 60))
        graph.commit(store)
    assert len(manifest.terms) > 5
    assert len(reopen(tmp_path)[0].texts()) == 61


def test_no_more_text_than_one_file_holds_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    def entries(self: Dictionary, start: int, stop: int) -> TermTable:
        found = take(self, start, stop)
        copied.append(len(found.text))
        return found

    take = Dictionary.entries
    monkeypatch.setattr(Dictionary, "entries", entries)
    monkeypatch.setattr(commit_module, "TEXT_BYTES_MAX", 1000)
    graph = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb(rows(0, 300))
        manifest = graph.commit(store)
    assert len(copied) == len(manifest.terms) > 3
    assert max(copied) <= 1000


def test_a_commit_writes_only_what_is_new(tmp_path: Path) -> None:
    graph = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb(rows(0, 500))
        graph.commit(store)
        first = names(tmp_path, "batch"), names(tmp_path, "terms")
        graph.commit(store, {"only": "about"})
        assert (names(tmp_path, "batch"), names(tmp_path, "terms")) == first
        graph.absorb(rows(500, 510))
        graph.commit(store)
        assert first[0] < names(tmp_path, "batch")
        assert first[1] < names(tmp_path, "terms")
        graph.trace.merge_all()
        graph.commit(store)
        assert not first[0] & names(tmp_path, "batch"), "merged away, so its file goes"
        assert len(names(tmp_path, "batch")) == 1


def test_a_batch_that_a_commit_left_out_is_written_again(tmp_path: Path) -> None:
    graph = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb(rows(0, 50))
        graph.commit(store)
        store.commit([], 0, graph.registry, {})
        assert not names(tmp_path, "batch")
        graph.commit(store)
    assert reopen(tmp_path)[0].texts() == sorted(rows(0, 50))


def test_a_restored_batch_is_not_written_again(tmp_path: Path) -> None:
    graph = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb(rows(0, 50))
        graph.commit(store)
    before = names(tmp_path, "batch"), names(tmp_path, "terms")
    found = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        restored = store.open()
        assert restored is not None
        restored.into(found.trace, found.registry)
        found.commit(store, {"again": 1})
    assert (names(tmp_path, "batch"), names(tmp_path, "terms")) == before
    assert reopen(tmp_path)[0].texts() == sorted(rows(0, 50))


def test_the_files_of_the_dictionary_stay_few(tmp_path: Path) -> None:
    graph = StoredGraph()
    written = 0
    with CheckpointStore(tmp_path, CountingDisk()) as store:
        store.open()
        for n in range(200):
            graph.absorb(rows(n, n + 1))
            before = names(tmp_path, "terms")
            manifest = graph.commit(store)
            assert len(manifest.terms) <= 10
            assert [record.start for record in manifest.terms[1:]] == [record.stop for record in manifest.terms[:-1]]
            written += sum(r.stop - r.start for r in manifest.terms if r.file not in before)
    assert written <= 10 * len(graph.registry.persistent)
    assert reopen(tmp_path)[0].texts() == sorted(rows(0, 200))


def test_a_second_opener_is_told_who_has_the_folder(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path), pytest.raises(StorageError, match="in use by this process"):
        CheckpointStore(tmp_path)
    CheckpointStore(tmp_path).close()


def test_another_process_that_has_the_folder_is_named(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from wukongs.store.folder_lock import FolderLock; "
    code += "lock = FolderLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match=f"in use by process {other.pid}"):
            CheckpointStore(tmp_path)
        other.kill()
    CheckpointStore(tmp_path).close()


def test_ids_of_another_width_are_refused(tmp_path: Path) -> None:
    graph = StoredGraph(hash_bits=16)
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb(rows(0, 5))
        graph.commit(store)
    with pytest.raises(StorageError, match="hash_bits = 16"):
        reopen(tmp_path)


def test_an_unknown_format_is_refused_by_name(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        store.open()
        StoredGraph().commit(store)
    path = tmp_path / "MANIFEST"
    path.write_bytes(path.read_bytes().replace(b"format 2,", b"format 9,"))
    with pytest.raises(StorageError, match="format 9, and this version of wukongs reads formats 1 and 2"):
        reopen(tmp_path)


def test_a_lost_manifest_is_not_a_new_folder(tmp_path: Path) -> None:
    graph = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb(rows(0, 5))
        graph.commit(store)
    (tmp_path / "MANIFEST").unlink()
    with pytest.raises(CorruptionError, match="MANIFEST: it is missing"):
        reopen(tmp_path)
    assert names(tmp_path, "batch")


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "log-1.arrow").write_text("x")
    (tmp_path / "batch-000009-00.arrow.bak").write_text("x")
    with CheckpointStore(tmp_path) as store:
        assert store.open() is None
        StoredGraph().commit(store)
        (tmp_path / "batch-000009-00.arrow").write_text("left over")
        (tmp_path / "MANIFEST.new").write_text("left over")
        assert store.open() is not None
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"log-1.arrow", "batch-000009-00.arrow.bak", "MANIFEST", "LOCK"}


def test_the_manifest_is_readable(tmp_path: Path) -> None:
    graph = StoredGraph()
    with CheckpointStore(tmp_path) as store:
        store.open()
        graph.absorb(rows(0, 5))
        manifest = graph.commit(store, {"lsn": 3})
    title, body = (tmp_path / "MANIFEST").read_text().split("\n")
    assert title.startswith("wukongs data folder, format 2, ")
    assert json.loads(body)["about"] == {"lsn": 3}
    assert manifest.size_bytes == sum((tmp_path / name).stat().st_size for name in manifest.files)

"""Tables in temporary files: how they are written, bounded and removed; sorted runs and their merging; and queries of
several threads that together find no memory."""

from __future__ import annotations

import gc
import io
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import wukongs
from wukongs.query import spill_files
from wukongs.query.limits import Limits
from wukongs.query.memory import MemoryBudget
from wukongs.query.operators import external
from wukongs.query.spill_files import ColumnFiles, bytes_in_memory, let_pages_go, pages_of, spill_folder
from wukongs.store.dtypes import Int64Array

MEGABYTE = 1 << 20
NODES = 121
PAIRS = "?a <http://ex/p> ?x . ?b <http://ex/q> ?y"
XSD_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"


def limits_with(spill_bytes_max: int = 1 << 30) -> Limits:
    limits = Limits(budget=MemoryBudget(64 * MEGABYTE))
    limits.spill_bytes_max, limits.operator = spill_bytes_max, "a sort"
    return limits


def columns(*starts: int, length: int = 1000) -> list[Int64Array]:
    return [np.arange(start, start + length, dtype=np.int64) for start in starts]


def figures(limits: Limits) -> tuple[int, int]:
    assert limits.budget is not None
    stats = limits.budget.stats()
    return stats["spilled_bytes"], stats["spilled_total_bytes"]  # type: ignore[return-value]


# --- files ------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_mapped() -> None:
    limits = limits_with()
    with ColumnFiles(2, limits) as files:
        files.append(columns(0, 50), 1000)
        files.append(columns(1000, 1050), 1000)
        assert [part.tolist() for part in files.read(998, 1002)] == [[998, 999, 1000, 1001], [1048, 1049, 1050, 1051]]
        assert limits.held == 2 * 4 * 8
        mapped = files.mapped()
    assert [part.tolist() for part in mapped] == [list(range(2000)), list(range(50, 2050))]
    assert figures(limits) == (32_000, 32_000)
    assert bytes_in_memory((*mapped, *columns(1))) == 8000
    part = mapped[0][5:8]
    assert pages_of(part) is not None
    assert pages_of(np.arange(3)[1:]) is None
    let_pages_go(mapped)
    assert part.tolist() == [5, 6, 7]
    del mapped
    gc.collect()
    assert figures(limits)[0] == 16_000  # a part keeps its column
    del part
    gc.collect()
    assert figures(limits) == (0, 32_000)


@pytest.mark.parametrize("width", [0, 2])
def test_tables_without_rows_or_columns(width: int) -> None:
    limits = limits_with()
    with ColumnFiles(width, limits) as files:
        files.append([np.empty(0, np.int64)] * width, 0)
        assert [len(column) for column in files.mapped()] == [0] * width
    assert figures(limits) == (0, 0)


def test_files_have_no_names_and_go_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(spill_files.tempfile, "tempdir", None)
    limits = limits_with()
    before = len(os.listdir("/proc/self/fd"))
    files = ColumnFiles(3, limits)
    files.append(columns(0, 1, 2), 1000)
    assert os.listdir(tmp_path) == []  # so a process that is killed leaves nothing
    assert any(str(tmp_path) in os.readlink(f"/proc/self/fd/{one.fileno()}") for one in files._files)
    with pytest.raises(ZeroDivisionError), files:
        _ = 1 / 0
    assert len(os.listdir("/proc/self/fd")) == before
    assert figures(limits) == (0, 24_000)


def test_more_than_spill_bytes_max_is_refused_by_name() -> None:
    limits = limits_with(20_000)
    with ColumnFiles(2, limits) as files:
        files.append(columns(0, 0), 1000)
        with pytest.raises(wukongs.BudgetExceeded) as caught:
            files.append(columns(0, 0), 1000)
    assert str(caught.value).startswith("a sort finds no memory and would write 16000 bytes to temporary files beside ")
    assert "spill_bytes_max = 20000" in str(caught.value)
    assert figures(limits)[0] == 0


def test_a_full_disk_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = limits_with()
    monkeypatch.setattr(spill_files, "spill_folder", lambda: "/dev/shm")

    class Full(io.FileIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill_files.tempfile, "TemporaryFile", lambda **_: Full("/dev/null", "wb"))
    expected = r"temporary files in /dev/shm cannot be written \(No space left on device\): make room there"
    with ColumnFiles(2, limits) as files, pytest.raises(wukongs.BudgetExceeded, match=expected):
        files.append(columns(0, 0), 1000)
    assert figures(limits)[0] == 0
    monkeypatch.setattr(spill_files, "spill_folder", lambda: "/no such folder")
    monkeypatch.undo()
    monkeypatch.setattr(spill_files, "spill_folder", lambda: "/no such folder")
    with pytest.raises(wukongs.BudgetExceeded, match="temporary files in /no such folder cannot be written"):
        ColumnFiles(1, limits)


def test_a_folder_in_memory_is_not_taken_if_there_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /tmp rw shared:3 - tmpfs none rw\n")
    monkeypatch.setattr(spill_files, "_MOUNTS", mounts)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(spill_files.tempfile, "gettempdir", lambda: "/tmp")
    assert spill_folder() == "/var/tmp"
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert spill_folder() == "/tmp"
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(spill_files.tempfile, "gettempdir", lambda: "/tmpfiles")
    assert spill_folder() == "/tmpfiles"


# --- runs -------------------------------------------------------------------------------------------------------------


def rows_of(blocks: Iterator[list[Int64Array]]) -> list[tuple[int, ...]]:
    return [row for block in blocks for row in zip(*(column.tolist() for column in block), strict=True)]


@pytest.mark.parametrize("work_bytes", [1, 20_000, 1 << 30])
@pytest.mark.parametrize("range_of_keys", [(1, 1), (3, 4), (1 << 61, 3)])
def test_runs_are_merged_as_one_stable_sort(
    work_bytes: int, range_of_keys: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "_BLOCK_ROWS_LEAST", 7)
    rng = np.random.default_rng(work_bytes)
    limits, length = limits_with(), 600 if work_bytes == 1 else 3000
    keys = [rng.integers(-high, high, length) for high in range_of_keys]
    place = np.arange(length, dtype=np.int64)
    with limits, ColumnFiles(3, limits) as raw:
        for start in range(0, length, 500):
            raw.append([column[start : start + 500] for column in (place, *keys)], len(place[start : start + 500]))
        found = rows_of(external._sorted(raw, 1, lambda read: list(read[1:]), limits, work_bytes))
        assert limits.held == 0
    order = np.lexsort(keys[::-1])
    assert [row[0] for row in found] == order.tolist()
    assert found == list(zip(place[order].tolist(), *(key[order].tolist() for key in keys), strict=True))
    assert figures(limits)[0] == 0


def test_ranks_share_a_column_while_they_fit() -> None:
    one, two = np.array([0, 1, 2]), np.array([2, 0, 1])
    assert [column.tolist() for column in external._packed([one, two], [3, 3])] == [[2, 3, 7]]
    assert [column.tolist() for column in external._packed([one, two], [1 << 61, 3])] == [[0, 1, 2], [2, 0, 1]]
    three = external._packed([one, two, one], [1 << 61, 3, 3])
    assert [column.tolist() for column in three] == [[0, 1, 2], [6, 1, 5]]


# --- queries of several threads ---------------------------------------------------------------------------------------

QUERIES = {
    "ORDER BY": f"SELECT ?x ?y {{ {PAIRS} }} ORDER BY ?y DESC(?x)",
    "ORDER BY ... LIMIT": f"SELECT ?x ?y {{ {PAIRS} }} ORDER BY ?y DESC(?x) OFFSET 3 LIMIT 5",
    "DISTINCT": f"SELECT DISTINCT ?x ?y {{ {PAIRS} }}",
    "DISTINCT ... ORDER BY": f"SELECT DISTINCT ?y {{ {PAIRS} }} ORDER BY DESC(?y)",
    "all": f"SELECT * {{ {PAIRS} }}",
    "GROUP BY": f"SELECT ?a (SUM(?y) AS ?n) (COUNT(DISTINCT ?y) AS ?m) {{ {PAIRS} }} GROUP BY ?a",
    "counts": f"SELECT (COUNT(*) AS ?n) (MIN(?y) AS ?low) (MAX(?x) AS ?high) {{ {PAIRS} }}",
    "join": "SELECT ?x ?y { { SELECT DISTINCT ?x { ?a <http://ex/p> ?x } } "
    "{ SELECT DISTINCT ?y { ?b <http://ex/q> ?y } } } ORDER BY ?x ?y",
    "OPTIONAL, UNION and BIND": f"SELECT ?z {{ {PAIRS} OPTIONAL {{ ?a <http://ex/none> ?c }} "
    "{ ?a <http://ex/p> ?z } UNION { BIND(?y + 1 AS ?z) } } ORDER BY DESC(?z)",
    "ASK": f"ASK {{ {{ SELECT ?x ?y {{ {PAIRS} }} ORDER BY ?y }} FILTER(?x = -1) }}",
}


@pytest.fixture(scope="module")
def data() -> bytes:
    lines = [
        f'<http://ex/n{number}> <http://ex/{name}> "{number * step % NODES}"^^<{XSD_INTEGER}> .'
        for number in range(NODES)
        for name, step in (("p", 7), ("q", 3))
    ]
    return "\n".join(lines).encode()


def answer(result: wukongs.Result, name: str) -> object:
    if result.kind == "ask":
        return result.boolean
    rows = result.texts()
    return rows if "ORDER" in name or name == "join" else sorted(map(str, rows))


def test_queries_of_several_threads_beyond_the_budget_are_answered(data: bytes) -> None:
    """14,641 rows take up to half a megabyte in each table, and a sort more; each query has one, all have four."""
    with wukongs.Engine(settings={"memory_bytes_max": 1 << 30}) as engine:
        engine.load(io.BytesIO(data), format="nt")
        expected = {name: answer(engine.query(query), name) for name, query in QUERIES.items()}
        assert engine.stats()["process"]["memory"]["spilled_total_bytes"] == 0
    given = {"memory_bytes_max": 4 * MEGABYTE, "query_bytes_max": MEGABYTE}
    with wukongs.Engine(settings=given) as engine:
        engine.load(io.BytesIO(data), format="nt")
        failed = list[str]()

        def ask(name: str) -> None:
            try:
                if answer(engine.query(QUERIES[name]), name) != expected[name]:
                    failed.append(f"{name}: other rows")
            except Exception as error:
                failed.append(f"{name}: {error!r}")

        threads = [threading.Thread(target=ask, args=(name,)) for name in QUERIES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not failed, "\n".join(failed)
        gc.collect()
        memory = engine.stats()["process"]["memory"]
        assert (memory["reserved_bytes"], memory["waiting"], memory["spilled_bytes"]) == (0, 0, 0)
        assert memory["spilled_total_bytes"] > MEGABYTE
        assert memory["peak_bytes"] <= 4 * MEGABYTE


def test_without_temporary_files_a_query_beyond_the_budget_is_refused(data: bytes) -> None:
    given = {"query_bytes_max": MEGABYTE, "spill_bytes_max": 0}
    with wukongs.Engine(settings=given) as engine:
        engine.load(io.BytesIO(data), format="nt")
        with pytest.raises(wukongs.BudgetExceeded, match="query_bytes_max = 1048576"):
            engine.query(QUERIES["ORDER BY"])


def test_an_answer_in_files_reads_as_any_other(data: bytes) -> None:
    with wukongs.Engine(settings={"query_bytes_max": MEGABYTE}) as engine:
        engine.load(io.BytesIO(data), format="nt")
        result = engine.query(QUERIES["ORDER BY"])
        assert pages_of(result.ids(0, 5)[0]) is not None
        assert (len(result), result.reservation) == (NODES**2, None)
        text = result.serialize("csv").splitlines()
        assert (text[:3], len(text)) == (["x,y", "120,0", "119,0"], NODES**2 + 1)
        assert result.arrow().num_rows == NODES**2

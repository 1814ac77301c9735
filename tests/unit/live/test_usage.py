"""What a process and its data folder take."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import wukongs
from wukongs.live.usage import folder_usage, process_usage
from wukongs.query.memory import MemoryBudget


def test_open_files_are_counted(tmp_path: Path) -> None:
    gc.collect()  # what others have left is closed before
    before = process_usage(MemoryBudget(1 << 30))
    files = [(tmp_path / str(n)).open("w") for n in range(10)]
    after = process_usage(MemoryBudget(1 << 30))
    for file in files:
        file.close()
    assert after["open_files"] - before["open_files"] == 10
    assert (after["pid"], after["up_s"] >= before["up_s"], after["cpu_s"] > 0) == (os.getpid(), True, True)


def test_a_data_folder_is_measured(tmp_path: Path) -> None:
    block = os.urandom(4096)
    for name in ("store/a", "log/1.log", "log/deep/2.log", "b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(block)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    found = folder_usage(tmp_path)
    assert (found["folder_bytes"], found["log_bytes"]) == (4 * 4096, 2 * 4096)
    assert found["disk_free_bytes"] > 0
    assert folder_usage(tmp_path / "none") == {"folder_bytes": 0, "log_bytes": 0}


def test_an_engine_says_what_its_folder_takes(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "db") as engine:
        engine.update("INSERT DATA { <x:a> <x:p> 1 }")
        stats = engine.stats()
        assert 0 < stats["durability"]["log_bytes"] <= stats["durability"]["folder_bytes"]
        assert stats["process"]["pid"] == os.getpid()
    with wukongs.Engine() as engine:
        assert engine.stats()["durability"] == {}

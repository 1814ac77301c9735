"""How fast does a file of N-Triples become a graph that answers queries?

Into memory and into a data folder, each with one and with two workers, beside the way it was before: one thread from
start to end, sorted and merged under the engine's lock. Apart, what each stage costs one thread.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.data import generate_lsbench
from wukongs.bench.scale.network import Network
from wukongs.durable.folder_load import FolderLoad
from wukongs.engine import Engine
from wukongs.settings import Settings
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import build_batch
from wukongs.store.bulk import BulkPlan
from wukongs.store.encoded import Encoded
from wukongs.store.rdf_files import RdfReader, read_rdf
from wukongs.store.term_ids import HASH_BITS
from wukongs.store.term_registry import TermRegistry

TRIPLES = 4_000_000
BYTES_MAX = 1 << 30
GRAPH = 4
ASK = "ASK { <http://www.ins.cwi.nl/sib/user/u1> ?p ?o }"


def measure(found: Report, quick: bool) -> None:
    """Check the counts of every way, then report rates, stages, memory and what queries meanwhile had to wait."""
    with tempfile.TemporaryDirectory(prefix="wukongs-bulk-") as name:
        folder = Path(name)
        path, lines, triples = _write(folder, quick)
        found.data = {**found.data, "lines": lines, "triples": triples, "text MB": path.stat().st_size / 1e6}
        _load_in_memory(path, 2)  # compiles
        _load_into_folder(path, folder / "warm-up", 2)
        ways: list[tuple[str, Callable[[], int]]] = [
            ("memory, as it was", partial(_load_as_it_was, path)),
            *((f"memory, {n} workers", partial(_load_in_memory, path, n)) for n in (1, 2)),
            *((f"data folder, {n} workers", partial(_load_into_folder, path, folder / f"{n}", n)) for n in (1, 2)),
        ]
        for way, load in ways:
            with _peak_bytes() as peak:
                began_s, began_cpu_s = time.perf_counter(), time.process_time()
                count = load()
                seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
            found.check(f"{way}: triples", triples, count)
            found.add(
                "file to query-ready",
                {
                    "way": way,
                    "s": seconds,
                    "M triples/s": lines / seconds / 1e6,
                    "CPU s": cpu_s,
                    "peak MB more": peak[0] / 1e6,
                },
            )
        _measure_stages(found, path, folder, lines)
        _measure_queries_meanwhile(found, path, triples)


def _write(folder: Path, quick: bool) -> tuple[Path, int, int]:
    """Write the file; return its path, lines and distinct triples."""
    if quick:
        data = generate_lsbench(NetworkSettings(users=40, friends=6, duration_ms=2000))
        text = data.stored + b"".join(stream.lines for stream in data.streams.values())
        (folder / "x.nt").write_bytes(text)
        return folder / "x.nt", text.count(b"\n"), len(set(text.splitlines()))
    network = Network.of_triples(TRIPLES)
    return network.write(folder, 1)[0], network.line_count, network.triple_count


def _load_as_it_was(path: Path) -> int:
    registry, arrangement = TermRegistry(), Arrangement("graph")
    encoded = list(read_rdf(path, scope=b"load:1", on_malformed=None))
    chunks = [registry.confirm(chunk)[0] for chunk in encoded]
    columns = [[getattr(chunk, name) for chunk in chunks] for name in ("graphs", "subjects", "predicates", "objects")]
    return arrangement.absorb(1, *map(np.concatenate, columns))


def _load_in_memory(path: Path, workers: int) -> int:
    with Engine(settings=Settings(load_workers=workers, load_bytes_max=BYTES_MAX)) as engine:
        engine.load(path)
        return int(engine.stats()["stored_triples"])


def _load_into_folder(path: Path, folder: Path, workers: int) -> int:
    with FolderLoad(folder, BulkPlan.of(BYTES_MAX, workers), HASH_BITS) as load:
        load.load(path, on_run=lambda *_: False)
        load.commit()
        return len(load)


def _measure_stages(found: Report, path: Path, folder: Path, lines: int) -> None:
    """CPU time of one thread for each stage of a load into a folder; its writing in seconds, since it waits for the
    disk."""
    registry, arrangement = TermRegistry(), Arrangement("graph")
    cpu_s = dict.fromkeys(("encode", "confirm", "build", "newness and merge"), 0.0)

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        began_s = time.thread_time()
        result = work()
        cpu_s[stage] += time.thread_time() - began_s
        return result

    plan = BulkPlan.of(BYTES_MAX, 1)
    pieces: list[Encoded] = []

    def build() -> None:
        columns = [
            np.concatenate([getattr(piece, name) for piece in pieces])
            for name in ("graphs", "subjects", "predicates", "objects")
        ]
        pieces.clear()
        batch = timed("build", lambda: build_batch(*columns))
        timed("newness and merge", lambda: arrangement.absorb_batch(arrangement.trace.upper + 1, batch))

    with RdfReader(path, scope=b"load:1") as reader:
        for job in reader.jobs(plan.chunk_bytes):
            piece = timed("encode", job)
            pieces.append(timed("confirm", partial(registry.confirm, piece.encoded))[0])
            if sum(map(len, pieces)) >= plan.run_rows:
                build()
    build()
    with FolderLoad(folder / "stages", plan, HASH_BITS) as load:
        load.load(path, on_run=lambda *_: False)
        began_s = time.perf_counter()
        size = load.commit()
        write_s = time.perf_counter() - began_s
    for stage, seconds in {**cpu_s, "write": write_s}.items():
        found.add("stages, one thread", {"stage": stage, "us/line": seconds / lines * 1e6})
    found.notes.append(f"the data folder takes {size / len(arrangement):.1f} bytes a triple, strings included")


def _measure_queries_meanwhile(found: Report, path: Path, triples: int) -> None:
    """How long a small query takes before a load, and while it goes on."""
    with Engine() as engine:
        loading = threading.Thread(target=engine.load, args=(path,))
        engine.query(ASK)
        times: dict[str, list[float]] = {"before": [], "while loading": []}
        for when, most in (("before", 200), ("while loading", 1 << 30)):
            if when != "before":
                loading.start()
            while len(times[when]) < most and (when == "before" or loading.is_alive()):
                began_s = time.perf_counter()
                engine.query(ASK)
                times[when].append((time.perf_counter() - began_s) * 1e3)
                time.sleep(0.002)
        loading.join()
        found.check("triples beside queries", triples, engine.stats()["stored_triples"])
    for when, taken in times.items():
        figures = summary(taken)
        found.add(
            "a query meanwhile",
            {"when": when, "queries": len(taken), **{f"{key} ms": figures[key] for key in ("median", "p99", "max")}},
        )


@contextmanager
def _peak_bytes() -> Iterator[list[int]]:
    """Give, once the block is left, by how much the process's memory rose at most above what it was (Linux; else 0)."""
    peak = [0]
    status = Path("/proc/self/status")

    def read(name: str) -> int:
        line = re.search(rf"^{name}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        return int(line[1]) * 1024 if line else 0

    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        before = read("VmRSS")
    yield peak
    with suppress(OSError):
        peak[0] = max(read("VmHWM") - before, 0)


def plot(found: Report, path: Path) -> None:
    """Draw the rate of each way, and what the stages cost."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    rates = found.tables["file to query-ready"]
    left.barh([row["way"] for row in rates], [row["M triples/s"] for row in rates], color="tab:blue")
    left.axvline(1.0, color="black", linestyle="--", label="target")
    left.invert_yaxis()
    left.set_xlabel("M triples/s, file to query-ready")
    left.legend(frameon=False, loc="lower right")
    stages = found.tables["stages, one thread"]
    right.barh([row["stage"] for row in stages], [row["us/line"] for row in stages], color="tab:orange")
    right.invert_yaxis()
    right.set_xlabel("µs a line, one thread")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)

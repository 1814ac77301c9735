"""How long does a restart take, from opening a data folder to the first query's rows, with files in memory and not?

The graph has LSBench's shape: users who follow, posts and photos with creators, types, tags and texts, likes. Ids are
made from terms without any text to parse. Every restart is a process of its own; before its clock starts it has
imported everything and asked an empty engine the same query, so that the kernels are loaded, which is reported apart.
`cold` takes the files out of the system's cache first.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.bench.harness import ROOT, Report, summary
from wukongs.engine import Engine
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoder import encode_columns

PREFIX = "http://example.org/sib/"
NAMES = ("follows", "creator", "type", "tag", "content", "likes", "Post", "Photo")
QUERY = f"""PREFIX : <{PREFIX}>
SELECT ?post ?text WHERE {{ :user7 :follows ?friend . ?post :creator ?friend . ?post :content ?text }}"""
REPEATS = 3


class Network:
    """triples : (subjects, predicates, objects), int64[n] ids each, some of them twice."""

    def __init__(self, engine: Engine, triple_count: int, seed: int = 7) -> None:
        self._rng = np.random.default_rng(seed)
        names = add_terms(engine, pa.array([f"<{PREFIX}{name}>" for name in NAMES]))
        self._names = dict(zip(NAMES, names.tolist(), strict=True))
        ids: dict[str, Int64Array] = {}
        for kind, share in (("user", 0.01), ("post", 0.12), ("photo", 0.05), ("tag", 0.002)):
            ids[kind] = add_terms(engine, _numbered(f"<{PREFIX}{kind}", max(1, int(share * triple_count)), ">"))
        text_count = max(1, int(0.06 * triple_count))
        texts = add_terms(engine, _numbered('"what they wrote in post ', text_count, ', which is not short"'))
        users, posts, photos, tags = (ids[kind] for kind in ("user", "post", "photo", "tag"))
        self.followers = self._rng.integers(0, len(users), triple_count // 4)
        self.followed = self._popular(len(users), triple_count // 4)
        self.creators = self._rng.integers(0, len(users), len(posts))
        like_count = triple_count - len(self.followed) - 4 * len(posts) - 2 * len(photos)
        parts = (
            (users[self.followers], "follows", users[self.followed]),
            (posts, "creator", users[self.creators]),
            (posts, "type", self._name("Post", len(posts))),
            (posts, "tag", tags[self._popular(len(tags), len(posts))]),
            (posts, "content", texts[self._rng.integers(0, len(texts), len(posts))]),
            (photos, "creator", users[self._popular(len(users), len(photos))]),
            (photos, "type", self._name("Photo", len(photos))),
            (users[self._popular(len(users), like_count)], "likes", posts[self._popular(len(posts), like_count)]),
        )
        self.triples = (
            np.concatenate([part[0] for part in parts]),
            np.concatenate([self._name(part[1], len(part[0])) for part in parts]),
            np.concatenate([part[2] for part in parts]),
        )

    def _name(self, name: str, count: int) -> Int64Array:
        return np.full(count, self._names[name], np.int64)

    def _popular(self, kinds: int, count: int) -> Int64Array:
        """Draw numbers of which the low ones are more frequent."""
        drawn: Int64Array = (kinds * self._rng.random(count) ** 2).astype(np.int64)
        return drawn

    def answer_count(self) -> int:
        """The rows of QUERY: each post has one creator and one text."""
        friends = np.unique(self.followed[self.followers == 7])
        return int(np.isin(self.creators, friends).sum())


def _numbered(head: str, count: int, tail: str) -> pa.Array:
    numbers = pc.cast(pa.array(np.arange(count)), pa.string())
    return pc.binary_join_element_wise(pa.scalar(head), numbers, pa.scalar(tail), pa.scalar(""))


def add_terms(engine: Engine, texts: Any) -> Int64Array:
    """Make terms known; return their ids."""
    constant = pa.repeat(pa.scalar(f"<{PREFIX}>"), len(texts))
    return engine._core.registry.confirm(encode_columns(constant, constant, texts, scope=b"bench"))[0].objects


def store_triples(engine: Engine, triples: tuple[Int64Array, Int64Array, Int64Array]) -> None:
    """Seal triples under the next SN of an engine's stored graph."""
    core = engine._core
    subjects, predicates, objects = triples
    graphs = np.full(len(subjects), core.default_graph, np.int64)
    core.arrangement.absorb(max(core.arrangement.trace.upper, 1), graphs, subjects, predicates, objects)


def restart(folder: Path) -> dict[str, float]:
    """Restart from a folder; return seconds by step, and the rows of the first query."""
    began = time.perf_counter()
    with Engine() as engine:
        _ask(engine)
        kernels, cpu = time.perf_counter(), time.process_time()
        with CheckpointStore(folder) as store:
            restored = store.open()
            assert restored is not None
            restored.into(engine._core.arrangement.trace, engine._core.registry)
            opened = time.perf_counter()
            trace = engine._core.arrangement.trace
            trace.read(trace.upper)
            verified = time.perf_counter()
            row_count = _ask(engine)
            answered, cpu = time.perf_counter(), time.process_time() - cpu
        return {
            "rows": row_count,
            "kernels_s": kernels - began,
            "open_s": opened - kernels,
            "verify_s": verified - opened,
            "query_s": answered - verified,
            "total_s": answered - kernels,
            "total_cpu_s": cpu,
            "next_query_ms": 1e3 * _query_seconds(engine),
        }


def _ask(engine: Engine) -> int:
    """Ask for the rows, terms and all; return their count."""
    return len(list(engine.query(QUERY)))


def _query_seconds(engine: Engine) -> float:
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        _ask(engine)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _restart_apart(folder: Path) -> dict[str, float]:
    code = "import json, sys, pathlib; from wukongs.bench.store.restart import restart; "
    code += "print(json.dumps(restart(pathlib.Path(sys.argv[1]))))"
    found = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    times: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return times


def _drop_from_cache(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(found: Report, quick: bool) -> None:
    """Commit a graph and a bit more, restart from it; quick: in this process."""
    triple_count = 20_000 if quick else 10_000_000
    with tempfile.TemporaryDirectory() as temporary, Engine() as engine:
        folder = Path(temporary) / "data"
        core = engine._core
        network = Network(engine, triple_count)
        store_triples(engine, network.triples)
        found.check("rows of the query in memory", network.answer_count(), _ask(engine))
        with CheckpointStore(folder) as store:
            store.open()
            commits = [_commit(engine, store, "full")]
            more = Network(engine, triple_count // 100, seed=8)
            add_terms(engine, _numbered(f"<{PREFIX}new", triple_count // 400, ">"))
            store_triples(engine, more.triples)
            commits.append(_commit(engine, store, "incremental"))
        row_count = _ask(engine)
        found.data = {**found.data, "triples": len(core.arrangement), "terms": len(core.registry.persistent)}
        memory_ms = 1e3 * _query_seconds(engine)
        run = restart if quick else _restart_apart
        samples: dict[str, list[Mapping[str, float]]] = {"warm": [], "cold": []}
        for _ in range(1 if quick else REPEATS):
            for cache, times in samples.items():
                if cache == "cold":
                    _drop_from_cache(folder)
                times.append(run(folder))
                found.check(f"rows of the first query, {cache}", row_count, times[-1]["rows"])
        for cache, times in samples.items():
            row = {name: summary([t[name] for t in times])["median"] for name in times[0] if name != "rows"}
            found.add("restart, seconds", {"cache": cache, **row, "next_query_in_memory_ms": memory_ms})
        for row in commits:
            found.add("commit", row)
        for kind in ("batch", "terms"):
            size = sum(path.stat().st_size for path in folder.glob(f"{kind}-*"))
            count = len(core.arrangement) if kind == "batch" else len(core.registry.persistent)
            found.add("bytes on disk", {"files": kind, "bytes": size, "count": count, "bytes_each": size / count})
        found.notes.append("total_s = open + verify + query, in a process that has loaded its kernels (kernels_s)")


def _commit(engine: Engine, store: CheckpointStore, kind: str) -> dict[str, Any]:
    trace = engine._core.arrangement.trace
    before = {path.name for path in store.folder.iterdir()}
    began = time.perf_counter()
    manifest = store.commit(trace.entries(), trace.upper, engine._core.registry, {})
    seconds = time.perf_counter() - began
    written = sum(fingerprint.size for name, fingerprint in manifest.files.items() if name not in before)
    return {"commit": kind, "seconds": seconds, "bytes": written, "MB_per_s": written / 1e6 / seconds}


def plot(found: Report, path: Path) -> None:
    """Draw the steps of a restart, warm and cold, one on the other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = found.tables["restart, seconds"]
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    left = np.zeros(len(rows))
    for step in ("open", "verify", "query"):
        seconds = np.array([row[f"{step}_s"] for row in rows])
        axes.barh([row["cache"] for row in rows], seconds, left=left, label=step)
        left += seconds
    for place, total in enumerate(left):
        axes.text(total, place, f" {total:.2g} s", va="center")
    axes.set_xlim(0, 1.15 * left.max())
    axes.set_xlabel(f"seconds to the first query's rows ({found.data['triples']:,} triples)")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)

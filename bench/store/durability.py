"""The cost of a data folder at the paper's injection rates (its 6.8), and the time of recovery.

Five streams bring 13,350 tuples per stream batch of 100 ms, each through a writer of its own, as encoded pieces with
the texts of their terms. An engine in memory and one with a data folder get the same, in turns. A sample is the time
from handing the five pieces in until all are acknowledged (in a data folder: safe on the disk), sealed and visible,
with logging, syncing and the checkpoints that fall into it. Then folders with logs of several lengths are opened as
after a crash.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import wukongs
from wukongs.bench.harness import Report, summary
from wukongs.live.pieces import Close, Open, Piece
from wukongs.settings import Settings
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_ntriples
from wukongs.wire.ingest_service import IngestService

RATES = {"PO": 10_000, "PO-L": 86_000, "PH": 10_000, "PH-L": 7_500, "GPS": 20_000}
"""The paper's default rates, in tuples per second."""
BATCH_MS = 100
USERS = 100_000
EX = "http://ex/"
PERCENTS = (0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5)
CHECKPOINT_BYTES = 64 << 20
"""Smaller than the default, so that several checkpoints fall into the measured time."""


def stream_batch(rng: np.random.Generator, name: str, number: int, size: int) -> Encoded:
    """Return the tuples of one stream batch: new posts, photos and positions with their attributes, likes of known
    ones."""
    users = rng.integers(0, USERS, size).tolist()
    if name == "GPS":
        lines = [f"<{EX}u{u}> <{EX}at> <{EX}pos/{number}/{i}> .\n" for i, u in enumerate(users)]
    elif name.endswith("-L"):
        liked = rng.integers(0, max(number, 1) * RATES[name[:2]] // 30, size).tolist()
        lines = [f"<{EX}u{u}> <{EX}likes> <{EX}{name[:2]}{i}> .\n" for u, i in zip(users, liked, strict=True)]
    else:
        first = number * size // 3
        made = [
            (
                f"<{EX}u{u}> <{EX}makes> <{EX}{name}{first + i}> .\n",
                f"<{EX}{name}{first + i}> <{EX}tag> <{EX}t{u % 997}> .\n",
                f'<{EX}{name}{first + i}> <{EX}text> "text {first + i} of {name}" .\n',
            )
            for i, u in enumerate(users[: size // 3 + 1])
        ]
        lines = [line for three in made for line in three][:size]
    encoded = encode_ntriples("".join(lines).encode(), b"bench")[0]
    end_ms = number * BATCH_MS
    return replace(encoded, timestamps=np.linspace(end_ms - BATCH_MS + 1, end_ms, size).astype(np.int64))


class Fed:
    """An engine and the writers of its five streams."""

    def __init__(self, engine: wukongs.Engine) -> None:
        self.engine = engine
        self.service = IngestService(engine._core, engine._injector)
        self.offsets = dict.fromkeys(RATES, 0)
        self.writers = ThreadPoolExecutor(len(RATES))
        for name in RATES:
            engine.stream(EX + name, timing=name == "GPS", batch_ms=BATCH_MS, history_ms=1000)
            self.service.open_partition(Open(EX + name, "0", 1))

    def feed(self, batches: dict[str, Encoded], number: int) -> float:
        """Hand in one stream batch of each stream; return the seconds until it is safe and visible."""
        pieces = {}
        for name, encoded in batches.items():
            first = self.offsets[name]
            self.offsets[name] = first + len(encoded)
            timing = np.full(len(encoded), name == "GPS", np.bool_)
            pieces[name] = Piece(EX + name, "0", 1, first, self.offsets[name], 0, number, encoded, timing)

        def write(name: str) -> None:
            self.service.inject(pieces[name])
            self.service.close_batches(Close(EX + name, "0", 1, self.offsets[name], number * BATCH_MS))

        began = time.perf_counter()
        list(self.writers.map(write, pieces))
        self.engine.settle(timeout_s=60)
        return time.perf_counter() - began

    def close(self) -> None:
        self.writers.shutdown()
        self.engine.close()


def measure(found: Report, quick: bool) -> None:
    divisor, closed_loop, paced = (100, 2, 2) if quick else (1, 80, 150)
    rng = np.random.default_rng(1)
    sizes = {name: rate * BATCH_MS // 1000 // divisor for name, rate in RATES.items()}
    batches = [
        {name: stream_batch(rng, name, number, size) for name, size in sizes.items()}
        for number in range(1, 3 + closed_loop + paced)
    ]
    with TemporaryDirectory() as folder:
        settings = Settings(checkpoint_bytes=CHECKPOINT_BYTES)
        fed = {
            "in memory": Fed(wukongs.Engine(settings=settings)),
            "data folder": Fed(wukongs.Engine(Path(folder) / "data", settings=settings)),
        }
        tuples = sum(sizes.values())
        _measure_injection(found, fed, batches, closed_loop, tuples)
        for each in fed.values():
            each.close()
        _measure_recovery(found, Path(folder), batches, 3 if quick else 40, tuples)


def _measure_injection(
    found: Report, fed: dict[str, Fed], batches: list[dict[str, Encoded]], closed_loop: int, tuples: int
) -> None:
    full_speed: dict[str, list[float]] = {name: [] for name in fed}
    paced: dict[str, list[float]] = {name: [] for name in fed}
    cpu = dict.fromkeys(fed, 0.0)
    turns = list(fed.items())
    for at, batch in enumerate(batches):
        turns.reverse()  # the first one finds other caches
        for name, each in turns:
            if at > closed_loop + 1:
                until_s = time.perf_counter() % (BATCH_MS / 2000)
                time.sleep(BATCH_MS / 2000 - until_s)
            began_cpu = time.process_time()
            seconds = each.feed(batch, at + 1)
            cpu[name] += time.process_time() - began_cpu
            if at > 1:  # the first ones compile and warm up
                (full_speed if at <= closed_loop + 1 else paced)[name].append(seconds)
    memory, durable = (each.engine.stats() for each in fed.values())
    found.check("triples stored, in memory and in a data folder", memory["stored_triples"], durable["stored_triples"])
    rate = {name: tuples * len(seconds) / sum(seconds) for name, seconds in full_speed.items()}
    for name in fed:
        found.add(
            f"Injection of {tuples:,} tuples of five streams per {BATCH_MS} ms",
            {
                "engine": name,
                "K tuples/s at full speed": rate[name] / 1e3,
                "of memory's, %": 100 * rate[name] / rate["in memory"],
                "CPU ms per stream batch": cpu[name] / len(batches) * 1e3,
                **{f"at the paper's rate, {key} ms": summary(paced[name])[key] * 1e3 for key in ("median", "p90")},
                "p99 ms": summary(paced[name])["p99"] * 1e3,
                "max ms": summary(paced[name])["max"] * 1e3,
                "share of the 100 ms, %": summary(paced[name])["median"] / BATCH_MS * 1e5,
                "samples": len(paced[name]),
            },
        )
    for percent in PERCENTS:
        at_percent = {name: float(np.percentile(seconds, percent)) * 1e3 for name, seconds in paced.items()}
        found.add("Latency at the paper's rate, ms", {"percentile": percent, **at_percent})
    log = durable["durability"]
    found.add(
        "The log",
        {
            "MB/s at the paper's rate": log["log_bytes_written"] / len(batches) / BATCH_MS / 1e3,
            "bytes a tuple": log["log_bytes_written"] / len(batches) / tuples,
            "syncs per stream batch of all five": log["log_syncs"] / len(batches),
            "checkpoints meanwhile": log["checkpoints"],
        },
    )


def _measure_recovery(found: Report, folder: Path, batches: list[dict[str, Encoded]], step: int, tuples: int) -> None:
    source = folder / "logged"
    settings = Settings(checkpoint_bytes=1 << 40)
    fed = Fed(wukongs.Engine(source, settings=settings))
    for number, batch in enumerate(batches, 1):
        fed.feed(batch, number)
        if number % step == 0:
            copy = folder / "crashed"
            shutil.copytree(source, copy)
            log_bytes = sum(path.stat().st_size for path in (copy / "log").iterdir())
            began, began_cpu = time.perf_counter(), time.process_time()
            engine = wukongs.Engine(copy, settings=settings)
            seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
            expected = fed.engine.stats()["stored_triples"]
            found.check(f"triples after recovery of {number} stream batches", expected, _stored(engine))
            engine.close()
            shutil.rmtree(copy)
            found.add(
                "Recovery from a log, no checkpoint",
                {
                    "log MB": log_bytes / 1e6,
                    "tuples": number * tuples,
                    "seconds": seconds,
                    "CPU seconds": cpu,
                    "K tuples/s": number * tuples / seconds / 1e3,
                },
            )
    fed.close()


def _stored(engine: wukongs.Engine) -> int:
    return int(engine.stats()["stored_triples"])


def plot(found: Report, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    latency = found.tables["Latency at the paper's rate, ms"]
    for name in ("in memory", "data folder"):
        left.plot([row[name] for row in latency], [1 - row["percentile"] / 100 for row in latency], label=name)
    left.set(xscale="log", yscale="log", xlabel="ms from handing in to safe and visible", ylabel="share that is slower")
    left.set_title("Five streams, a stream batch of 100 ms, at the paper's rates")
    left.legend()
    rows = found.tables["Recovery from a log, no checkpoint"]
    right.plot([row["log MB"] for row in rows], [row["seconds"] for row in rows], marker="o")
    right.set(xlabel="log, MB", ylabel="seconds to open", xlim=(0, None), ylim=(0, None))
    right.set_title("Opening a folder after a crash")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)

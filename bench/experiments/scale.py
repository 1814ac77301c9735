"""scale: how users, stored triples and rates grow on this machine: 1 K, 10 K, 100 K users, and as many as fit.

The stored graph of each number of users (about 920 triples for a user) is written as N-Triples, loaded by
`wukongs load` into a data folder in a process of its own, opened again, and asked S1 to S6: `load`, `reopen` (`cold`:
until the first answer, with its files in no cache), the `size` of a triple without its strings, the `disk` that the
folder takes, the `peak` of the loading process's memory; `first` and `execution` of the queries. Counts are compared
with what the network's rules say. The files go into a temporary folder (about 200 bytes a triple at once), which is
removed.

Then L1-L6 are registered over networks with streams, of up to RATE_USERS users, at 0.25 to 8 times the rates, as the
experiment `rate` does it, whose figures have the number of users in their case. More users have more stored triples
than pyoxigraph, with which answers are compared, holds beside the engine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.experiments import rate
from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.harness import ROOT, WrongAnswer, repeat
from wukongs.bench.lsbench.data import QUICK_DATA, generate_lsbench
from wukongs.bench.lsbench.replay import feed_of
from wukongs.bench.peers import WUKONGS
from wukongs.bench.record import say
from wukongs.bench.scale.network import TRIPLES_PER_USER, Network
from wukongs.bench.scale.queries import one_shot_queries
from wukongs.cli.folder_query import open_folder
from wukongs.engine import Engine

EXPERIMENT = "scale"
GRAPH = "graph"
"""The query of figures that are of the graph as a whole."""
USERS, QUICK_USERS = (1_000, 10_000, 100_000), (5, 12)
RATE_USERS = 10_000
PARTS, REPEATS = 8, 20
CHECKED = "the network's rules"
DISK_BYTES, MEMORY_BYTES = 200 * TRIPLES_PER_USER, 70 * TRIPLES_PER_USER
"""About what a user takes."""
Figures = list[tuple[str, str, str, list[float], int | None]]
"""query, metric, unit, values, rows."""


def run(
    session: Session, users: int | None, settings_of: Callable[[int], NetworkSettings], rates: Sequence[float]
) -> None:
    """Measure what is not done. users: this number only; settings_of: networks with streams; rates: as rate.run."""
    counts = (users,) if users is not None else QUICK_USERS if session.is_quick else (*USERS, *_largest())
    for count in counts:
        _run_stored(session.with_case(users=count), count)
    if not session.queries or any(session.wants(f"L{number}") for number in range(1, 7)):
        for count in (QUICK_DATA.users,) if session.is_quick else counts:
            _run_rates(session.with_case(users=count), count, settings_of, rates)


def _run_rates(
    session: Session, users: int, settings_of: Callable[[int], NetworkSettings], rates: Sequence[float]
) -> None:
    cases = [{**rate.of_queries(session).case, "rate": one} for one in rates]
    if all(session.record.is_done(rate.EXPERIMENT, rate.ALL, WUKONGS, case) for case in cases):
        return
    if users > RATE_USERS:
        told = f"not tried: {REFERENCE} does not hold the triples of more than {RATE_USERS:,} users beside the engine"
        session.record.skipped(rate.EXPERIMENT, rate.ALL, WUKONGS, cases[0], told)
        return
    say(f"{EXPERIMENT}: making a network of {users:,} users with streams")
    data = generate_lsbench(QUICK_DATA if session.is_quick else settings_of(users))
    rate.run(session, lambda one: feed_of(data, one), rates)


def _largest() -> tuple[int, ...]:
    """Return how many users fit into the temporary folder and the memory that are free, if that is more than USERS."""
    free = shutil.disk_usage(tempfile.gettempdir()).free // DISK_BYTES
    try:
        free = min(free, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEMORY_BYTES)
    except (ValueError, OSError):
        return ()
    rounded = free // 50_000 * 50_000
    return (rounded,) if rounded > USERS[-1] else ()


def _run_stored(session: Session, users: int) -> None:
    if not session.wants(GRAPH) or not session.open(EXPERIMENT, GRAPH, (WUKONGS,), session.case, "load"):
        return
    network = Network(users)
    session.begin(f"{EXPERIMENT}: {users:,} users, {network.triple_count:,} triples")
    with tempfile.TemporaryDirectory(prefix="wukongs-scale-") as folder:
        try:
            found = _measure(network, Path(folder), 3 if session.is_quick else REPEATS)
        except WrongAnswer as error:
            session.record.skipped(EXPERIMENT, GRAPH, WUKONGS, session.case, f"answers otherwise: {error}")
            return
    busy = session.busy()
    for query, metric, unit, values, rows in found:
        key = (EXPERIMENT, query, WUKONGS, session.case, metric)
        session.record.measured(*key, values, unit=unit, rows=rows, checked=CHECKED, busy=busy)


def _measure(network: Network, folder: Path, repeats: int) -> Figures:
    """Generate, load, open and ask. Raises WrongAnswer."""
    text, data, threads = folder / "text", folder / "data", os.cpu_count() or 1
    text.mkdir()
    began_s = time.perf_counter()
    files = network.write(text, PARTS, threads)
    say(f"  {network.line_count:,} lines written in {time.perf_counter() - began_s:.0f} s")
    load_s, peak_bytes = _load(network, files, data, threads)
    shutil.rmtree(text)
    disk_bytes = sum(path.stat().st_size for path in data.iterdir())
    began_s = time.perf_counter()
    with open_folder(data) as engine:
        reopen_s = time.perf_counter() - began_s
        found = _ask(engine, network, repeats)
        stats = engine.stats()
        _check("stored triples", network.triple_count, stats["stored_triples"])
        size = stats["stored_bytes"] / stats["stored_triples"]
    first = next(iter(one_shot_queries(network.users // 2, 0).values()))
    cold_s = _reopen_cold(data, first) if hasattr(os, "posix_fadvise") else []
    rows = network.triple_count
    return [
        *found,
        (GRAPH, "reopen", "s", [reopen_s], rows),
        *((GRAPH, "reopen, cold", "s", [one_s], rows) for one_s in cold_s),
        (GRAPH, "size", "bytes", [size], rows),
        (GRAPH, "disk", "GB", [disk_bytes / 1e9], rows),
        (GRAPH, "peak", "GB", [peak_bytes / 1e9], rows),
        (GRAPH, "load", "triples/s", [network.line_count / load_s], rows),
    ]


def _reopen_cold(data: Path, text: str) -> list[float]:
    """Open a folder of which the system has nothing in its cache, and ask; return the seconds."""
    os.sync()
    for path in data.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began_s = time.perf_counter()
    with open_folder(data) as engine:
        engine.query(text).texts()
        return [time.perf_counter() - began_s]


def _load(network: Network, files: Sequence[Path], data: Path, threads: int) -> tuple[float, int]:
    """Load with the command, in a process of its own; return its seconds and the most memory that it held."""
    command = [sys.executable, "-m", "wukongs", "load", "--workers", str(threads), "--data-dir", str(data)]
    began_s = time.perf_counter()
    with subprocess.Popen([*command, *map(str, files)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began_s
    counts = re.search(r"^triples: ([\d,]+) read, ([\d,]+) new, ([\d,]+) duplicates", told, re.MULTILINE)
    numbers = [int(number.replace(",", "")) for number in counts.groups()] if counts else []
    _check("exit status of the load", 0, process.returncode)
    expected = [network.line_count, network.triple_count, network.line_count - network.triple_count]
    _check("read, new and duplicate triples", expected, numbers)
    return seconds, usage.ru_maxrss * 1024


def _ask(engine: Engine, network: Network, repeats: int) -> Figures:
    """Ask S1 to S6 for one user and one group, and compare the rows with the network's rules."""
    user = network.users // 2
    group = user // 25
    expected = network.answers(user, group)
    likes = "SELECT (COUNT(*) AS ?n) WHERE { ?s <http://www.ins.cwi.nl/sib/vocabulary/like> ?o }"
    _check("likes", network.like_count, int(str(next(iter(engine.query(likes)))[0])))
    found: Figures = []
    for name, text in one_shot_queries(user, group).items():
        began_s = time.perf_counter()
        rows = len(engine.query(text))
        first_s = time.perf_counter() - began_s
        _check(name, expected[name], rows)
        took_s = repeat(lambda text=text: engine.query(text), repeats)  # type: ignore[misc]
        found.append((name, "first", "ms", [first_s * 1e3], rows))
        found.append((name, "execution", "ms", [one * 1e3 for one in took_s], rows))
    return found


def _check(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise WrongAnswer(f"{what}: {expected} expected ({CHECKED}), {found} found")

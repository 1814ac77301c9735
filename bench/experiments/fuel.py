"""fuel (figure 5e of the paper on shared arrangements): how long an insert takes while the trace merges, with eager,
default and lazy fuel.

Updates come in small seals to one writer. `insert` is building a batch and sealing it, with all merging that falls on
it, in CPU time of the thread. `latency` lays arrivals at RATE_PER_S rows a second over these times: one insert is
served at a time, and waiting counts. (Where the writer is busy for more than 100 %, it only says how long the run
was.) `batches` are those that a reader would find, after so many seals. Newness, which the arrangement decides
before, is no part of it. The paper's figure has no numbers in its text.
"""

from __future__ import annotations

import gc
import time

import numpy as np
import numpy.typing as npt

from wukongs.bench.experiments.session import Session
from wukongs.bench.peers import WUKONGS
from wukongs.store.batch import build_batch
from wukongs.store.dtypes import Int64Array
from wukongs.store.fuel import UNLIMITED_FUEL
from wukongs.store.trace import FUEL_PER_ROW, Trace

Floats = npt.NDArray[np.float64]
EXPERIMENT = "fuel"
RATE_PER_S = 1_000_000
SEAL_ROWS, SEALS = 5_000, 2_000
FUELS = {"eager": UNLIMITED_FUEL // (1 << 32), "default": FUEL_PER_ROW, "lazy": FUEL_PER_ROW // 4}
QUERIES = tuple(FUELS)
OBJECTS = 1 << 20
ROWS_PER_SUBJECT = 10
CHECKED = "rows and their sum"
_POINTS = 12


def run(session: Session) -> None:
    """Seal the same updates under each fuel that is not done."""
    seals, rows = (30, 200) if session.is_quick else (SEALS, SEAL_ROWS)
    session = session.with_case(rows_of_a_seal=rows)
    for name, fuel in FUELS.items():
        if not session.wants(name) or not session.open(EXPERIMENT, name, (WUKONGS,), session.case, "latency"):
            continue
        session.begin(f"{EXPERIMENT}: {name}: {seals:,} seals of {rows:,} rows")
        seal_all(fuel, 5, rows)  # compiles
        trace, sealed, service_s, batches = seal_all(fuel, seals, rows)
        why = _wrong(trace, sealed)
        del trace
        if why:
            session.record.skipped(EXPERIMENT, name, WUKONGS, session.case, f"answers otherwise: {why}")
            continue
        busy = session.busy()
        for at in np.unique(np.linspace(0, seals - 1, min(seals, _POINTS)).astype(int)).tolist():
            case = {**session.case, "seals": at + 1}
            values = [float(batches[at])]
            session.record.measured(
                EXPERIMENT, name, WUKONGS, case, "batches", values, unit="batches", checked=CHECKED, busy=busy
            )
        key = (EXPERIMENT, name, WUKONGS, session.case)
        waited_s = waiting_and_service(service_s, rows / RATE_PER_S)
        for metric, seconds in (("insert", service_s), ("latency", waited_s)):
            values = (seconds * 1e3).tolist()
            session.record.measured(*key, metric, values, rows=seals * rows, checked=CHECKED, busy=busy)


def updates(number: int, rows: int, objects: Int64Array) -> tuple[Int64Array, ...]:
    """Return the columns of seal `number`: new subjects, ten rows each, over four predicates; no row twice."""
    rng = np.random.default_rng(number)
    subjects = np.repeat(rng.integers(1, 1 << 62, -(-rows // ROWS_PER_SUBJECT), np.int64) << 1, ROWS_PER_SUBJECT)[:rows]
    predicates = (np.arange(1, 5, dtype=np.int64) << 60)[np.arange(rows) % 4]
    places = (rng.integers(0, OBJECTS) + np.arange(rows)) * 40_503 % OBJECTS  # all different
    return np.full(rows, 4, np.int64), subjects, predicates, objects[places]


def seal_all(fuel: int, seals: int, rows: int) -> tuple[Trace, list[tuple[int, int]], Floats, Int64Array]:
    """Seal all updates; return the trace, and of each seal its rows and their sum, its seconds of CPU time, and how
    many batches there were after it."""
    objects = np.random.default_rng(1).integers(1, 1 << 62, OBJECTS, np.int64) << 1
    trace = Trace("updates", fuel)
    sealed: list[tuple[int, int]] = []
    seconds, batches = np.empty(seals), np.empty(seals, np.int64)
    gc.collect()
    gc.disable()
    try:
        for number in range(seals):
            columns = updates(number, rows, objects)
            began = time.thread_time()
            trace.seal(number, build_batch(*columns))
            seconds[number] = time.thread_time() - began
            sealed.append((rows, int((columns[1] ^ columns[3]).sum(dtype=np.uint64))))
            batches[number] = trace.batch_count
    finally:
        gc.enable()
    return trace, sealed, seconds, batches


def _wrong(trace: Trace, sealed: list[tuple[int, int]]) -> str:
    """Compare what the trace holds with what was sealed: as many rows, with the same sum of subjects and objects.
    Return the difference, in words."""
    held = trace.read(trace.upper).batches
    rows, total = sum(map(len, held)), 0
    for batch in held:
        _, subjects, _, objects = batch.triples()
        total += int((subjects ^ objects).sum(dtype=np.uint64))
    expected, expected_total = (sum(parts) for parts in zip(*sealed, strict=True))
    if rows != expected:
        return f"{expected} rows were sealed, {rows} are held"
    return "" if (total - expected_total) % 2**64 == 0 else "other rows than were sealed"


def waiting_and_service(service_s: Floats, interval_s: float) -> Floats:
    """Return how long each insert takes from its arrival on, when one arrives each interval_s and one is served at a
    time."""
    latency = np.empty(len(service_s))
    free_at_s = 0.0
    for i, seconds in enumerate(service_s):
        arrival_s = i * interval_s
        free_at_s = max(free_at_s, arrival_s) + seconds
        latency[i] = free_at_s - arrival_s
    return latency

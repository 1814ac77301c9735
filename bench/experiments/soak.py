"""soak: an hour at the paper's rates with everything on. Does anything grow?

One engine with a data folder; LSBench's five streams by the clock; L1-L6 and 50 aggregates registered, S1-S6 asked by
turns four times a second meanwhile, and the windows of L3 read over HTTP. Every SAMPLE_S seconds a case `minute` has:
`latency`, from the moment when a stream batch was due until a window of L1-L6 is in on_result; `subscriber`, the same
until it is read over HTTP; `one-shot`; `memory` that the process holds; `folder` and `files`; `behind`, how late a call
began at most. A sample in which no window came has no latency: the next one has what they waited. The stream batches
come again after a while, so that what is absorbed is there already, and the stored graph stays as it is: what grows
then is ours.

`growth` is the slope of a line through the samples of a figure but for the first fifth, in percent of their median over
the time of the run. Windows have to come once each, in order, and those of some places of the data with the rows that
sets and dictionaries give. A soak that was stopped begins anew.
"""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import numpy as np

from wukongs.bench.continuous.firing import Replay, replaying, text_of
from wukongs.bench.continuous.workload import Workload, make_workload
from wukongs.bench.experiments.session import Session
from wukongs.bench.lsbench.data import IRI
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.memory import resident_bytes
from wukongs.bench.nodes.soak import Reader
from wukongs.bench.peers import WUKONGS
from wukongs.bench.record import say
from wukongs.bench.scale.queries import one_shot_queries
from wukongs.bench.store.injection import BATCH_MS
from wukongs.errors import WukongsError
from wukongs.live.usage import folder_usage
from wukongs.server.http_server import HttpServer, HttpSettings

EXPERIMENT = "soak"
QUERY = "everything"
MINUTES, QUICK_MINUTES = 60.0, 0.1
STORED, BATCHES, SAMPLE_S = 3_000_000, 600, 10.0
AGGREGATES = 50
CHECKED = "sets and dictionaries"
READ_S = 60.0
LEFT_OUT = 5
"""The first fifth of the samples is no part of a slope: caches fill, and stream batches come for the first time."""
FLAT_PERCENT = 5.0
SLOPE_SAMPLES_MIN = 3
"""Fewer samples have no slope."""
_PREFIXES = "PREFIX sioc: <http://rdfs.org/sioc/ns#> PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/> "
_FUNCTIONS = ("COUNT(?post)", "COUNT(DISTINCT ?tag)", "MIN(?post)", "MAX(?tag)", "SAMPLE(?tag)")
Sample = dict[str, tuple[str, list[float]]]
"""metric -> unit and values."""


def run(session: Session, minutes: float | None) -> None:
    """Run it, if it is not done. minutes: how long (default: MINUTES)."""
    minutes = minutes or (QUICK_MINUTES if session.is_quick else MINUTES)
    session = session.with_case(minutes=minutes)
    if not session.wants(QUERY) or not session.open(EXPERIMENT, QUERY, (WUKONGS,), session.case, "growth of memory"):
        return
    session.record.forget(EXPERIMENT)
    is_quick = session.is_quick
    workload = make_workload(5_000 if is_quick else STORED, 30 if is_quick else BATCHES, 50 if is_quick else 1)
    session.begin(f"{EXPERIMENT}: {minutes:g} minutes over {workload.data.stored_count:,} stored triples")
    with TemporaryDirectory() as folder, replaying(workload, Path(folder) / "data") as replay:
        soak = _Soak(session, replay, workload, Path(folder))
        soak.register()
        server = HttpServer(replay.engine, HttpSettings(port=0))
        try:
            soak.subscribe(server.address)
            soak.run(minutes * 60, 1.0 if is_quick else SAMPLE_S)
            wrong = soak.wrong()
        finally:
            server.close()
    if wrong:
        session.record.skipped(EXPERIMENT, QUERY, WUKONGS, session.case, f"answers otherwise: {wrong}")
        return
    busy = session.busy()
    if (unchecked := soak.unchecked()) or len(soak.samples) < SLOPE_SAMPLES_MIN:
        told = f"{len(soak.samples)} samples, {SLOPE_SAMPLES_MIN} are needed to tell what grew"
        told = f"the run was too short: {f'no window of {unchecked[0]} was compared' if unchecked else told}"
        session.record.skipped(EXPERIMENT, QUERY, WUKONGS, session.case, told)
        return
    for metric in ("latency", "subscriber", "one-shot", "folder", "files", "memory"):
        over_time = medians_of(metric, soak.minutes, soak.samples)
        percent = slope_percent([minute for minute, _ in over_time], [value for _, value in over_time])
        if percent is not None:
            told = "flat" if abs(percent) <= FLAT_PERCENT else f"not flat: {percent:+.1f} % over the run"
            say(f"  {metric}: {told}")
            key = (EXPERIMENT, QUERY, WUKONGS, session.case, f"growth of {metric}")
            session.record.measured(*key, [percent], unit="%", checked=CHECKED, busy=busy)


def medians_of(metric: str, minutes: Sequence[float], samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return (minute, median) of the samples that have a metric: none has windows if none came."""
    pairs = zip(minutes, samples, strict=True)
    return [(minute, float(np.median(sample[metric][1]))) for minute, sample in pairs if metric in sample]


def slope_percent(minutes: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the slope of the line through all samples but the first fifth, in percent of their median over the time of
    the run; None for fewer than three."""
    first = len(values) // LEFT_OUT
    at, kept = np.asarray(minutes[first:]), np.asarray(values[first:])
    if len(kept) < SLOPE_SAMPLES_MIN or not np.median(kept):
        return None
    return round(float(np.polyfit(at, kept, 1)[0]) * minutes[-1] / float(np.median(kept)) * 100, 6)


@dataclass(slots=True)
class Subscriber:
    """Reads the windows of a query over HTTP, as server-sent events, from the moment when it is there. due_s and all
    else: as a Reader has them."""

    due_s: Mapping[int, float]
    came: int = 0
    latency_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def begin(self, address: str, query: str) -> None:
        """Connect, and read in a thread of its own until the server ends."""
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        connection.request("GET", f"/queries/{query}/windows?after=now", headers={"Accept": "text/event-stream"})
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: http.client.HTTPConnection) -> None:
        try:
            answer = connection.getresponse()
            if answer.status != 200:
                self.wrong.append(f"a subscriber was answered {answer.status}")
            for line in answer:
                if line.startswith(b"id: "):
                    number = int(line[4:]) // BATCH_MS
                    if self.came and number != self.came + 1:
                        self.wrong.append(f"window {number} behind {self.came}")
                    self.came = number
                    self.latency_s.append(time.perf_counter() - self.due_s[number])
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.wrong.append(f"a subscriber failed: {error}")


class _Soak:
    """One run. minutes, samples: what was measured, and when."""

    def __init__(self, session: Session, replay: Replay, workload: Workload, folder: Path) -> None:
        self.minutes: list[float] = []
        self.samples: list[Sample] = []
        self._session, self._replay, self._workload, self._folder = session, replay, workload, folder
        self._due_s: dict[int, float] = {}
        self._readers: dict[str, Reader] = {}
        self._asked_s: list[float] = []
        self._failed: list[str] = []
        self._user = workload.posters[0]
        self._subscriber = Subscriber(self._due_s)

    def register(self) -> None:
        batches = self._workload.batches
        places = range(10, len(batches), max(1, len(batches) // 10))
        for query in QUERIES:
            wanted = {at: self._workload.answer(query.name, self._user, at) for at in places}
            self._readers[query.name] = Reader(self._workload, self._due_s, wanted)
            self._replay.engine.register(text_of(query, self._user, query.name), self._readers[query.name])
        for number in range(AGGREGATES):
            self._replay.engine.register(_grouped(number), lambda window: None)

    def subscribe(self, address: str) -> None:
        self._subscriber.begin(address, "L3")

    def run(self, seconds: float, sample_s: float) -> None:
        """Push a stream batch each 100 ms, and take a sample now and then."""
        ends = threading.Event()
        asker = threading.Thread(target=self._ask, args=(ends,))
        asker.start()
        try:
            began_s, sampled_s, late_s = time.perf_counter(), 0.0, 0.0
            while (passed_s := time.perf_counter() - began_s) < seconds:
                end_ms, tables = self._replay.next_tables()
                self._due_s[self._replay.number] = due_s = began_s + end_ms / 1000
                late_s = max(late_s, time.perf_counter() - due_s)
                time.sleep(max(0.0, due_s - time.perf_counter()))
                self._replay.engine.push_many(tables, end_ms)
                if passed_s - sampled_s >= sample_s:
                    self._sample(passed_s / 60, late_s)
                    sampled_s, late_s = passed_s, 0.0
        finally:
            ends.set()
            asker.join()

    def _sample(self, minute: float, late_s: float) -> None:
        windows = [1e3 * one for reader in self._readers.values() for one in _taken(reader.latency_s)]
        asked = [1e3 * one for one in _taken(self._asked_s)]
        files = sum(path.is_file() for path in self._folder.rglob("*"))
        sample: Sample = {
            "latency": ("ms", windows),
            "subscriber": ("ms", [1e3 * one for one in _taken(self._subscriber.latency_s)]),
            "one-shot": ("ms", asked),
            "memory": ("MB", [resident_bytes() / 1e6]),
            "folder": ("MB", [folder_usage(self._folder / "data")["folder_bytes"] / 1e6]),
            "files": ("files", [float(files)]),
            "behind": ("ms", [1e3 * late_s]),
        }
        sample = {metric: one for metric, one in sample.items() if one[1]}
        self.minutes.append(minute)
        self.samples.append(sample)
        case = {**self._session.case, "minute": round(minute, 2)}
        busy = self._session.machine.busy()
        for metric, (unit, values) in sample.items():
            self._session.record.measured(
                EXPERIMENT, QUERY, WUKONGS, case, metric, values, unit=unit, checked=CHECKED, busy=busy
            )
        least = min(self._subscriber.came, *(reader.came for reader in self._readers.values()))
        for old in [number for number in self._due_s if number < least - 1]:
            del self._due_s[old]
        if len(self.samples) % 6 == 0:
            told = f"latency {np.median(windows):.2f} ms" if windows else "no windows"
            say(f"  minute {minute:.1f}: {told}, {sample['memory'][1][0]:,.0f} MB")

    def _ask(self, ends: threading.Event) -> None:
        """Ask S1-S6 by turns, four times a second."""
        texts = itertools.cycle(one_shot_queries(int(self._user[1:]), 1).values())
        while not ends.wait(0.25):
            began_s = time.perf_counter()
            try:
                self._replay.engine.query(next(texts))
            except WukongsError as error:
                self._failed.append(str(error))
            self._asked_s.append(time.perf_counter() - began_s)

    def wrong(self) -> str:
        """Wait for the last windows; return the first difference, empty if there is none."""
        last, deadline_s = self._replay.number, time.perf_counter() + READ_S
        readers: dict[str, Reader | Subscriber] = {**self._readers, "L3 over HTTP": self._subscriber}
        while any(one.came < last for one in readers.values()) and time.perf_counter() < deadline_s:
            time.sleep(0.1)
        for name, reader in readers.items():
            if reader.wrong or reader.came != last:
                return f"{name}: {reader.wrong[0] if reader.wrong else f'{last} windows expected, {reader.came} found'}"
        return self._failed[0] if self._failed else ""

    def unchecked(self) -> list[str]:
        """Return the queries of which no window was compared."""
        return [name for name, reader in self._readers.items() if not reader.checked]


def _taken(samples: list[float]) -> list[float]:
    """Take what is in a list that another thread appends to."""
    found = samples[:]
    del samples[: len(found)]
    return found


def _grouped(number: int) -> str:
    """Return the text of an aggregate over the posts; RANGE goes from 1 to 10 s."""
    variable, function = ("?user", "?tag")[number % 2], _FUNCTIONS[number % len(_FUNCTIONS)]
    return (
        f"REGISTER QUERY a{number} AS {_PREFIXES} SELECT {variable} ({function} AS ?n) "
        f"FROM NAMED STREAM <{IRI['PO']}> [RANGE {1 + number % 10}s STEP 100ms] "
        f"WHERE {{ GRAPH <{IRI['PO']}> {{ ?user sioc:creator_of ?post . ?post sib:hashtag ?tag }} }} "
        f"GROUP BY {variable}"
    )

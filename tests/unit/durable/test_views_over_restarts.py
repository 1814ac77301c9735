"""Live views in a data folder. A reader keeps the sum of its reports and its position where the engine does not know of
it, as in a file of its own. Wherever the engine is killed, the sum that it goes on with is the query asked once.

A crash is a folder whose log ends with some record: what the reader has kept by then is known, too."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.inside import core_of
from wukongs.store.wal import RECORD_HEADER_BYTES, SEGMENT_HEAD_BYTES, WriteAheadLog

EX = "PREFIX : <http://ex/> "
TEXTS = {
    "hops": "SELECT ?a ?c WHERE { ?a :p ?b . ?b :q ?c }",
    "number": "SELECT ?b (COUNT(*) AS ?n) (SUM(?v) AS ?t) WHERE { ?a :p ?b . ?a :v ?v } GROUP BY ?b",
    "maybe": "SELECT ?a ?b ?v WHERE { ?a :p ?b OPTIONAL { ?b :v ?v } }",
    "each": "SELECT DISTINCT ?b (CONCAT(STR(?b), '!') AS ?s) WHERE { ?a :p ?b }",
    "first": "SELECT ?a ?v WHERE { ?a :v ?v } ORDER BY ?v ?a LIMIT 3",
    "bound": "SELECT ?b ?c WHERE { ?a :p ?b . ?b :q ?c }",
    "periods": "SELECT ?a ?b WHERE { ?a :p ?b }",
}
"""The view `bound` has arguments for ?a; `periods` reports every 100 ms of the stream."""
CLOCK = "http://ex/clock"
Row = tuple[Any, ...]
Kept = tuple[tuple[int, int], Counter[Row]]


def rows_of(rows: Any) -> list[Row]:
    return [tuple(None if term is None else str(term) for term in row) for row in rows]


@dataclass
class Reader:
    """position: None: it has read nothing yet. kept: what it had kept, by the record that the log ended with then."""

    position: tuple[int, int] | None = None
    sum: Counter[Row] = field(default_factory=Counter)
    resets: int = 0
    changes: int = 0
    skipped: int = 0
    kept: list[tuple[int, Kept]] = field(default_factory=list)

    def take(self, report: Any) -> None:
        end = (report.snapshot, report.minor)
        if report.is_reset:
            self.sum, self.resets = Counter(), self.resets + 1
        else:
            assert self.position is not None, "the first report is a reset"
            if end <= self.position:
                self.skipped += 1
                return
            assert report.after <= self.position[0], (report.after, self.position)
            self.changes += 1
        for row, weight in report.changes():
            (key,) = rows_of([row])
            self.sum[key] += weight
        self.sum = Counter({row: count for row, count in self.sum.items() if count})
        assert all(count > 0 for count in self.sum.values()), self.sum
        self.position = end

    def as_of(self, lsn: int) -> Reader:
        """Return the reader as it was when the log ended with a record."""
        found = [kept for at, kept in self.kept if at <= lsn]
        return Reader(found[-1][0], Counter(found[-1][1])) if found else Reader()


class Life:
    """An engine with one view of each text, and a reader of a named cursor for each."""

    def __init__(self, folder: Path, readers: dict[str, Reader] | None = None, **settings: Any) -> None:
        self.engine = wukongs.Engine(folder, settings=wukongs.Settings(**settings))
        is_new = not self.engine.stats()["streams"]
        self.stream = self.engine.stream(CLOCK, batch_ms=100, timing=True)
        if is_new:
            self.stream.advance(0)  # else the first periods are of wall time
        self.views: dict[str, Any] = {}
        for name, text in TEXTS.items():
            options: dict[str, Any] = {"bindings": [{"a": "<http://ex/n1>"}]} if name == "bound" else {}
            options |= {"every_ms": 100} if name == "periods" else {}
            self.views[name] = self.engine.register(f"{EX} REGISTER QUERY {name} AS {text}", **options)
        self.readers = readers or {name: Reader() for name in TEXTS}

    @property
    def lsn(self) -> int:
        return int(self.engine.stats()["durability"]["durable_lsn"])

    def read(self, name: str, count: int = 1 << 30) -> None:
        """Have a reader take some reports. It keeps each before it acknowledges it."""
        reader = self.readers[name]
        for number, report in enumerate(self.views[name].results(timeout_s=0, group="reader")):
            reader.take(report)
            assert reader.position is not None
            reader.kept.append((self.lsn, (reader.position, Counter(reader.sum))))
            if number + 1 == count:
                break

    def step(self, rng: random.Random, number: int) -> None:
        node = lambda: f":n{rng.randrange(5)}"  # noqa: E731
        added = [f"{node()} {rng.choice([':p', ':q'])} {node()}", f"{node()} :v {rng.randrange(6)}"]
        removed = [f"{node()} ?p ?o"] if rng.random() < 0.5 else []
        delete = f"DELETE WHERE {{ {removed[0]} }} ; " if removed else ""
        self.engine.update(f"{EX} {delete} INSERT DATA {{ {' . '.join(added)} }}")
        if rng.random() < 0.3:
            self.stream.advance(100 * number)
        if rng.random() < 0.3:
            self.views["bound"].bind([{"a": f"<http://ex/n{rng.randrange(5)}>"}])
        if rng.random() < 0.15 and (bound := sorted(self.arguments())):
            self.views["bound"].unbind([rng.choice(bound)])
        if rng.random() < 0.8:
            self.engine.settle(60)
        for name in TEXTS:
            if rng.random() < 0.4:
                self.read(name, rng.randrange(1, 4))

    def arguments(self) -> dict[int, str]:
        """The arguments of `bound` that are bound, by their numbers."""
        view = self.views["bound"]
        numbers, terms = view.arguments.newest.rows().columns
        texts = core_of(self.engine).registry.snapshot_reader().texts
        return {int(text.split('"')[1]): term for text, term in zip(texts(numbers), texts(terms), strict=True)}

    def check(self, number: int) -> None:
        """Have all readers read to the end: each sum is the query asked once."""
        self.stream.advance(100 * number)
        self.engine.settle(60)
        for name, text in TEXTS.items():
            self.read(name)
            if name == "bound":
                expected = Counter[Row]()
                for argument, term in self.arguments().items():
                    found = self.engine.query(EX + text.replace("?a", term))
                    expected.update((f"{argument}", *row) for row in rows_of(found))
            else:
                expected = Counter(rows_of(self.engine.query(EX + text)))
            assert self.readers[name].sum == expected, name


def ends(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield each record behind the head of the newest segment: (the segment, the number, the byte behind it)."""
    wal = WriteAheadLog(folder / "log", is_read_only=True)
    head = wal.segments()[-1]
    at = SEGMENT_HEAD_BYTES
    for record in wal.read(head):
        at += RECORD_HEADER_BYTES + len(record.payload)
        yield wal.path(head), record.lsn, at


def killed_of(engine: wukongs.Engine, folder: Path) -> Path:
    """Return a copy of the data folder, as it is when the engine is killed; close the engine."""
    shutil.copytree(folder / "data", folder / "killed")
    engine.close()
    return folder / "killed"


def cuts(killed: Path, rng: random.Random, count: int, after_lsn: int = 0) -> Iterator[tuple[Path, int]]:
    """Yield copies of a folder whose newest segment ends with some record behind after_lsn, and that record."""
    records = [one for one in ends(killed) if one[1] >= after_lsn]
    for segment, lsn, size in rng.sample(records, min(count, len(records))):
        folder = killed.with_name(f"cut{lsn}")
        shutil.copytree(killed, folder)
        with (folder / "log" / segment.name).open("r+b") as file:
            file.truncate(size)
        yield folder, lsn


@pytest.mark.parametrize(("seed", "has_checkpoint"), [(1, False), (2, True)])
def test_the_sum_stays_right_wherever_the_engine_is_killed(tmp_path: Path, seed: int, has_checkpoint: bool) -> None:
    rng = random.Random(seed)
    life, steps = Life(tmp_path / "data"), 12
    for number in range(1, steps + 1):
        life.step(rng, number)
        if number == 3:
            for name in TEXTS:
                life.read(name, 2)
        if has_checkpoint and number == steps // 2:
            life.engine.checkpoint()
    killed = killed_of(life.engine, tmp_path)
    all_read = max(min(lsn for lsn, _ in reader.kept) for reader in life.readers.values())
    counts = Counter[str]()
    for folder, lsn in cuts(killed, rng, 3, all_read):
        again = Life(folder, {name: reader.as_of(lsn) for name, reader in life.readers.items()})
        try:
            for name in TEXTS:
                if rng.random() < 0.5:
                    again.engine.settle(60)
                    again.read(name, 1)
            again.step(rng, steps + 1)
            again.check(steps + 2)
            again.engine.close()
        except BaseException as error:
            error.add_note(f"seed {seed}, the log ends with record {lsn}")
            raise
        for reader in again.readers.values():
            counts += Counter(resets=reader.resets, changes=reader.changes, skipped=reader.skipped)
    assert min(counts["changes"], counts["skipped"]) > 0, counts

"""What the simulated streams, loads and updates are about: edges between terms whose 16-bit hashes clash on purpose."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

Edge = tuple[str, str, str]
Id = tuple[int, int]
"""(16-bit hash, 0), or (16-bit hash, number of the re-encoding)."""
IdEdge = tuple[Id, Id, Id]


@cache
def hash16(text: str) -> int:
    return zlib.crc32(text.encode()) & 0xFFFF


@cache
def clashing_texts() -> tuple[tuple[str, ...], ...]:
    """Groups of texts with one hash."""
    found: dict[int, list[str]] = {}
    for number in range(2000):
        found.setdefault(hash16(f"v{number}"), []).append(f"v{number}")
    return tuple(tuple(texts) for texts in found.values() if len(texts) > 1)


@dataclass(frozen=True)
class Row:
    offset: int
    edge: Edge


@dataclass
class StreamData:
    """One stream. numbers: per partition, the stream batches at which it sends something, the last one its last; rows:
    what it has in them; ends: the row behind each one's last, rows that were set aside included. key: what it is called
    once it is declared, by the record with this index; replaces: the key of the one before it. out_of_order: the
    partitions whose rows come so."""

    name: str
    group: str
    batch_ticks: int
    first_tick: int
    starts: float
    partitions: tuple[str, ...]
    replaces: str = ""
    key: str = ""
    index: int = 0
    numbers: dict[str, list[int]] = field(default_factory=dict)
    rows: dict[tuple[str, int], list[Row]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    out_of_order: set[str] = field(default_factory=set)
    is_timing: bool = False
    """Nothing of it is stored, as far as its options say: rules do not wait for it."""

    @property
    def options(self) -> str:
        told = f"{self.name} from {self.starts} on"
        return json.dumps({"timing": True, "of": told}) if self.is_timing else told

    @property
    def last(self) -> int:
        return max(numbers[-1] for numbers in self.numbers.values())

    def edges(self, batch: int) -> set[Edge]:
        return {row.edge for name in self.partitions for row in self.rows.get((name, batch), [])}

    def arrivals(self, partition: str) -> list[tuple[Row, int]]:
        """Return the rows of a partition as they come, with their stream batches."""
        found = [(row, batch) for (name, batch), rows in self.rows.items() if name == partition for row in rows]
        return sorted(found, key=lambda one: one[0].offset)

    def batches(self, after: int, batch: int) -> list[int]:
        """Return the stream batches in this range that have rows."""
        return sorted({number for (_, number), rows in self.rows.items() if rows and after < number <= batch})


def payload_of(gone: Iterable[Edge], come: Iterable[Edge]) -> str:
    return json.dumps([list(gone), list(come)])


def edges_of(payload: str) -> tuple[list[Edge], list[Edge]]:
    """Return what a change deletes and inserts; "" is one that stores nothing."""
    gone, come = ([(s, p, o) for s, p, o in edges] for edges in json.loads(payload or "[[], []]"))
    return gone, come


def random_terms(rng: random.Random) -> list[str]:
    """Return terms in the order in which they come into use, so that new ones clash with old ones all the time."""
    groups = rng.sample(clashing_texts(), 8)
    terms = [f"t{number}" for number in range(8)] + [text for group in groups for text in group]
    rng.shuffle(terms)
    return terms


def random_edge(rng: random.Random, terms: list[str], progress: float) -> Edge:
    """progress: from 0 to 1, how many of the terms are in use."""
    used = terms[: 4 + int(progress * (len(terms) - 4))]
    return rng.choice(used[-8:]), f"p{rng.randrange(3)}", rng.choice(used)


def random_streams(rng: random.Random, terms: list[str], duration: float) -> list[StreamData]:
    found = []
    epoch = rng.choice((0, 0, 1_000_000))
    for number in range(rng.randint(1, 3)):
        starts = rng.uniform(0, duration / 2) if number else 0.0
        found.append(random_stream(rng, f"s{number}", terms, epoch, starts))
    return found


def random_stream(rng: random.Random, name: str, terms: list[str], epoch: int, starts: float) -> StreamData:
    """epoch: the tick near which it begins."""
    batch_ticks = rng.choice((1, 1, 2, 3))
    stream = StreamData(
        name=name,
        group="replay" if starts and rng.random() < 0.3 else "live",
        batch_ticks=batch_ticks,
        first_tick=rng.randrange(2 * batch_ticks),
        starts=starts,
        partitions=("a", "b") if rng.random() < 0.3 else ("a",),
    )
    first, count = epoch // batch_ticks + rng.randint(1, 3), rng.randint(4, 11)
    for partition in stream.partitions:
        _fill(stream, partition, _numbers(rng, first, count), rng, terms)
    return stream


def join(stream: StreamData, partition: str, after: int, rng: random.Random, terms: list[str]) -> None:
    """Give a stream one more partition, which has rows after a stream batch."""
    stream.partitions = (*stream.partitions, partition)
    _fill(stream, partition, _numbers(rng, after + 1, rng.randint(2, 8)), rng, terms)


def mix(stream: StreamData, partition: str, rng: random.Random) -> None:
    """Let the rows of a partition come out of order."""
    rows = sorted(stream.arrivals(partition), key=lambda one: one[0].offset + rng.uniform(0, 6))
    stream.out_of_order.add(partition)
    numbers, offset = stream.numbers[partition], 0
    ends = dict.fromkeys(numbers, 0)
    for batch in numbers:
        stream.rows[partition, batch] = []
    for row, batch in rows:
        offset += rng.random() < 0.1  # One that was set aside.
        stream.rows[partition, batch].append(Row(offset, row.edge))
        offset += 1
        ends |= {number: offset for number in numbers if number >= batch}
    ends[numbers[-1]] = offset + (rng.random() < 0.1)
    stream.ends |= {(partition, batch): end for batch, end in ends.items()}


def _numbers(rng: random.Random, first: int, count: int) -> list[int]:
    """Return stream batches in order: most follow each other, some after a gap, now and then a very long one."""
    numbers, end = [first], first + 2 * count
    while len(numbers) < count and numbers[-1] < end:
        numbers.append(numbers[-1] + (rng.choice((2, 4)) if rng.random() < 0.2 else 1))
    if rng.random() < 0.1:
        numbers.append(numbers[-1] + 100_000)
    return numbers[: rng.randint(1, len(numbers))] if rng.random() < 0.15 else numbers


def _fill(stream: StreamData, name: str, numbers: list[int], rng: random.Random, terms: list[str]) -> None:
    stream.numbers[name] = numbers
    offset = 0
    for place, batch in enumerate(numbers, 1):
        rows = []
        for _ in range(rng.randint(0, 3)):
            offset += rng.random() < 0.1  # One that was set aside.
            rows.append(Row(offset, random_edge(rng, terms, place / len(numbers))))
            offset += 1
        stream.rows[name, batch] = rows
        offset += rng.random() < 0.1
        stream.ends[name, batch] = offset

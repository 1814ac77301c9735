"""What the simulated streams, loads and updates are about: edges between terms whose 16-bit hashes clash on purpose."""

from __future__ import annotations

import random
import zlib
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
    """One stream: per partition and stream batch its rows. first: the first stream batch that has any."""

    name: str
    group: str
    batch_ticks: int
    first: int
    last: int
    starts: float
    rows: dict[tuple[str, int], list[Row]] = field(default_factory=dict)
    partitions: tuple[str, ...] = ("a",)

    def edges(self, batch: int) -> set[Edge]:
        return {row.edge for name in self.partitions for row in self.rows[name, batch]}


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
    for number in range(rng.randint(1, 3)):
        last = rng.randint(4, 11)
        stream = StreamData(
            name=f"s{number}",
            group="replay" if number and rng.random() < 0.3 else "live",
            batch_ticks=rng.choice((1, 1, 2)),
            first=1,
            last=last,
            starts=rng.uniform(0, duration / 2) if number else 0.0,
            partitions=("a", "b") if rng.random() < 0.3 else ("a",),
        )
        for name in stream.partitions:
            offset = 0
            for batch in range(1, last + 1):
                count = rng.randint(0, 3)
                stream.rows[name, batch] = [
                    Row(offset + i, random_edge(rng, terms, batch / last)) for i in range(count)
                ]
                offset += count
        found.append(stream)
    return found

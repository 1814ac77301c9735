"""Absorption: which triples come to the stored graph, and which go, of all that joins it at one SN.

Tuples of either sign are ordered by (end of the stream batch, timestamp, stream, source partition, offset). The last
sign of each triple counts (docs/decisions/0065-retractions.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import NO_SIGNS, signs, signs_of
from wukongs.store.quads import NO_QUADS, Quads, joined, last_signs


@dataclass(frozen=True, slots=True, eq=False)
class Timeless:
    """Timeless tuples of one stream that join at one SN, those of each source partition in order of their offsets.

    goes: as Encoded.goes; end_ms: of their stream batch; times : int64[n]; places : int64[n], of their partitions among
    those of the stream, by name."""

    quads: Quads
    goes: BoolArray
    stream: str
    end_ms: int
    times: Int64Array
    places: Int64Array

    def take(self, rows: Int64Array) -> Timeless:
        """Return the tuples with these numbers."""
        graphs, subjects, predicates, objects = (column[rows] for column in self.quads)
        goes = signs(self.goes[rows]) if len(self.goes) else NO_SIGNS
        times, places = self.times[rows], self.places[rows]
        return Timeless((graphs, subjects, predicates, objects), goes, self.stream, self.end_ms, times, places)


def settled(parts: Sequence[Timeless]) -> tuple[Quads, Quads]:
    """Return the quads that go and those that come, repeats allowed; none does both."""
    quads = joined([part.quads for part in parts])
    if not any(len(part.goes) for part in parts):
        return NO_QUADS, quads
    sizes = [len(part.times) for part in parts]
    names = sorted({part.stream for part in parts})
    keys = (
        np.repeat([part.end_ms for part in parts], sizes),
        np.concatenate([part.times for part in parts]),
        np.repeat([names.index(part.stream) for part in parts], sizes),
        np.concatenate([part.places for part in parts]),
    )
    return last_signs(quads, np.concatenate([signs_of(part.goes, len(part.times)) for part in parts]), keys)

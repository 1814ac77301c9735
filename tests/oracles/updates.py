"""A graph under updates as one set per SN, kept for ever: SPARQL's order, first what goes, then what comes."""

from __future__ import annotations

from collections.abc import Iterable

Quad = tuple[int, int, int, int]


class UpdateModel:
    """states: what every sealed SN left."""

    def __init__(self) -> None:
        self.states: dict[int, frozenset[Quad]] = {}
        self.upper = 0

    def apply(self, sn: int, deletes: Iterable[Quad], inserts: Iterable[Quad]) -> tuple[int, int]:
        """Return how many quads went and came."""
        assert sn >= self.upper
        before = self.read(self.upper)
        after = (before - frozenset(deletes)) | frozenset(inserts)
        self.states[sn] = after
        self.upper = sn + 1
        return len(before - after), len(after - before)

    def read(self, sn: int) -> frozenset[Quad]:
        return next((self.states[at] for at in sorted(self.states, reverse=True) if at <= sn), frozenset())

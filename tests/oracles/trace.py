"""A trace as a list of (SN, quad): what can be read at each SN, kept for ever."""

from __future__ import annotations

from collections.abc import Iterable

Quad = tuple[int, int, int, int]


class TraceModel:
    """boundaries: the SNs at which something was sealed; a read at SN s holds all quads sealed at or before s."""

    def __init__(self) -> None:
        self.log: list[tuple[int, Quad]] = []
        self.upper = 0

    def seal(self, sn: int, quads: Iterable[Quad]) -> None:
        assert sn >= self.upper
        self.log += [(sn, quad) for quad in quads]
        self.upper = sn + 1

    def read(self, sn: int) -> list[Quad]:
        return sorted(quad for at, quad in self.log if at <= sn)

    @property
    def sealed_sns(self) -> list[int]:
        return sorted({sn for sn, _ in self.log})

"""Ranks by a dictionary, written from the docstrings of wukongs/rules/rank_kernels.py."""

from __future__ import annotations

Triple = tuple[int, int, int, int]


class PlainRanks:
    def __init__(self) -> None:
        self.ranks: dict[Triple, int] = {}
        self.round = 0

    def put(self, triples: list[Triple]) -> None:
        self.round += 1
        self.ranks |= dict.fromkeys(triples, self.round)

    def raised(self, found: list[int], triples: list[Triple]) -> list[int]:
        return [max(rank, self.ranks.get(triple, 0)) for rank, triple in zip(found, triples, strict=True)]

"""Ranks by a dictionary, written from the docstrings of wukongs/rules/rank_kernels.py."""

from __future__ import annotations

Triple = tuple[int, int, int, int]


class PlainRanks:
    def __init__(self) -> None:
        self.ranks: dict[Triple, int] = {}
        self.next = 1

    def put(self, triples: list[Triple]) -> None:
        self.ranks |= {triple: self.next + at for at, triple in enumerate(triples)}
        self.next += len(triples)

    def forget(self, triples: list[Triple]) -> None:
        for triple in triples:
            self.ranks.pop(triple, None)

    def raised(self, found: list[int], triples: list[Triple]) -> list[int]:
        return [max(rank, self.ranks.get(triple, 0)) for rank, triple in zip(found, triples, strict=True)]

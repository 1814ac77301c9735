"""A slice ring as a dictionary: stream batch -> its tuples with their newest times."""

from __future__ import annotations

from collections.abc import Iterable

Triple = tuple[int, int, int]


class SliceRingModel:
    def __init__(self) -> None:
        self.slices: dict[int, dict[Triple, int]] = {}
        self.transient: dict[int, list[int]] = {}

    def add(self, number: int, timed: Iterable[tuple[Triple, int]], transient: list[int]) -> None:
        held: dict[Triple, int] = {}
        for triple, time in timed:
            held[triple] = max(time, held.get(triple, time))
        self.transient[number] = transient
        if held:
            self.slices[number] = held

    def window(self, after: int, to: int) -> dict[Triple, int]:
        """The tuples of after < k <= to, each with its newest time."""
        found: dict[Triple, int] = {}
        for number, held in self.slices.items():
            if after < number <= to:
                for triple, time in held.items():
                    found[triple] = max(time, found.get(triple, time))
        return found

    def drop(self, to: int) -> list[int]:
        gone = sorted(term for number, terms in self.transient.items() if number <= to for term in terms)
        self.transient = {number: terms for number, terms in self.transient.items() if number > to}
        self.slices = {number: held for number, held in self.slices.items() if number > to}
        return gone

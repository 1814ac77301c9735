"""The dictionaries as a dict: id -> [text, references]."""

from __future__ import annotations


class NaiveDictionary:
    """Texts by id, with a count of references; counted: whether a text without references is gone."""

    def __init__(self, counted: bool) -> None:
        self._counted = counted
        self._held: dict[int, list[str | int]] = {}

    def would(self, term: int, text: str) -> str:
        """Say what adding would find: added, equal or refused."""
        if term not in self._held:
            return "added"
        return "equal" if self._held[term][0] == text else "refused"

    def add(self, terms: list[tuple[int, str]]) -> list[int]:
        """Add terms; return the places of those that are refused."""
        refused = []
        for place, (term, text) in enumerate(terms):
            if self.would(term, text) == "refused":
                refused.append(place)
            else:
                held = self._held.setdefault(term, [text, 0])
                held[1] = int(held[1]) + 1
        return refused

    def release(self, term: int) -> None:
        """Give back one reference."""
        held = self._held[term]
        held[1] = int(held[1]) - 1
        if self._counted and held[1] == 0:
            del self._held[term]

    def references(self) -> list[int]:
        """Return the ids that are referred to, each as often as it is."""
        return [term for term, (_, count) in self._held.items() for _ in range(int(count))]

    def texts(self) -> dict[int, str]:
        """Return what is held."""
        return {term: str(text) for term, (text, _) in self._held.items()}

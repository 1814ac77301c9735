"""Versions of one thing that was made for some sizes (a plan, an order), kept for each of the sizes that come and go.

A version fits while every size is within SIZE_FACTOR of the size that it was made for. The version used last is taken
as long as it fits, then another that fits. A new one is made only when none fits, so a window whose size goes up and
down makes nothing twice. If new sizes keep coming (many windows, each with a life of its own), a version is made for
each of the first VERSIONS_MAX, and then once in PATIENCE executions; meanwhile the nearest one is used. Any version
gives the right answer: sizes only decide how fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

SIZE_FACTOR = 2
VERSIONS_MAX = 8
PATIENCE = 32

Sizes = tuple[int, ...]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Version(Generic[Made]):
    """sizes: counts of triples and rows, at least 1 each."""

    sizes: Sizes
    made: Made

    def fits(self, sizes: Sizes) -> bool:
        """Tell whether no size is off by more than SIZE_FACTOR. A plain loop: it runs in every execution."""
        for one, other in zip(self.sizes, sizes, strict=True):
            if one > SIZE_FACTOR * other or other > SIZE_FACTOR * one:
                return False
        return True

    def distance(self, sizes: Sizes) -> float:
        """Return the largest factor by which a size is off."""
        return max((max(one / other, other / one) for one, other in zip(self.sizes, sizes, strict=True)), default=1.0)

    def growth(self, sizes: Sizes) -> float:
        """Return the largest factor by which a size has grown."""
        return max((now / then for now, then in zip(sizes, self.sizes, strict=True)), default=1.0)


class Versions(Generic[Made]):
    """The versions of one thing, the one used last first. Threads may share one: at worst two of them make the same."""

    def __init__(self) -> None:
        self._known: tuple[Version[Made], ...] = ()
        self._made_count = 0
        self._uses = 0
        """Since a version was made."""

    def fitting(self, sizes: Sizes) -> Made | None:
        """Return the version that was made for such sizes, None if there is none."""
        self._uses += 1
        for version in self._known:
            if version.fits(sizes):
                if version is not self._known[0]:
                    self._known = (version, *(other for other in self._known if other is not version))
                return version.made
        return None

    def nearest(self, sizes: Sizes) -> Version[Made] | None:
        """Return the version whose sizes are off least, None if there is none yet."""
        return min(self._known, key=lambda version: version.distance(sizes), default=None)

    @property
    def is_more_worth(self) -> bool:
        """Whether another version may be made now."""
        return self._made_count < VERSIONS_MAX or self._uses > PATIENCE

    def add(self, sizes: Sizes, made: Made) -> None:
        """Keep a new version; the one that was not used for longest is forgotten."""
        self._known = (Version(sizes, made), *self._known[: VERSIONS_MAX - 1])
        self._made_count += 1
        self._uses = 0

    def replace(self, before: Made, after: Made) -> None:
        """Keep something else for the sizes of a version."""
        self._known = tuple(Version(v.sizes, after) if v.made is before else v for v in self._known)

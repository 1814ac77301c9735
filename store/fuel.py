"""Work in steps of bounded size: each part of it is paid for with fuel, and pauses when that is used up."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")

UNLIMITED_FUEL = 2**60
"""More than any work takes; a few times as much still fits an int64."""


@dataclass(slots=True)
class Tank:
    """The work that may still be done before a pause."""

    fuel: int = 0


class Fuelled(Generic[Result]):
    """Work on its way. work(fuel) moves it on; result is there once it is done.

    begin: gives the steps that do the work; they take its cost from the tank, and yield when the tank is empty. They
    must not know this object: so work that is dropped before its end is freed at once, with all that it has written.
    """

    def __init__(self, begin: Callable[[Tank], Generator[None, None, Result]]) -> None:
        self.result: Result | None = None
        self._tank = Tank()
        self._begin = begin
        self._steps = begin(self._tank)

    def work(self, fuel: int) -> int:
        """Do about `fuel` units at most; return the fuel that is left (0: there is more to do, or just done). Work that
        has raised an error, such as MemoryError or KeyboardInterrupt, begins anew with the next call."""
        if self.result is not None or fuel <= 0:
            return fuel
        self._tank.fuel = fuel
        try:
            next(self._steps)
        except StopIteration as done:
            self.result = done.value
        except BaseException:
            self._steps = self._begin(self._tank)
            raise
        return self._tank.fuel

    def finish(self) -> Result:
        """Do all the rest and return the result."""
        self.work(UNLIMITED_FUEL)
        assert self.result is not None
        return self.result


def at_once(begin: Callable[[Tank], Generator[None, None, Result]]) -> Result:
    """Do all of some work, and return its result."""
    return Fuelled(begin).finish()

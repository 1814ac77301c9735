"""Time and network of the simulator: a queue of what happens next, and links that lose, repeat, delay and block."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field


class Agenda:
    """What happens at which time, in this order; equal times in the order in which they were entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay: float, happens: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay, self._count, happens))

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen up to a time, or until is_over says so (asked now and then)."""
        steps = 0
        while self._queue and self._queue[0][0] <= until:
            self.now, _, happens = heapq.heappop(self._queue)
            happens()
            steps += 1
            if steps % 64 == 0 and is_over():
                return
        self.now = until


@dataclass
class Network:
    """Links between parties (nodes are numbers, sources and clients any other key). loss, repeats: shares of the
    messages; blocked: one-way pairs (from, to) that let nothing through."""

    agenda: Agenda
    rng: random.Random
    loss: float = 0.0
    repeats: float = 0.0
    slow: float = 0.0
    blocked: set[tuple[object, object]] = field(default_factory=set)
    sent: int = 0

    def send(self, origin: object, target: object, deliver: Callable[[], None]) -> None:
        rng = self.rng
        self.sent += 1
        if rng.random() < self.loss:
            return
        for _ in range(2 if rng.random() < self.repeats else 1):
            delay = rng.uniform(20, 120) if rng.random() < self.slow else rng.uniform(0.5, 6)
            self.agenda.after(delay, lambda: None if (origin, target) in self.blocked else deliver())

    def heal(self) -> None:
        self.loss = self.repeats = self.slow = 0.0
        self.blocked.clear()

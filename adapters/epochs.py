"""The common face of what plans the epochs of a pipeline: a replay's planner, and one for live sources."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from wukongs.adapters.push import PartitionSetup, PushStats, WorkItem
from wukongs.wire.messages import Opened

P = TypeVar("P", bound="Position")


class Position(Protocol):
    """Where an epoch ends and the next one begins; compared by its content."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left behind it."""

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark keeps it, with the key `finished`."""


class Planner(Protocol[P]):
    """Plans epoch after epoch. epoch: the writer's fencing epoch; start: before the first one; opened: what the nodes
    said of each source partition."""

    @property
    def epoch(self) -> int: ...

    @property
    def start(self) -> P: ...

    @property
    def setups(self) -> tuple[PartitionSetup, ...]: ...

    @property
    def opened(self) -> tuple[Opened, ...]: ...

    def position(self, value: dict[str, Any]) -> P:
        """Return a position as Spark has kept it."""

    def follow(self, position: P, released: threading.Event, wait_s: float) -> P:
        """Return where the next epoch ends; the same position if none can begin for wait_s, or once released is set."""

    def items(self, start: P, end: P) -> list[WorkItem]:
        """Return the work between two positions."""

    def tasks(self, start: P, end: P, task_count: int) -> list[list[WorkItem]]:
        """Divide that work among at most so many tasks, each in its order. A partition belongs to one task."""

    def reached_ms(self) -> int | None:
        """Return the event time that the replay's clock has reached: a task keeps an item until it is at its
        complete_ms. None: no item waits."""

    def resumed(self, start: P, end: P) -> tuple[P, P]:
        """Return an epoch that an earlier run has planned moved to where the nodes are."""

    def continued(self, position: P, repeated: P | None) -> P:
        """Return the position of an earlier run's checkpoint moved to where the nodes are, which alone count.

        repeated: the end of the epoch that this run has repeated from the checkpoint, if it has one."""

    def taken(self, stats: PushStats) -> None:
        """Note what a worker says about the rows that it has sent."""

    def close(self) -> None:
        """Let go of the sources."""


def cuts_of(node: Opened) -> tuple[int, ...]:
    """Return the rows at which pieces have to end: no node takes one that begins before the rows that it has, and ends
    behind them."""
    return tuple(sorted({node.resume_offset, *node.offsets}))


def balanced(items: Sequence[WorkItem], task_count: int) -> list[list[WorkItem]]:
    """Return the items as at most task_count lists of about equally many rows; a partition is never divided."""
    tasks: list[list[WorkItem]] = [[] for _ in range(max(1, min(task_count, len(items))))]
    loads = np.zeros(len(tasks), np.int64)
    for item in sorted(items, key=lambda one: one.first_offset - one.end_offset):
        lightest = int(np.argmin(loads))
        tasks[lightest].append(item)
        loads[lightest] += item.end_offset - item.first_offset + 1
    return [task for task in tasks if task]

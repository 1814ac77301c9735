"""The model of stream progress: nodes seal, log and report; an observer makes its stable VTS of the reports.

Nodes seal the stream batches of each stream in order, log them, and only then raise their local VTS, which they
report. The network keeps every report for ever and delivers it any number of times in any order, or never; the
observer uses a report if its number is above that of the last one it used from that node. Any node may restart at any
time. Stream batches that it had not logged are gone and come again from the sources. The observer forgets the reports
that it used, and a new life of its stable VTS begins.

Abstractions, and why they are sound:

* A stream batch may be sealed as soon as the one before is: the sources are as far ahead as one likes (sealing.py has
  the pieces).
* Each raise of the local VTS is reported; reports that the node would not have sent are never delivered.
* With `splits_log=False` sealing and logging are one step: only a restart sees a stream batch that is sealed and not
  logged, and drops it. With True they are two steps, and so are logging and raising the local VTS in the mutant that
  does them in the wrong order.
* Stable VTSs change nothing for others, so one observer (node 0) stands for all. Other nodes are interchangeable, and
  so are streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

Vts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's rules; each mutant of the tests is one of them turned round."""

    logs_before_reporting: bool = True
    takes_newer_reports_only: bool = True
    stable: str = "minimum"  # or "maximum", "majority", "local"


class Node(NamedTuple):
    """`sealed` is in memory, `logged` on disk, `local` what it reports; the observer used `reports[used]` last."""

    sealed: Vts
    logged: Vts
    local: Vts
    reports: tuple[Vts, ...]
    used: int


State = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """The model (search.Model)."""

    streams: int = 2
    batches: int = 2
    rules: Rules = Rules()
    splits_log: bool = False

    def initial(self) -> State:
        zeros = (0,) * self.streams
        return (Node(zeros, zeros, zeros, (zeros,), 0),) * 3

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state):
            for label, after in self._own_steps(node):
                yield f"node {place} {label}", (*state[:place], after, *state[place + 1 :])
            first = node.used + 1 if self.rules.takes_newer_reports_only else 0
            for number in range(first, len(node.reports)):
                if number != node.used:
                    label = f"node 0 takes report {number} of node {place}: VTS {node.reports[number]}"
                    yield label, (*state[:place], node._replace(used=number), *state[place + 1 :])
            if self.splits_log or place == 0:
                yield f"node {place} restarts", self._restarted(state, place)

    def _own_steps(self, node: Node) -> Iterator[tuple[str, Node]]:
        for stream, batch in enumerate(node.sealed):
            name = f"{'ab'[stream]}{batch + 1}"
            if batch == node.logged[stream] and batch < self.batches:
                sealed = _raised(node.sealed, stream)
                if not self.splits_log:
                    yield f"seals, logs and reports {name}", self._reported(node._replace(sealed=sealed, logged=sealed))
                elif self.rules.logs_before_reporting:
                    yield f"seals {name}", node._replace(sealed=sealed)
                else:
                    yield f"seals and reports {name}", self._reported(node._replace(sealed=sealed))
            elif batch > node.logged[stream]:
                logged = node._replace(logged=_raised(node.logged, stream))
                name = f"{'ab'[stream]}{batch}"
                if self.rules.logs_before_reporting:
                    yield f"logs and reports {name}", self._reported(logged)
                else:
                    yield f"logs {name}", logged

    def _reported(self, node: Node) -> Node:
        local = node.logged if self.rules.logs_before_reporting else node.sealed
        return node._replace(local=local, reports=(*node.reports, local))

    def _restarted(self, state: State, place: int) -> State:
        node = state[place]
        restarted = node._replace(sealed=node.logged, local=node.logged)
        nodes = (*state[:place], restarted, *state[place + 1 :])
        return tuple(one._replace(used=0) for one in nodes) if place == 0 else nodes

    def stable(self, state: State) -> Vts:
        used = [node.reports[node.used] for node in state]
        match self.rules.stable:
            case "minimum":
                return tuple(map(min, *used))
            case "maximum":
                return tuple(map(max, *used))
            case "majority":
                return tuple(sorted(batches)[1] for batches in zip(*used, strict=True))
            case _:
                return state[0].local

    def canonical(self, state: State) -> State:
        ordered = (state[0], *sorted(state[1:]))
        if self.streams == 1:
            return ordered
        first, *others = map(_swapped, state)
        return min(ordered, (first, *sorted(others)))

    def violation(self, state: State) -> str | None:
        stable = self.stable(state)
        for node in state:
            if any(map(int.__gt__, stable, node.local)):
                return "the stable VTS exceeds no node's local VTS"
            if any(map(int.__gt__, stable, node.sealed)):
                return "a read sees each stream batch on every node or not at all"
        if min(stable) != min(min(node.reports[node.used]) for node in state):
            return "the stable tick is the least tick of the reports"
        return None

    def step_violation(self, before: State, after: State) -> str | None:
        """A life of the observer's stable VTS ends where its reports are forgotten."""
        if any(map(int.__gt__, self.stable(before), self.stable(after))) and any(node.used for node in after):
            return "the stable VTS never falls"
        return None

    def settled(self, state: State) -> bool:
        return self.stable(state) == (self.batches,) * self.streams


@cache
def _swapped(node: Node) -> Node:
    reports = tuple(vts[::-1] for vts in node.reports)
    return Node(node.sealed[::-1], node.logged[::-1], node.local[::-1], reports, node.used)


def _raised(vts: Vts, stream: int) -> Vts:
    return (*vts[:stream], vts[stream] + 1, *vts[stream + 1 :])

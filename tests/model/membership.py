"""The model of membership: a node is taken out and comes back while ticks are exposed and an update is made.

The log says of node 2 that it is OUT, HOLDING (the stable VTS waits for it) and IN (it may be read, and may lead). An
observer uses the committed log as far as it knows it: it waits for the reports of all that are HOLDING or IN there, and
uses a report if the records that it requires are committed there. A report requires the records of membership that its
node holds, and updates for ticks below its own. The node that comes back becomes IN when it has as much as one of the
others had reported once that one held the HOLDING record: nobody has exposed more without waiting for it.

Abstractions, and why they are sound:

* Raft is a log that is never overwritten. Each node holds a part of it, and a node that holds all may append (minors.py
  has terms and overwriting). An entry that a majority holds is committed.
* One stream: only the tick matters to the log (minors.py). Loss, repetition and delay are as there.
* The node that comes back may know the oldest of the others' reports that hold the HOLDING record: the lowest, which
  asks least.
* There is one observer and one exposure. The observer may know any prefix of the committed log. After the exposure,
  only the progress of the node that comes back allows anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

OUT, HOLDING, IN, UPDATE = "OUT", "HOLDING", "IN", "UPDATE"
BACK = 2
"""The node that is taken out and comes back."""

Record = tuple[str, int]  # (UPDATE, tick) or (role, 0) of node BACK
Log = tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's rules; each mutant of the tests is one of them turned round."""

    waits_for_holding: bool = True
    catches_up: bool = True
    requires_membership: bool = True
    leads_only_when_in: bool = True
    proposes_at_local_tick: bool = True
    """False: at its reported tick, so that what node 2 has caught up with does not count."""


class Node(NamedTuple):
    """`view` is the report that the observer used last: tick, and the length of the log that it requires.

    `first` is the tick at which the node came to hold the HOLDING record, -1 before.
    """

    tick: int
    held: int
    view: tuple[int, int]
    first: int


class State(NamedTuple):
    nodes: tuple[Node, ...]
    log: Log
    shown: tuple[int, ...]  # (tick, length)


@dataclass(frozen=True, slots=True)
class Membership:
    """The model (search.Model): 3 nodes; no symmetry for node 2, so any may be the observer."""

    ticks: int = 1
    observer: int = 0
    updates: int = 1
    rules: Rules = Rules()

    def initial(self) -> State:
        return State((Node(0, 0, (0, 0), -1),) * 3, (), ())

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            for after in self._progress(state, place):
                tick, required = after.view
                reports = after.view != node.view
                label = f"reports tick {tick}, required {required}" if reports else f"seals tick {after.tick}"
                yield f"node {place} {label}", _with_node(state, place, after)
            if node.held < len(state.log):
                after = self._holding(node, state.log, node.held + 1)
                yield f"node {place} takes the log up to {node.held + 1}", _with_node(state, place, after)
        yield from self._appends(state)
        if not state.shown:
            yield from self._exposures(state)

    def _appends(self, state: State) -> Iterator[tuple[str, State]]:
        for record in self._records(state):
            what = f"an update for tick {record[1]}" if record[0] == UPDATE else f"that node {BACK} is {record[0]}"
            for place, node in enumerate(state.nodes):
                if node.held == len(state.log) and self._may_append(state, place, record):
                    log = (*state.log, record)
                    nodes = _with_node(state, place, self._holding(node, log, len(log))).nodes
                    yield f"node {place} appends {what}", State(nodes, log, state.shown)

    def _exposures(self, state: State) -> Iterator[tuple[str, State]]:
        for length in range(min(committed(state), state.nodes[self.observer].held) + 1):
            tick = self._exposable(state, length)
            if tick > 0:
                views = [0 if self.rules.proposes_at_local_tick else node.view[0] for node in state.nodes]
                nodes = tuple(node._replace(view=(view, 0)) for node, view in zip(state.nodes, views, strict=True))
                label = f"node {self.observer} exposes tick {tick} with {length} records of the log"
                yield label, State(nodes, state.log, (tick, length))

    def _progress(self, state: State, place: int) -> Iterator[Node]:
        """A tick more, or a report. Of nodes 0 and 1 the two are one: nobody gains if a tick is not reported."""
        node = state.nodes[place]
        if place == BACK and node.tick < self.ticks:
            yield node._replace(tick=node.tick + 1)
        if not state.shown:
            for tick in [node.tick] if place == BACK else range(node.tick, min(node.tick + 1, self.ticks) + 1):
                view = (tick, self._required(state, node, tick))
                if view != node.view:
                    yield node._replace(tick=tick, view=view)

    def _holding(self, node: Node, log: Log, held: int) -> Node:
        first = node.tick if log[held - 1][0] == HOLDING else node.first
        return node._replace(held=held, first=first)

    def _required(self, state: State, node: Node, tick: int) -> int:
        required = 0
        for length, (kind, below) in enumerate(state.log[: node.held], 1):
            if below < tick if kind == UPDATE else self.rules.requires_membership:
                required = length
        return required

    def _records(self, state: State) -> Iterator[Record]:
        """Node 2 goes out once and comes back once."""
        following = {IN: OUT, OUT: HOLDING, HOLDING: IN}
        role = role_of(state.log)
        if role != IN or not any(kind == OUT for kind, _ in state.log):
            yield following[role], 0
        if sum(kind == UPDATE for kind, _ in state.log) < self.updates:
            for tick in range(self.ticks):
                yield UPDATE, tick

    def _may_append(self, state: State, place: int, record: Record) -> bool:
        kind, tick = record
        if kind == UPDATE:
            is_in = place != BACK or role_of(state.log) == IN
            node = state.nodes[place]
            earliest = node.tick if self.rules.proposes_at_local_tick else node.view[0]
            return tick >= earliest and (is_in or not self.rules.leads_only_when_in)
        if kind == IN:
            return self._caught_up(state)
        return True

    def _caught_up(self, state: State) -> bool:
        back = state.nodes[BACK]
        if role_of(state.log[: min(committed(state), back.held)]) != HOLDING:
            return False
        least = min(node.first for node in state.nodes[:BACK])
        return not self.rules.catches_up or 0 <= least <= back.tick

    def _exposable(self, state: State, length: int) -> int:
        role = role_of(state.log[:length])
        waits = role == IN or (role == HOLDING and self.rules.waits_for_holding)
        views = [node.view for node in (state.nodes if waits else state.nodes[:BACK])]
        return min(tick for tick, _ in views) if max(required for _, required in views) <= length else 0

    def canonical(self, state: State) -> State:
        """Nodes 0 and 1 are interchangeable, unless one of them has yet to expose a tick."""
        if state.shown or self.observer == BACK:
            return state._replace(nodes=(*sorted(state.nodes[:BACK]), state.nodes[BACK]))
        return state

    def violation(self, state: State) -> str | None:
        if not state.shown:
            return None
        tick, length = state.shown
        done = committed(state)
        if any(kind == UPDATE and below < tick for kind, below in state.log[length:done]):
            return "who exposes a tick has every committed update below it"
        roles = [role_of(state.log[:known]) for known in range(length, done + 1)]
        read = state.nodes if IN in roles else state.nodes[:BACK]
        if any(node.tick < tick for node in read):
            return "a read finds what is exposed on every node that is IN"
        return None

    def step_violation(self, before: State, after: State) -> str | None:
        return None

    def settled(self, state: State) -> bool:
        """Tell whether node 2 is back and the last tick may be exposed, with all of the log.

        Exposing is no part of the protocol's progress, so what comes after it is not asked."""
        is_back = role_of(state.log) == IN and (OUT, 0) in state.log and committed(state) == len(state.log)
        return bool(state.shown) or (is_back and self._exposable(state, len(state.log)) == self.ticks)


def role_of(log: Log) -> str:
    """Return what the log says of node BACK; it begins as IN."""
    return next((kind for kind, _ in reversed(log) if kind != UPDATE), IN)


def committed(state: State) -> int:
    return sorted(node.held for node in state.nodes)[1]


def _with_node(state: State, place: int, node: Node) -> State:
    nodes = state.nodes
    return State((*nodes[:place], node, *nodes[place + 1 :]), state.log, state.shown)

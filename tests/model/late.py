"""The model of a late stream: records bring it until it has come as far as the ticks, and then ticks do.

Two streams, each of whose stream batches takes one tick. `live` counts from tick 0 on. `late` has begun at tick 1, when
nothing of it was here. A leader (node 0) appends records, each behind a tick: "reads see late up to stream batch k". If
k is the record's tick, `late` counts from there on. Node 1 takes the records in order; with both it is committed. Both
nodes insert stream batches, report, and show what their reports allow.

Abstractions, and why they are sound:

* One leader for ever, two nodes, no restarts: what elections, minorities and restarts do to a record behind a tick is
  the same for all records, and is in minors.py. A third node would only add a report to wait for.
* A node goes by the newest report of the other. One that comes late is like one that was made late. A report that may
  not be used yet (`required`) stops its reader until it may.
* A reader knows any part of the committed records that its reports require: more only helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

BEGAN = 1
"""The tick at which the late stream has begun."""

Record = tuple[int, int]
"""(tick, stream batch of the late stream)."""
Sn = tuple[int, int]
Vts = tuple[int, int]
"""(live, late)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's rules; each mutant of the tests is one of them turned round."""

    begins_late: bool = True
    """Else ticks wait for it from its beginning on."""
    brings_stable: bool = True
    """Else a leader brings what it has itself."""
    brings_what_has_ended: bool = True
    """Else a record also brings what ends after its tick."""
    counts_when_whole: bool = True
    """Else a stream counts from its first record on."""
    shows_stable: bool = True
    """Else a node shows a record whether its stable VTS has what it brings or not."""


class Node(NamedTuple):
    """vts: what is inserted here; told, required: the newest report, and how many records it requires; log: how many
    records are here; shown: (SN, how many records were known then, up to where late was shown)."""

    vts: Vts
    told: Vts
    required: int
    log: int
    shown: tuple[Sn, int, int]


class State(NamedTuple):
    nodes: tuple[Node, Node]
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Late:
    """The model (search.Model). batches: of each stream; records_max: that the log may hold."""

    batches: int = 3
    records_max: int = 2
    rules: Rules = Rules()

    def initial(self) -> State:
        node = Node((BEGAN, 0), (BEGAN, 0), 0, 0, ((0, 0), 0, 0))
        return State((node, node), ())

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            for label, after in self._own_steps(state, place, node):
                yield f"node {place} {label}", _with_node(state, place, after)
        yield from self._appends(state)

    def _own_steps(self, state: State, place: int, node: Node) -> Iterator[tuple[str, Node]]:
        live, late = node.vts
        if live < self.batches:
            yield f"inserts stream batch {live + 1} of live", node._replace(vts=(live + 1, late))
        if late < self.batches:
            yield f"inserts stream batch {late + 1} of late", node._replace(vts=(live, late + 1))
        if (node.told, node.required) != (node.vts, node.log):
            yield f"reports {node.vts}, required {node.log}", node._replace(told=node.vts, required=node.log)
        if place == 1 and node.log < len(state.records):
            yield f"takes record {node.log + 1}", node._replace(log=node.log + 1)
        for known in range(node.shown[1], state.nodes[1].log + 1):
            newest = self._newest(state, place, known)
            if newest is not None and newest > node.shown[0]:
                shown = newest, known, _late_at(state.records[:known], newest)
                yield f"shows {newest} by {known} records, late up to {shown[2]}", node._replace(shown=shown)

    def _appends(self, state: State) -> Iterator[tuple[str, State]]:
        leader, records = state.nodes[0], state.records
        stable = self._stable(state, 0, state.nodes[1].log)
        in_flight = len(records) > state.nodes[1].log
        if len(records) == self.records_max or in_flight or stable is None:
            return
        tick = max([self._tick(leader.vts, records), *(tick for tick, _ in records)])
        has = stable[1] if self.rules.brings_stable else leader.vts[1]
        batch = min(has, tick) if self.rules.brings_what_has_ended else has
        is_late = self._counts_from(records) is None or not self.rules.begins_late
        if is_late and batch > max((batch for _, batch in records), default=0):
            records = (*records, (tick, batch))
            nodes = (leader._replace(log=len(records)), state.nodes[1])
            yield f"node 0 appends that late is here up to {batch} behind tick {tick}", State(nodes, records)

    def _stable(self, state: State, place: int, known: int) -> Vts | None:
        """Return the stable VTS of a node that knows so many records as committed; None: it may use no report."""
        other = state.nodes[1 - place]
        if other.required > known:
            return None
        live, late = state.nodes[place].told
        return min(live, other.told[0]), min(late, other.told[1])

    def _counts_from(self, records: tuple[Record, ...]) -> int | None:
        """Return the tick behind which late counts."""
        if not self.rules.begins_late:
            return BEGAN
        return next((tick for tick, batch in records if batch >= tick or not self.rules.counts_when_whole), None)

    def _tick(self, vts: Vts, records: tuple[Record, ...]) -> int:
        counts = self._counts_from(records)
        return vts[0] if counts is None else min(vts[0], max(counts, vts[1]))

    def _newest(self, state: State, place: int, known: int) -> Sn | None:
        """Return the newest SN that a node may show now."""
        stable = self._stable(state, place, known)
        if stable is None or state.nodes[place].required > known:
            return None
        records = state.records[:known]
        tick = self._tick(stable, records)
        sn = tick, sum(behind == tick for behind, _ in records)
        for at, batch in reversed(list(_sns(records))):
            if at <= sn and batch > stable[1] and self.rules.shows_stable:
                sn = at[0], at[1] - 1
        return sn

    def canonical(self, state: State) -> State:
        return state

    def violation(self, state: State) -> str | None:
        for node in state.nodes:
            sn, known, late = node.shown
            if any(at <= sn for at, _ in list(_sns(state.records))[known:]):
                return "who shows an SN knows every record before it"
            if any(late > other.vts[1] for other in state.nodes):
                return "what is shown of a late stream is on every node"
            counts = self._counts_from(state.records[:known])
            if counts is not None and sn[0] > counts and any(sn[0] > other.vts[1] for other in state.nodes):
                return "what a tick shows of a stream that counts is on every node"
        return None

    def step_violation(self, before: State, after: State) -> str | None:
        for old, new in zip(before.nodes, after.nodes, strict=True):
            if self._shown_of_late(new, after) < self._shown_of_late(old, before):
                return "what is shown of a stream never falls"
        return None

    def _shown_of_late(self, node: Node, state: State) -> int:
        """Return up to where a node shows late: by the ticks once it counts, else by records."""
        (tick, _), known, late = node.shown
        counts = self._counts_from(state.records[:known])
        return tick if counts is not None and tick > counts else late

    def _is_live_shown(self, state: State) -> bool:
        return all(node.shown[0][0] == self.batches for node in state.nodes)

    def goes_on(self, state: State) -> bool:
        """Tell whether live is shown to its end, or late has come as far as the ticks on all nodes, and they wait for
        it."""
        least = min(node.vts[1] for node in state.nodes)
        return self._is_live_shown(state) or any(tick <= batch <= least for tick, batch in state.records)

    def settled(self, state: State) -> bool:
        """Tell whether everything is shown; or the log is full, and late has not caught up."""
        is_full = len(state.records) == self.records_max and all(batch < tick for tick, batch in state.records)
        shown = [self._shown_of_late(node, state) for node in state.nodes]
        return self._is_live_shown(state) and (is_full or min(shown) == self.batches)


def _sns(records: tuple[Record, ...]) -> Iterator[tuple[Sn, int]]:
    """Return the SN of each record, with what it brings."""
    minor, last = 0, -1
    for tick, batch in records:
        minor = minor + 1 if tick == last else 1
        last = tick
        yield (tick, minor), batch


def _late_at(records: tuple[Record, ...], sn: Sn) -> int:
    return max((batch for at, batch in _sns(records) if at <= sn), default=0)


def _with_node(state: State, place: int, node: Node) -> State:
    nodes = list(state.nodes)
    nodes[place] = node
    return State((nodes[0], nodes[1]), state.records)

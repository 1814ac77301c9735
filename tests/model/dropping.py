"""The model of dropping a stream: it stops everywhere and is cut where all in-sync replicas have it.

Three nodes that are IN seal stream batches of one stream, insert them (on disk at once), and report how far they are.
A record that drops the stream is taken by one node after the other; once a majority holds it, it is committed, and
nodes may come to know so. The leader (node 0) ends the stream at the least of final local VTSs. An observer, which
knows of the drop or not, makes stable VTSs of reports as long as it does not know of the end. Once it knows, it shows
no more of the stream than its end says. Any node may restart at any time: it forgets stream batches that were sealed
and not inserted, and which entries are committed; it keeps its part of the log.

Abstractions, and why they are sound:

* Every report that was ever made may be used at any time, in any mixture. So an observer that keeps older ones or comes
  late is among them; it exposes the least of some report of each node. The highest reports are enough to look at: the
  newest of each node that it may use without knowing of the end.
* Reports that the leader made after it appended the end require the end. A node that does not know the end does not use
  such reports (minors.py shows this), so they do not count for the observer. Reports of the others may not require it.
* The drop's record is not overwritten: until it is committed, a node that holds it just waits.
* Nodes that are not IN take no part: they get what they lack from those that are (membership.py, and the simulator).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's rules; each mutant of the tests is one of them turned round."""

    stops_when_held: bool = True
    waits_for_inserting: bool = True
    cuts_at_the_least: bool = True
    waits_for_all: bool = True


class Node(NamedTuple):
    """`sealed` is in memory, `inserted` on disk; `told`: the last reported, of those that do not require the end;
    `final`: what was reported as final, -1: nothing yet."""

    sealed: int
    inserted: int
    told: int
    final: int
    holds: bool
    knows: bool


class State(NamedTuple):
    """`end`: where the stream was cut, -1: it was not; `exposed`: the highest stable VTS of any observer."""

    nodes: tuple[Node, ...]
    end: int
    exposed: int


@dataclass(frozen=True, slots=True)
class Dropping:
    """The model (search.Model)."""

    batches: int = 2
    rules: Rules = Rules()

    def initial(self) -> State:
        return State((Node(0, 0, 0, -1, False, False),) * 3, -1, 0)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        is_committed = sum(node.holds for node in state.nodes) >= 2
        for place, node in enumerate(state.nodes):
            for label, after in self._own_steps(node, place, is_committed, state.end >= 0):
                nodes = (*state.nodes[:place], after, *state.nodes[place + 1 :])
                yield f"node {place} {label}", state._replace(nodes=nodes)
        finals = [node.final for node in state.nodes]
        may_cut = min(finals) >= 0 if self.rules.waits_for_all else max(finals) >= 0
        if state.end < 0 and state.nodes[0].knows and may_cut:
            told = [final for final in finals if final >= 0]
            end = min(told) if self.rules.cuts_at_the_least else max(told)
            yield f"node 0 ends the stream at {end}", state._replace(end=end)
        stable = min(node.told for node in state.nodes)
        if stable > state.exposed:
            yield f"an observer exposes stream batch {stable}", state._replace(exposed=stable)

    def _own_steps(self, node: Node, place: int, is_committed: bool, is_ended: bool) -> Iterator[tuple[str, Node]]:
        is_stopped = node.holds if self.rules.stops_when_held else node.knows
        if node.sealed < self.batches and not is_stopped:
            yield f"seals stream batch {node.sealed + 1}", node._replace(sealed=node.sealed + 1)
        if node.inserted < node.sealed:
            yield f"inserts stream batch {node.inserted + 1}", node._replace(inserted=node.inserted + 1)
        if node.told < node.inserted and not (place == 0 and is_ended):
            yield f"reports {node.inserted}", node._replace(told=node.inserted)
        is_final = node.inserted == node.sealed or not self.rules.waits_for_inserting
        if node.knows and is_final and node.final != node.inserted:
            yield f"reports {node.inserted} as final", node._replace(final=node.inserted)
        if not node.holds:
            yield "takes the record that drops the stream", node._replace(holds=True)
        if node.holds and is_committed and not node.knows:
            yield "hears that it is committed", node._replace(knows=True)
        yield "restarts", node._replace(sealed=node.inserted, knows=False)

    def canonical(self, state: State) -> State:
        """The nodes that do not lead are interchangeable."""
        return state._replace(nodes=(state.nodes[0], *sorted(state.nodes[1:])))

    def violation(self, state: State) -> str | None:
        if state.end < 0:
            return None
        if state.exposed > state.end:
            return "what was exposed of a dropped stream stays"
        if any(node.inserted < state.end for node in state.nodes):
            return "a read finds a dropped stream up to its end on every node"
        return None

    def step_violation(self, before: State, after: State) -> str | None:
        return None if after.exposed >= before.exposed else "the stable VTS never falls"

    def settled(self, state: State) -> bool:
        return state.end >= 0

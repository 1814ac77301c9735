"""The model of stable VTS and updates: nodes that report stream progress, and a majority log of updates with minor SNs.

Each node reports its local VTS; an observer takes the minimum over all nodes as its stable VTS, whose least component
is the stable tick. A leader appends an update (an entry) for tick T: its SN lies after that of T and before that of
T + 1. The rules under test make sure that a node that exposes a tick above T has the entry (decision 0017 argues why):

* a leader chooses T at or above each tick that it has reported (membership.py tells why its local tick is better), and
  persists the entry before it sends it;
* a report of tick L carries, as `required`, the highest (term, length) of entries for ticks below L that the node
  holds, and of those that it held and that were overwritten;
* a node exposes a tick when the last entry that it knows as committed is at or above `required` of all reports used.

Messages are lost, repeated and reordered; a minority is a node whose messages are lost for as long as one likes; a
restart may come at any time. Abstractions, and why they are sound:

* *Raft.* A leader's log only grows within its term, so a message of term t is a prefix of `logs[t - 1]`, delivered to
  any node that has not gone beyond t, at any time, also after the leader is gone: loss, repetition, reordering and
  delay. An election is one step of a candidate and a majority; votes for candidates that lose only forbid what loss
  forbids too.
* *Commitment* is a majority holding an entry of the term that they are in; `done` are the committed entries. The
  observer may know any part of them that it holds, a superset of the part that leaders tell it. It exposes with the
  least knowledge that its rule allows, as more only helps.
* *Reports.* Nobody sees a node's progress between two reports: sealing, logging and reporting are one step (progress.py
  has them apart). A report that comes late is like one that came at once and was used late. A report that never comes
  only raises the node's own reported tick, which forbids ticks to a leader and allows nothing. So the observer takes
  each report.
* *Exposing changes nothing for others*, so one observer (node 0, in any role), and one exposure (`shown`), stand for
  all. From then on the reports are forgotten, and further progress, which only forbids ticks to leaders, is left out.
* Nodes that are not the observer are interchangeable, and so are streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

NO_OP = -1
"""The tick of the entry with which a leader begins its term: it changes no data."""

LATE = "(sent before its leader fell)"

Vts = tuple[int, ...]
Entry = tuple[int, int]  # (term, tick)
Log = tuple[Entry, ...]
Mark = tuple[int, int]  # (term, length): Raft's order of logs
NO_MARK: Mark = (0, 0)


@dataclass(frozen=True, slots=True)
class Size:
    """How large an instance is: batches per stream, terms (leaders), updates that one log may hold."""

    streams: int = 2
    batches: int = 2
    terms: int = 2
    updates: int = 1
    nodes: int = 3

    @property
    def majority(self) -> int:
        return self.nodes // 2 + 1


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's rules; each mutant of the tests is one of them turned round, except where said."""

    obeys_required: bool = True
    requires_uncommitted: bool = True
    requires_overwritten: bool = True
    requires_all: bool = False
    """A cruder rule that does as well: reports require the highest entry of all, whatever its tick."""
    proposes_on_time: bool = True
    own_tick_counts_as_reported: bool = True
    remembers_reported: bool = True
    persists_before_sending: bool = True
    moves_in_term: bool = False
    stable: str = "minimum"  # or "maximum", "majority", "local"
    elects_by_majority: bool = True
    votes_for_newer_logs: bool = True
    commits_old_terms: bool = False
    refuses_late: bool = False
    """Weighed first: who has reported a tick above T takes no entry for T. Safe, but the log may be stuck for ever."""


class Node(NamedTuple):
    """`reported` and `required` are the newest report, `promise` is the tick below which the node proposes nothing.

    `mark` is the highest overwritten entry; `unsaved` tells whether the log's last entry is only in memory.
    """

    reported: Vts
    required: Mark
    promise: int
    term: int
    log: Log
    mark: Mark
    leads: bool
    unsaved: bool


class State(NamedTuple):
    """`logs` has each leader's log, by term; `shown` is (tick, length): a tick was exposed with so much of `done`."""

    nodes: tuple[Node, ...]
    logs: tuple[Log, ...]
    done: Log
    shown: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Minors:
    """The model (search.Model). `symmetry=False` keeps nodes apart, `exposes=False` leaves the exposure out."""

    size: Size = Size()
    rules: Rules = Rules()
    symmetry: bool = True
    exposes: bool = True

    def initial(self) -> State:
        node = Node((0,) * self.size.streams, NO_MARK, 0, 0, (), NO_MARK, False, False)
        return State((node,) * self.size.nodes, (), (), ())

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.shown:
            yield from self._reports(state)
            if self.exposes:
                yield from self._exposures(state)
        yield from self._elections(state)
        yield from self._proposals(state)
        yield from self._deliveries(state)
        yield from self._restarts(state)

    # Stream progress.

    def _reports(self, state: State) -> Iterator[tuple[str, State]]:
        """Reports of one stream batch more, or of another `required`."""
        for place, node in enumerate(state.nodes):
            for stream, batch in enumerate(node.reported):
                if batch < self.size.batches:
                    vts = (*node.reported[:stream], batch + 1, *node.reported[stream + 1 :])
                    counts = place or self.rules.own_tick_counts_as_reported
                    promise = max(node.promise, min(vts)) if counts else node.promise
                    after = Node(vts, self._required(state, node, min(vts)), promise, *node[3:])
                    yield f"node {place} reports VTS {vts}, required {after.required}", _with_node(state, place, after)
            required = self._required(state, node, min(node.reported))
            if required != node.required:
                after = Node(node.reported, required, *node[2:])
                yield f"node {place} reports VTS {node.reported}, required {required}", _with_node(state, place, after)

    def _required(self, state: State, node: Node, tick: int) -> Mark:
        required = node.mark if self.rules.requires_overwritten else NO_MARK
        log = node.log if self.rules.requires_uncommitted else node.log[: len(state.done)]
        if self.rules.requires_all:
            return max(required, last_mark(log))
        for length, entry in enumerate(log, 1):
            if NO_OP < entry[1] < tick:
                required = max(required, (entry[0], length))
        return required

    def _exposures(self, state: State) -> Iterator[tuple[str, State]]:
        tick, length = self.exposable(state)
        if tick > 0:
            nodes = tuple(Node((), NO_MARK, *node[2:]) for node in state.nodes)
            label = f"node 0 exposes tick {tick} with {length} entries of the log"
            yield label, State(nodes, state.logs, state.done, (tick, length))

    def exposable(self, state: State) -> tuple[int, int]:
        """Return the highest tick that the observer may expose now, and with how much of the log at least."""
        tick = min(self._stable(state))
        if not self.rules.obeys_required:
            return tick, 0
        required = max(node.required for node in state.nodes)
        for length in range(len(state.done) + 1):
            if last_mark(state.done[:length]) >= required and state.nodes[0].log[:length] == state.done[:length]:
                return tick, length
        return 0, 0

    def _stable(self, state: State) -> Vts:
        reported = [node.reported for node in state.nodes]
        match self.rules.stable:
            case "minimum":
                return tuple(map(min, *reported))
            case "maximum":
                return tuple(map(max, *reported))
            case "majority":
                return tuple(sorted(batches)[-self.size.majority] for batches in zip(*reported, strict=True))
            case _:
                return reported[0]

    # The log.

    def _elections(self, state: State) -> Iterator[tuple[str, State]]:
        term = len(state.logs) + 1
        if term > self.size.terms:
            return
        votes = self.size.majority - 1 if self.rules.elects_by_majority else 0
        for leader, candidate in enumerate(state.nodes):
            others = [
                place
                for place, other in enumerate(state.nodes)
                if place != leader
                and (last_mark(other.log) <= last_mark(candidate.log) or not self.rules.votes_for_newer_logs)
            ]
            log = (*candidate.log, (term, NO_OP)) if term > 1 else candidate.log
            for voters in combinations(others, votes):
                nodes = list(state.nodes)
                for voter in voters:
                    nodes[voter] = nodes[voter]._replace(term=term, leads=False)
                nodes[leader] = candidate._replace(term=term, log=log, leads=True)
                label = f"node {leader} leads term {term}, votes of {', '.join(f'node {voter}' for voter in voters)}"
                yield label, State(tuple(nodes), (*state.logs, log), *state[2:])

    def _proposals(self, state: State) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            if not node.leads:
                continue
            log = state.logs[node.term - 1]
            ticks = [tick for _, tick in log if tick != NO_OP]
            promise = node.promise if self.rules.proposes_on_time else 0
            if len(ticks) < self.size.updates:
                for tick in range(max([*ticks, promise]), self.size.batches):
                    label = f"node {place} appends an update for tick {tick} at {len(log) + 1}"
                    yield label, self._appended(state, place, (*log, (node.term, tick)))
            elif self.rules.moves_in_term and log[len(state.done) :] and log[-1] != (node.term, NO_OP):
                for tick in range(max(log[-1][1] + 1, promise), self.size.batches):
                    label = f"node {place} moves its update at {len(log)} to tick {tick}"
                    yield label, self._appended(state, place, (*log[:-1], (node.term, tick)))

    def _appended(self, state: State, place: int, log: Log) -> State:
        node = state.nodes[place]
        logs = (*state.logs[: node.term - 1], log, *state.logs[node.term :])
        after = node._replace(log=log, unsaved=not self.rules.persists_before_sending)
        return _with_node(state, place, after)._replace(logs=logs)

    def _deliveries(self, state: State) -> Iterator[tuple[str, State]]:
        for term, leading in enumerate(state.logs, 1):
            leader = next((place for place, node in enumerate(state.nodes) if node.leads and node.term == term), None)
            sender = LATE if leader is None else f"from node {leader}"
            for place, node in enumerate(state.nodes):
                if node.term > term or place == leader:
                    continue
                for length in range(1, len(leading) + 1):
                    log, mark = _taken(node, leading[:length])
                    if (log == node.log and term == node.term) or self._refused(node, log):
                        continue
                    after = Node(node.reported, node.required, node.promise, term, log, mark, False, False)
                    label = f"node {place} takes the log of term {term} up to {length} {sender}"
                    yield label, self._committed(_with_node(state, place, after), term)

    def _refused(self, node: Node, log: Log) -> bool:
        if not self.rules.refuses_late:
            return False
        return any(NO_OP < entry[1] < node.promise and node.log[n : n + 1] != (entry,) for n, entry in enumerate(log))

    def _committed(self, state: State, term: int) -> State:
        """Extend `done` by the longest prefix that ends in an entry of `term` and that a majority has on disk."""
        held = self._held_by_majority(state, term)
        if len(held) > len(state.done) and agree(held, state.done):
            return State(state.nodes, state.logs, held, state.shown)
        return state

    def _held_by_majority(self, state: State, term: int) -> Log:
        """An acknowledgement names term and length, not contents: so holders are counted by these."""
        log = state.logs[term - 1]
        held = [node.log[:-1] if node.unsaved else node.log for node in state.nodes if node.term == term]
        for length in range(len(log), 0, -1):
            entry_term = log[length - 1][0]
            if entry_term != term and not self.rules.commits_old_terms:
                break
            if sum(len(one) >= length and one[length - 1][0] == entry_term for one in held) >= self.size.majority:
                return log[:length]
        return ()

    def _restarts(self, state: State) -> Iterator[tuple[str, State]]:
        """A restart keeps the state on disk. The leader of the last term stays up: it could only do less afterwards."""
        for place, node in enumerate(state.nodes):
            if node.leads and node.term == self.size.terms and not node.unsaved:
                continue
            promise = node.promise if self.rules.remembers_reported else 0
            log = node.log[:-1] if node.unsaved else node.log
            after = node._replace(promise=promise, log=log, leads=False, unsaved=False)
            if after != node:
                yield f"node {place} restarts", _with_node(state, place, after)
            if node.unsaved:
                saved = _with_node(state, place, node._replace(unsaved=False))
                yield f"node {place} saves its log", self._committed(saved, node.term)

    # What the search asks besides steps.

    def canonical(self, state: State) -> State:
        """Name the nodes that are not the observer, and the streams, so that the state comes out smallest."""
        if not self.symmetry:
            return state
        nodes = state.nodes
        if state.shown:
            return State(tuple(sorted(nodes)), *state[1:])
        ordered = (nodes[0], *sorted(nodes[1:]))
        if self.size.streams == 2:
            swapped = [Node(node.reported[::-1], *node[1:]) for node in nodes]
            ordered = min(ordered, (swapped[0], *sorted(swapped[1:])))
        return State(ordered, *state[1:])

    def violation(self, state: State) -> str | None:
        done = state.done
        if state.shown:
            tick, length = state.shown
            if any(NO_OP < entry[1] < tick for entry in done[length:]):
                return "who exposes a tick has every committed update below it"
        for term, log in enumerate(state.logs, 1):
            if not agree(self._held_by_majority(state, term), done):
                return "a committed update is never lost: what is committed is one log"
            ticks = [tick for _, tick in log if tick != NO_OP]
            if ticks != sorted(ticks):
                return "ticks never fall along the log"
        for node in state.nodes:
            held = node.log[: len(done)]
            if len(held) == len(done) and held != done and held[-1][0] == done[-1][0]:
                return "one SN has one content: who holds an entry that is committed holds what was committed"
        return None

    def step_violation(self, before: State, after: State) -> str | None:
        if len(after.logs) > len(before.logs) and after.logs[-1][: len(before.done)] != before.done:
            return "a committed update is never lost: each later leader has it"
        return None

    def settled(self, state: State) -> bool:
        """Tell whether the last tick may be exposed, and all hold the newest leader's log, which is committed.

        Exposing is no part of the protocol's progress, so what comes after it is not asked."""
        return bool(state.shown) or (
            self.exposable(state)[0] == self.size.batches
            and all(node.log == state.done for node in state.nodes)
            and state.logs[-1:] == (state.done,)
        )

    def goes_on(self, state: State) -> bool:
        """Tell whether the leader of the last term has committed an entry of its own."""
        return bool(state.done) and state.done[-1][0] == self.size.terms


def last_mark(log: Log) -> Mark:
    return (log[-1][0], len(log)) if log else NO_MARK


def agree(one: Log, other: Log) -> bool:
    """Tell whether one log is a prefix of the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _with_node(state: State, place: int, node: Node) -> State:
    nodes = state.nodes
    return State((*nodes[:place], node, *nodes[place + 1 :]), state.logs, state.done, state.shown)


def _taken(node: Node, sent: Log) -> tuple[Log, Mark]:
    """Return a node's log and mark once it was sent a leader's. Entries are one if term and place are, as in Raft."""
    log = node.log
    if agree(log, sent):
        return (sent if len(sent) > len(log) else log), node.mark
    for n, (old, new) in enumerate(zip(log, sent, strict=False)):
        if old[0] != new[0]:
            lost = [(term, length) for length, (term, tick) in enumerate(log[n:], n + 1) if tick != NO_OP]
            return (*log[:n], *sent[n:]), max([node.mark, *lost])
    return (*log, *sent[len(log) :]), node.mark

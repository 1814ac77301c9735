"""The model of sealing: one node takes the pieces of a stream from two source partitions and seals its stream
batches.

Each partition has rows, each row belongs to one stream batch. A piece is a range of rows of one stream batch; a
marker (k, end) closes all stream batches up to k, whose last row is before `end`. A piece's new term is claimed first:
its owner compares it by bytes, and a refused term needs an exception in the majority log. Then the node takes the piece
if it begins at the node's own end, and a marker whose rows it has. Once all partitions have closed k, k is sealed,
logged, and then acknowledged; a source keeps rows until they are acknowledged. A restart may come at any time and keeps
logged rows.

Abstractions, and why they are sound:

* Every piece (each cut of each writer) and marker is always on its way: loss is a message not taken, repetition and
  reordering are messages taken at any time. A writer that replaced another differs in its cuts only, as rows and
  their batches come from the source.
* Streams and nodes are alone: whether one seals depends on nothing of another. Others see only its local VTS
  (`logged`), with which progress.py goes on.
* `order`: rows that come out of order. A marker closes k only behind the last row of the stream batches up to k. A
  source may forget rows before the first one that is not on disk. A node that restarts takes rows from the first one
  on that it lacks, and passes over those that it has.
* Numbers are those of stream batches with rows: gaps hold nothing. A marker in the midst of stream batch k + 1 closes
  k, as one at its beginning does. The protocol may seal several stream batches in one step; here they are sealed one by
  one, and a stop in between gives a state that is explored, too.
* One new term per stream batch, at an owner whose verdict is fixed when it is first asked (claims.py has several
  replicas that come and go). The majority log is a bit: its record is there or not (minors.py has the log). A piece
  may bring its term to be claimed at any time, and be taken or refused later: so may a claim that nobody waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

UNASKED, CONFIRMED, REFUSED, EXCEPTED = range(4)


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's rules; each mutant of the tests is one of them turned round."""

    waits_for_all_partitions: bool = True
    waits_for_rows: bool = True
    takes_rows_once: bool = True
    waits_for_owners: bool = True
    logs_exceptions_first: bool = True
    acknowledges_after_logging: bool = True
    seals_in_order: bool = True
    acknowledges_what_is_whole: bool = True
    goes_on_at_the_first_missing: bool = True


class Partition(NamedTuple):
    """`taken[n]`: how often row n was taken; `closed`: the last closed stream batch; `acknowledged`: so many rows."""

    taken: tuple[int, ...]
    closed: int
    acknowledged: int


class State(NamedTuple):
    """`sealed[k - 1]` tells whether stream batch k is in memory, `logged` how many are on disk.

    `terms` is how far the new term of each stream batch is, `verdicts` what its owner has said (for ever), `exceptions`
    whether its exception is in the majority log.
    """

    partitions: tuple[Partition, ...]
    sealed: tuple[bool, ...]
    logged: int
    terms: tuple[int, ...]
    verdicts: tuple[int, ...]
    exceptions: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Sealing:
    """The model (search.Model). `ends[k]` is how many rows each partition has up to stream batch k. `order`: the stream
    batches of the rows in the order of arrival, if they do not come in order."""

    ends: tuple[int, ...] = (0, 2, 4)
    partitions: int = 2
    rules: Rules = Rules()
    order: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The stream batch of each row."""
        in_order = (k for k in range(1, len(self.ends)) for _ in range(self.ends[k - 1], self.ends[k]))
        return self.order or tuple(in_order)

    def last_end(self, k: int) -> int:
        """Return the row behind the last one of the stream batches up to k."""
        return max((row + 1 for row, number in enumerate(self.numbers) if number <= k), default=0)

    def whole_end(self, k: int) -> int:
        """Return the first row of a stream batch behind k."""
        return next((row for row, number in enumerate(self.numbers) if number > k), len(self.numbers))

    @property
    def batches(self) -> int:
        return len(self.ends) - 1

    def initial(self) -> State:
        empty = Partition((0,) * self.ends[-1], 0, 0)
        none = (False,) * self.batches
        return State((empty,) * self.partitions, none, 0, (UNASKED,) * self.batches, (UNASKED,) * self.batches, none)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, partition in enumerate(state.partitions):
            for label, after in self._arrivals(state, partition):
                partitions = _put(state.partitions, place, after)
                yield f"partition {place}: {label}", state._replace(partitions=partitions)
        for k in range(1, self.batches + 1):
            yield from self._confirmations(state, k)
            if not state.sealed[k - 1] and self._sealable(state, k):
                yield f"seals stream batch {k}", state._replace(sealed=_put(state.sealed, k - 1, True))
        following = state.logged + 1
        if following <= self.batches and state.sealed[following - 1]:
            yield f"logs and acknowledges stream batch {following}", self._logged(state, following)
        yield "restarts", self._restarted(state)

    def _arrivals(self, state: State, partition: Partition) -> Iterator[tuple[str, Partition]]:
        end, numbers = self._end(partition), self.numbers
        for first, k in enumerate(numbers):
            last = next((row for row in range(first, len(numbers)) if numbers[row] != k), len(numbers))
            if state.terms[k - 1] not in (CONFIRMED, EXCEPTED) and self.rules.waits_for_owners:
                continue
            for stop in range(first + 1, last + 1):
                if first == end or (not self.rules.takes_rows_once and first < end < stop):
                    taken = tuple(count + (first <= row < stop) for row, count in enumerate(partition.taken))
                    acknowledged = partition.acknowledged if self.rules.acknowledges_after_logging else max(end, stop)
                    yield f"rows {first} to {stop}", partition._replace(taken=taken, acknowledged=acknowledged)
        for k in range(partition.closed + 1, self.batches + 1):
            if end >= self.last_end(k) or not self.rules.waits_for_rows:
                yield f"marker of stream batch {k}", partition._replace(closed=k)

    def _confirmations(self, state: State, k: int) -> Iterator[tuple[str, State]]:
        term = state.terms[k - 1]
        if term == UNASKED:
            for verdict in [CONFIRMED, REFUSED] if state.verdicts[k - 1] == UNASKED else [state.verdicts[k - 1]]:
                said = {CONFIRMED: "confirms", REFUSED: "refuses"}[verdict]
                after = state._replace(
                    terms=_put(state.terms, k - 1, verdict), verdicts=_put(state.verdicts, k - 1, verdict)
                )
                yield f"the owner {said} the term of stream batch {k}", after
        if term == REFUSED:
            if not state.exceptions[k - 1]:
                label = f"the exception for the term of stream batch {k} is in the majority log"
                yield label, state._replace(exceptions=_put(state.exceptions, k - 1, True))
            if state.exceptions[k - 1] or not self.rules.logs_exceptions_first:
                label = f"the term of stream batch {k} is encoded anew and confirmed"
                yield label, state._replace(terms=_put(state.terms, k - 1, EXCEPTED))

    def _sealable(self, state: State, k: int) -> bool:
        closed = [partition.closed >= k for partition in state.partitions]
        return (all(closed) if self.rules.waits_for_all_partitions else any(closed)) and (
            k == 1 or state.sealed[k - 2] or not self.rules.seals_in_order
        )

    def _logged(self, state: State, k: int) -> State:
        end = self.whole_end(k) if self.rules.acknowledges_what_is_whole else self.last_end(k)
        partitions = tuple(one._replace(acknowledged=max(one.acknowledged, end)) for one in state.partitions)
        return state._replace(logged=k, partitions=partitions)

    def _restarted(self, state: State) -> State:
        """Keep what is on disk; the rest comes again, from the node's own end."""
        k, numbers = state.logged, self.numbers
        partitions = tuple(
            Partition(
                tuple(count if number <= k else 0 for number, count in zip(numbers, one.taken, strict=True)),
                k,
                one.acknowledged,
            )
            for one in state.partitions
        )
        sealed = tuple(number <= k for number in range(1, self.batches + 1))
        terms = tuple(term if number <= k else UNASKED for number, term in enumerate(state.terms, 1))
        return state._replace(partitions=partitions, sealed=sealed, terms=terms)

    def canonical(self, state: State) -> State:
        """Partitions are interchangeable."""
        return state._replace(partitions=tuple(sorted(state.partitions)))

    def violation(self, state: State) -> str | None:
        for k, sealed in enumerate(state.sealed, 1):
            if not sealed:
                continue
            numbered = [pair for one in state.partitions for pair in zip(self.numbers, one.taken, strict=True)]
            rows = [count for number, count in numbered if number == k]
            if rows != [1] * len(rows):
                return "a sealed stream batch has each of its rows once"
            if state.terms[k - 1] not in (CONFIRMED, EXCEPTED):
                return "nothing is sealed before its new terms are confirmed"
            if state.terms[k - 1] == EXCEPTED and not state.exceptions[k - 1]:
                return "an exception is in the majority log before it is used"
            if not all(state.sealed[: k - 1]):
                return "stream batches are sealed in order"
        if any(one.acknowledged > self.whole_end(state.logged) for one in state.partitions):
            return "what is acknowledged is on disk"
        return None

    def step_violation(self, before: State, after: State) -> str | None:
        return None if after.logged >= before.logged else "the local VTS never falls"

    def settled(self, state: State) -> bool:
        return state.logged == self.batches

    def _end(self, partition: Partition) -> int:
        if not self.rules.goes_on_at_the_first_missing:
            return max((row + 1 for row, count in enumerate(partition.taken) if count), default=0)
        return next((row for row, count in enumerate(partition.taken) if not count), len(partition.taken))


def _put(items: tuple[Item, ...], place: int, item: Item) -> tuple[Item, ...]:
    return (*items[:place], item, *items[place + 1 :])

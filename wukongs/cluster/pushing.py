"""Pushing: the way from what a client pushes to the writers of its streams, on this node and on others.

The node that a client asks groups the streams of a call by the nodes that write them. It asks these at the same time,
each by one message for all of its streams. Each answers for every stream what has come of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from wukongs.cluster.feeding import index_of
from wukongs.cluster.host import Host
from wukongs.cluster.intake import LOG_S, Intake
from wukongs.cluster.members import await_word, left_s
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.pushes import asked_in
from wukongs.cluster.writing import (
    TOGETHER_BYTES_MAX,
    Held,
    Outcome,
    Said,
    StreamWriter,
    size_of,
    take_together,
    writer_of,
)
from wukongs.csparql.terms import iri
from wukongs.errors import DataError, NodeUnavailable, OutcomeUnknown, WukongsError
from wukongs.live.core import Core
from wukongs.live.pieces import timing_mask
from wukongs.live.stream import Calls, Taken, partly_taken
from wukongs.live.stream_state import StreamState
from wukongs.outcomes import Asked, asked, asking
from wukongs.query.limits import current
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, UNBOUND, Int64Array
from wukongs.store.encoded import NO_SIGNS, Encoded, TermCutter, signs_of
from wukongs.wire.packet_columns import (
    column_of,
    count_of,
    objects_of,
    text_of,
    time_of,
    timeout_of,
    tuples_in,
    tuples_packet,
)
from wukongs.wire.packets import Packet, Peers
from wukongs.wire.refusals import error_told, refusal

PUSH = "push"
PUSH_S = 60.0
"""How long the nodes may take to have what was pushed."""
RETRY_S = 0.05
TELL_S = 2.0
"""How much longer than the writer who has asked it waits, to hear which node it has waited for."""
_NO_ROWS: Int64Array = np.empty(0, np.int64)
Answer: TypeAlias = Outcome | int
"""The outcome of an order, or the node that writes its stream."""
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A task for the writer of a stream: to take tuples, then to advance; or to take what the firing at fired_ms of the
    stream's query has brought (StreamWriter.decide); or to end the stream."""

    stream: str
    encoded: Encoded | None = None
    advance_ms: int | None = None
    fired_ms: int | None = None
    first_ms: int | None = None
    is_last: bool = False
    by: Asked | None = None

    @property
    def is_push(self) -> bool:
        return self.fired_ms is None and not self.is_last

    def give(self, writer: StreamWriter, timeout_s: float) -> Outcome:
        """Give an order that is no push. Return what has come of it."""
        try:
            if self.fired_ms is not None:
                writer.decide(self.fired_ms, self.encoded, timeout_s, self.first_ms)
            else:
                writer.finish(timeout_s)
        except WukongsError as error:
            return error
        return _NO_ROWS


class Writers:
    """The writers of one node, and the way to those on others."""

    def __init__(self, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._host, self._store, self._intake, self._peers = host, store, intake, peers
        self._writers: dict[str, StreamWriter] = {}
        self._lock = threading.Lock()

    def push(self, stream: str, encoded: Encoded, timeout_s: float) -> Int64Array:
        """Add tuples to a stream, wherever its writer is; return the numbers of those that are late. Raises as
        StreamWriter.push."""
        return self._give_one(Order(stream, encoded), timeout_s)

    def decide(self, stream: str, at_ms: int, encoded: Encoded | None, first_ms: int, timeout_s: float) -> None:
        """Tell the writer of a stream what a firing of its query has brought. Raises as StreamWriter.decide."""
        self._give_one(Order(stream, encoded, fired_ms=at_ms, first_ms=first_ms), timeout_s)

    def finish(self, stream: str, timeout_s: float) -> None:
        self._give_one(Order(stream, is_last=True), timeout_s)

    def give(self, orders: Sequence[Order], timeout_s: float) -> list[Outcome]:
        """Give orders, each for another stream, to the writers, wherever these are. Return what has come of each."""
        deadline = time.monotonic() + timeout_s
        found: dict[int, Outcome] = {}
        while len(found) < len(orders):
            of_nodes: dict[int, list[int]] = {}
            for place in (place for place in range(len(orders)) if place not in found):
                of_nodes.setdefault(writer_of(self._host.node, orders[place].stream), []).append(place)
            nodes = sorted(of_nodes, key=lambda node: node == self._peers.me)
            asked = [partial(self._give_to, at, [orders[place] for place in of_nodes[at]], deadline) for at in nodes]
            for at, answers in zip(nodes, _at_once(asked), strict=True):
                here = zip(of_nodes[at], answers, strict=True)
                found |= {place: answer for place, answer in here if not isinstance(answer, int)}
            if len(found) == len(orders):
                break
            if time.monotonic() >= deadline:
                for place in range(len(orders)):
                    unknown = (
                        f"stream {orders[place].stream}: the nodes did not agree within {timeout_s:g} s who writes it"
                    )
                    found.setdefault(place, NodeUnavailable(unknown))
            else:
                time.sleep(RETRY_S)  # until both know of the same members
        return [found[place] for place in range(len(orders))]

    def answer(self, packet: Packet) -> Packet:
        """Handler of PUSH: what another node's clients say; the answer names the writer of a stream where another node
        is it."""
        orders, index, timeout_s = _orders_in(packet), index_of(packet), timeout_of(packet)
        self._host.wait_for_record(index, LOG_S)
        at = [writer_of(self._host.node, order.stream) for order in orders]
        mine = [order for order, node in zip(orders, at, strict=True) if node == self._peers.me]
        outcomes = iter(self._give_here(mine, timeout_s))
        return _answers_packet([next(outcomes) if node == self._peers.me else node for node in at])

    def writer(self, stream: str) -> StreamWriter:
        """Return the writer at this node, whether it is the one that all nodes know or not."""
        control = self._host.node.control
        key = control.key_of(stream)  # another one may have been declared under the name
        with self._lock:
            writer = self._writers.get(key)
            if writer is None:
                self._writers = {known: one for known, one in self._writers.items() if control.takes_in(known)}
                writer = self._writers[key] = StreamWriter(stream, self._host, self._store, self._intake, self._peers)
            return writer

    def holds_time_back(self, state: StreamState) -> bool:
        """Tell whether the time of the stored graph waits for a stream now: it has begun, is not late, and follows no
        others."""
        stream = self._host.node.control.stream_named(state.iri)
        return stream is not None and stream.counts is not None and not state.follows_others

    def _give_one(self, order: Order, timeout_s: float) -> Int64Array:
        (outcome,) = self.give([order], timeout_s)
        if isinstance(outcome, WukongsError):
            raise outcome
        return outcome

    def _give_here(self, orders: Sequence[Order], timeout_s: float) -> list[Answer]:
        """Give orders to writers at this node. One that has to wait is to be asked again: this node writes its
        stream."""
        deadline = time.monotonic() + timeout_s
        pushes = [order for order in orders if order.is_push]
        calls = [(self.writer(order.stream), Said(order.encoded, order.advance_ms, order.by)) for order in pushes]
        taken = iter(take_together(calls, timeout_s))
        return [
            self._held(next(taken)) if order.is_push else order.give(self.writer(order.stream), left_s(deadline))
            for order in orders
        ]

    def _held(self, outcome: Outcome) -> Answer:
        return self._peers.me if isinstance(outcome, Held) else outcome

    def _give_to(self, at: int, orders: Sequence[Order], deadline: float) -> Sequence[Answer]:
        """Give orders to the writers at a node. An error is the outcome of all that it may be about."""
        answers: list[Answer] = []
        try:
            if at == self._peers.me:
                return self._give_here(orders, left_s(deadline))
            # Whether a node that goes in the middle of it has done it is not known: who was silent before is not asked.
            await_word(self._host, at, left_s(deadline))
            writers = [writer_of(self._host.node, order.stream) for order in orders]
            if any(writer != at for writer in writers):
                return writers
            for together in _in_messages(orders):
                answers += self._ask(at, together, left_s(deadline))
        except WukongsError as error:
            answers += [error] * (len(orders) - len(answers))
        return answers

    def _ask(self, at: int, orders: Sequence[Order], timeout_s: float) -> list[Answer]:
        packet = _orders_packet(orders, self._host.node.control.index, timeout_s)
        try:
            (answer,) = self._peers.ask([(at, packet)], timeout_s + TELL_S)
        except NodeUnavailable as error:
            raise OutcomeUnknown(str(error)) from error
        return _answers_in(answer, orders)


def _at_once(calls: Sequence[Callable[[], Value]]) -> list[Value]:
    """Call functions at the same time, the last one in this thread; return their values in order."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls) - 1, "wukongs-push") as threads:
        others = [threads.submit(call) for call in calls[:-1]]
        last = calls[-1]()
        return [*(other.result() for other in others), last]


def _in_messages(orders: Sequence[Order]) -> Iterator[Sequence[Order]]:
    """Divide orders among as few messages as their sizes allow."""
    first, size = 0, 0
    for at, order in enumerate(orders):
        more = 0 if order.encoded is None else size_of(order.encoded)
        if at > first and size + more > TOGETHER_BYTES_MAX:
            yield orders[first:at]
            first, size = at, 0
        size += more
    yield orders[first:]


# --- orders and answers as packets ------------------------------------------------------------------------------------


def _orders_packet(orders: Sequence[Order], index: int, timeout_s: float) -> Packet:
    """Return orders as a packet: their tuples as groups (packet_columns.py), and in the fields "orders", each with the
    number of its groups, which is 0 or 1.

    index: how far the writer has to know the log; timeout_s: how long it may take."""
    told = []
    for order in orders:
        fields: dict[str, Any] = {"stream": order.stream, "group_count": int(order.encoded is not None)}
        fields |= {name: ms for name in _TIMES if (ms := getattr(order, name)) is not None}
        fields |= {} if order.by is None else {"by": order.by}
        told.append(fields | ({"is_last": True} if order.is_last else {}))
    groups = [order.encoded for order in orders if order.encoded is not None]
    return tuples_packet(PUSH, groups, orders=told, index=index, timeout_s=timeout_s)


_TIMES = ("advance_ms", "fired_ms", "first_ms")


def _orders_in(packet: Packet) -> list[Order]:
    """Return the orders of a packet. Raises DataError."""
    told, groups = objects_of(packet, "orders"), tuples_in(packet)
    counts = [count_of(Packet(PUSH, fields), "group_count", 1) for fields in told]
    if sum(counts) != len(groups):
        raise DataError(f"{PUSH}: expected {sum(counts)} groups of tuples, found {len(groups)}")
    rest = iter(groups)
    orders = [_order(fields, next(rest) if count else None) for fields, count in zip(told, counts, strict=True)]
    if len({order.stream for order in orders}) < len(orders):
        raise DataError(f"{PUSH}: expected one order for a stream, found more")
    return orders


def _order(fields: Mapping[str, Any], encoded: Encoded | None) -> Order:
    said = Packet(PUSH, fields)
    times = {name: time_of(said, name) for name in _TIMES if name in fields}
    by = None if fields.get("by") is None else asked_in(fields["by"])
    order = Order(text_of(said, "stream"), encoded, **times, is_last=fields.get("is_last") is True, by=by)
    if order.fired_ms is not None:
        if order.first_ms is None:
            raise DataError(f"{PUSH}: a firing without first_ms")
        if encoded is not None and not np.array_equal(encoded.timestamps, np.full(len(encoded), order.fired_ms)):
            raise DataError(f"{PUSH}: expected tuples with the time of one firing, found others")
        return order
    has_tuples = encoded is not None and 0 < len(encoded) == len(encoded.timestamps)
    if order.is_push and not has_tuples and (encoded is not None or order.advance_ms is None):
        raise DataError(f"{PUSH}: expected tuples with their times for stream {order.stream}, found none")
    return order


def _answers_packet(answers: Sequence[Answer]) -> Packet:
    """Return answers to orders as a packet: in the fields "answers" the number of late tuples, an error (refusals.py),
    or the writer; late : int64[all late tuples], their numbers."""
    told: list[Mapping[str, Any]] = []
    late = [_NO_ROWS]
    for answer in answers:
        if isinstance(answer, WukongsError):
            told.append(refusal(answer).fields)
        elif isinstance(answer, int):
            told.append({"writer": answer})
        else:
            told.append({"late_count": len(answer)})
            late.append(answer)
    return Packet(PUSH, {"answers": told}, {"late": np.concatenate(late)})


def _answers_in(packet: Packet, orders: Sequence[Order]) -> list[Answer]:
    """Return what a node has answered to orders. Raises DataError."""
    told, late = objects_of(packet, "answers"), column_of(packet, "late", np.int64)
    if len(told) != len(orders):
        raise DataError(f"{PUSH}: expected {len(orders)} answers, found {len(told)}")
    answers, at = list[Answer](), 0
    for fields, order in zip(told, orders, strict=True):
        said = Packet(PUSH, fields)
        if "error" in fields:
            answers.append(error_told(fields))
        elif "writer" in fields:
            answers.append(count_of(said, "writer"))
        else:
            tuple_count = 0 if order.encoded is None else len(order.encoded)
            rows = late[at : at + count_of(said, "late_count", tuple_count)]
            at += count_of(said, "late_count")
            if len(rows) and (rows[0] < 0 or rows[-1] >= tuple_count or (rows[1:] <= rows[:-1]).any()):
                raise DataError(
                    f"{PUSH}: expected the ascending numbers of late tuples, of {tuple_count}, found others"
                )
            answers.append(rows)
    if at != len(late):
        raise DataError(f"{PUSH}: expected the numbers of {at} late tuples, found {len(late)}")
    return answers


# --- streams of an engine ---------------------------------------------------------------------------------------------


class ClusterSink:
    """See wukongs.live.stream.Sink: what it takes is safe on all nodes. Raises also NodeUnavailable.

    store: lets late timeless tuples of a stream join the stored graph."""

    def __init__(self, core: Core, writers: Writers, store: Callable[[StreamState, Encoded], object]) -> None:
        self._core, self._writers, self._store = core, writers, store

    def take_all(self, calls: Calls, advance_ms: int | None = None) -> Taken:
        """Each writer judges its own streams, all at the same time. If some refuse, or are away, the error names those
        streams and the ones that have their tuples.

        A stream advances by the same message that brings its tuples, unless time could then pass without those of
        another stream of the call, or without late ones that are to be stored. Then all advance in a second round, if
        nothing was refused in the first."""
        for state, _ in calls:
            self._check_is_open(state)
        holds = [len(calls) == 1 or self._writers.holds_time_back(state) for state, _ in calls]
        if advance_ms is None or (all(holds) and not any(_may_store_late(*call) for call in calls)):
            found = self._take(calls, advance_ms)
        else:
            found = self._take(calls, None)
            if not any(isinstance(one, WukongsError) for one in found):
                advanced = self._take([(state, None) for state, _ in calls], advance_ms)
                return _taken(calls, [late for late in found if not isinstance(late, WukongsError)], advanced)
        return _taken(calls, [None if isinstance(one, WukongsError) else one for one in found], found)

    def _take(self, calls: Calls, advance_ms: int | None) -> list[Outcome]:
        found: list[Outcome] = [_NO_ROWS] * len(calls)
        by = asked()
        orders = {
            place: Order(state.iri, encoded if encoded is not None and len(encoded) else None, advance_ms, by=by)
            for place, (state, encoded) in enumerate(calls)
            if advance_ms is not None or (encoded is not None and len(encoded))
        }
        outcomes = self._writers.give(list(orders.values()), current().within(PUSH_S))
        for (place, order), outcome in zip(orders.items(), outcomes, strict=True):
            found[place] = outcome
            if not isinstance(outcome, WukongsError) and order.encoded is not None and len(outcome):
                try:
                    self._store_late(calls[place][0], order.encoded, outcome)
                except WukongsError as error:
                    found[place] = error
        return found

    def _store_late(self, state: StreamState, encoded: Encoded, late: Int64Array) -> None:
        timeless = late[~timing_mask(encoded, state.timing)[late]]
        if not len(timeless):
            return
        by, tuples = asked(), TermCutter(encoded).cut(timeless)
        try:
            # A change of its own, once as well: its client is named for the stream.
            with asking(None if by is None else by._replace(client=f"{by.client} {state.iri}")):
                self._store(state, tuples)
        except WukongsError as error:
            again = "load them" if state.event_times is None else "push them again"
            raise OutcomeUnknown(
                f"stream {state.iri}: the tuples that are on time were taken; {len(timeless)} late ones may not be "
                f"in the stored graph: {again}. {error}"
            ) from error

    def end(self, state: StreamState) -> None:
        """A stream that pipelines feed as well goes on until they are at their end."""
        if state.is_made:
            self._check_is_open(state)
        if not (state.is_ended or state.is_dropped or self._core.is_closed):
            self._writers.finish(state.iri, current().within(PUSH_S))

    def _check_is_open(self, state: StreamState) -> None:
        with self._core.lock:
            self._core.check_is_open()
            state.check_is_open()


def come_and_gone(late: Encoded, into: str | None) -> tuple[Encoded, Encoded]:
    """Return which of some tuples come, and which go, without their times: of each quad the last one by time, then by
    place, counts. into: IRI of the graph of quads without one, None: the default graph."""
    last, goes = np.arange(len(late)), signs_of(late.goes, len(late))
    if goes.any():
        latest = np.argsort(late.timestamps, kind="stable")[::-1]
        own = np.isin(late.graphs, late.codes_of([iri(into or DEFAULT_GRAPH_IRI).text]))
        graphs = np.where(own, UNBOUND, late.graphs)
        quads = np.stack((graphs, late.subjects, late.predicates, late.objects))[:, latest]
        last = np.sort(latest[np.unique(quads, axis=1, return_index=True)[1]])
    cutter = TermCutter(late)
    come, gone = (cutter.cut(rows) for rows in (last[~goes[last]], last[goes[last]]))
    return tuple(replace(one, timestamps=_NO_ROWS, goes=NO_SIGNS) for one in (come, gone))  # type: ignore[return-value]


def _may_store_late(state: StreamState, encoded: Encoded | None) -> bool:
    """Tell whether tuples of a call may join the stored graph by a record of their own, since they are late."""
    return encoded is not None and state.may_be_late and not bool(timing_mask(encoded, state.timing).all())


def _taken(calls: Calls, late: list[Int64Array | int | None], outcomes: Sequence[Outcome]) -> Taken:
    """late: of the calls whose tuples were taken; outcomes: what came last of each stream."""
    errors = [one for one in outcomes if isinstance(one, WukongsError)]
    if not errors:
        return late, None
    streams = zip(calls, late, strict=True)
    taken = [
        state.iri for (state, encoded), rows in streams if rows is not None and encoded is not None and len(encoded)
    ]
    return late, partly_taken(errors[0], taken, errors[1:])

"""Host: runs the protocol of one node. One thread takes events in, one after the other, and carries out what they ask.
The simulator (tests/sim) runs it without the thread, on a store, a disk, a network and a clock of its own.

Other threads read `host.node`, an immutable value, and hand events in by `post`, or by the calls that wait for an
outcome. Each such call has a deadline. The thread itself waits for nobody: work that needs an answer of another node,
or takes long, is done elsewhere (claims.py, slices.py).
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from msgspec import structs

from wukongs.errors import NOT_KNOWN, NodeUnavailable, OutcomeUnknown, WukongsError
from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol import leasing
from wukongs.protocol.control import THE_FIRST, Control
from wukongs.protocol.messages import Body, Delivered, Incarnation, Message
from wukongs.protocol.node import step
from wukongs.protocol.progress import HeldAnywhere, held_anywhere
from wukongs.protocol.records import Membership, Record, Role, Sn, Vts, record_key
from wukongs.protocol.sealing import position
from wukongs.protocol.state import Cluster, Kept, Node, boot
from wukongs.protocol.waiting import is_waited_for
from wukongs.wire.packets import Packet

log = logging.getLogger("wukongs")
PULSE_S = 0.02
"""While somebody waits for what the protocol says next; else Cluster.quiet_pulses times as long."""
INBOX_MAX = 1 << 14
"""Messages of other nodes that wait; more are dropped, as the protocol allows, and counted."""
OFFER_S = 30.0
NOTHING_KEPT = Kept()

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BEGINNING_S = random.SystemRandom().uniform(0, 1 << 30)


def lease_clock() -> float:
    """Return seconds that never fall. On Linux they go on while the machine is suspended. They begin at a random time
    in each process: what a leader grants to an earlier life, before another start of the machine or on another machine,
    is none of this one's times."""
    return _BEGINNING_S + time.clock_gettime(_CLOCK)


Errand = act.AskClaim | act.SettleClaim | act.CompareTerms | act.AnswerClaim
"""An action that takes another thread: it waits for other nodes, or compares many terms."""
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Applied:
    """Where a record stands: its index in the log, and its SN, or that of the last record before it that has one."""

    index: int
    sn: Sn


class Dropped(WukongsError):
    """A record that was handed in will not be in the log: it is there already, or what it rests on has changed."""


class Store(Protocol):
    """The data of a node, to which the host tells what is decided, in that order, from one thread (NodeStore)."""

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended it, if one has."""

    def take(self, piece: Any) -> object:
        """Carry out TakePiece. piece: what was offered (PieceOffered.piece)."""

    def seal(self, action: act.SealBatch) -> bool:
        """Carry out SealBatch; return whether that is done. If not, the host is told Inserted when it is."""

    def apply(self, index: int, record: Record, sn: Sn | None) -> object:
        """Carry out Apply."""

    def pass_over(self, record: Record) -> object:
        """Note a record whose effect has come by InstallState."""

    def place(self, control: Control) -> object:
        """Note which nodes hold which shards, before anything else is done in this placement."""

    def expose(self, sn: Sn, vts: Vts) -> object:
        """Carry out Expose."""

    def stable(self, vts: Vts) -> object:
        """Note what is inserted on every node. vts: of the streams of which that is more than before."""

    def hold(self, held: HeldAnywhere) -> object:
        """Keep what readers of some node may still ask for."""

    def held(self) -> Held:
        """Return what readers here may still ask for."""

    def refused(self, index: int) -> WukongsError | None:
        """Return why the record at this index of the log did nothing, if it could not be carried out."""

    @property
    def reached(self) -> Sn:
        """The newest SN that reads see. Never waits."""

    def wait_for(self, sn: Sn, timeout_s: float) -> object:
        """Wait until reads see an SN."""

    def fail(self, error: BaseException) -> object:
        """Refuse all reads from now on."""


class Held(Protocol):
    """The fields of events.HeldReads; of delivered the tick."""

    @property
    def oldest_sn(self) -> Sn | None: ...

    @property
    def oldest_firing(self) -> int | None: ...

    @property
    def delivered(self) -> int | None: ...

    @property
    def stands(self) -> tuple[Sn, ...]: ...


class Disk(Protocol):
    """Where a node keeps what it is told. is_lasting: whether a node that was taken out goes on with it; round_max: how
    many things may happen before they are made safe together."""

    is_lasting: bool
    round_max: int

    def taken(self, event: ev.PieceOffered | ev.Marker) -> object:
        """Note a piece or marker that was taken."""

    def save(self, action: act.SaveVote | act.SaveEntries | act.SaveControl) -> object:
        """Carry out an action. It is safe behind the next `sync`, as is all that the other methods are told."""

    def commit(self, index: int) -> object:
        """Note that the log is committed up to this index."""

    def meet(self, node: int, disk: int) -> object:
        """Note that another node was heard."""

    def add(self, packet: Packet, is_awaited: bool = True) -> object:
        """Note something else that a restart has to know. From any thread. is_awaited: whether `sync` is to wait for
        it; else it is safe with what comes behind it."""

    def sync(self) -> object:
        """Return when everything so far is safe. From any thread."""

    def settled(self, index: int) -> int:
        """Return the last record, up to this one, whose effects a restart finds without it."""


class NoDisk:
    """The disk of a node that keeps everything in memory: a node that starts again is another voter."""

    is_lasting = False
    round_max = 1

    def taken(self, event: ev.PieceOffered | ev.Marker) -> None:
        pass

    def save(self, action: act.SaveVote | act.SaveEntries | act.SaveControl) -> None:
        pass

    def commit(self, index: int) -> None:
        pass

    def meet(self, node: int, disk: int) -> None:
        pass

    def add(self, packet: Packet, is_awaited: bool = True) -> None:
        pass

    def sync(self) -> None:
        pass

    def settled(self, index: int) -> int:
        return index


class CatchingUp:
    """Hands records and SNs of the protocol on to the store. A node that joins first takes over what came before; until
    then they are kept back here. Called by the protocol's thread. is_installed: whether the store has what came before.

    least_sn: the data that is taken over has to be as new as this, because this node was sent no record before it."""

    def __init__(self, store: Store, is_installed: bool) -> None:
        self.is_installed = is_installed
        self.least_sn = THE_FIRST
        self._store = store
        self._records: list[tuple[int, Record, Sn | None]] = []
        self._exposed: act.Expose | None = None

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        """Carry out Apply."""
        if self.is_installed:
            self._store.apply(index, record, sn)
        else:
            self._records.append((index, record, sn))

    def expose(self, exposed: act.Expose) -> None:
        """Carry out Expose."""
        if self.is_installed:
            self._store.expose(exposed.sn, exposed.vts)
        else:
            self._exposed = exposed

    def jump(self, control: Control) -> None:
        """Note that this node goes on from a control state, without the records before it. It gets their effects from
        other nodes, and shows nothing until then."""
        self.is_installed = False
        for _, record, _ in self._records:
            self._store.pass_over(record)  # It is before that state.
        self._records = []
        self.least_sn = control.last_sn

    def wait_on(self, control: Control) -> None:
        """Let go of the records so far: this node holds nothing, and will get their effects from others."""
        if not self.is_installed and self._records:
            self.jump(control)
            self._store.place(control)

    def go_on(self, sn: Sn) -> None:
        """The store has taken over what came up to an SN: hand on the records behind it."""
        self.is_installed = True
        for index, record, at in self._records:
            if at is None or at > sn:
                self._store.apply(index, record, at)
            else:
                self._store.pass_over(record)
        self._records = []

    def show(self) -> None:
        """Let the store come to what is exposed."""
        exposed, self._exposed = self._exposed, None
        if exposed is not None:
            self._store.expose(exposed.sn, exposed.vts)


def _to_nobody(node: int, body: Body) -> None:
    pass


def _not_joining(asked: act.InstallState) -> None:
    raise AssertionError(f"nobody takes over what other nodes hold: {asked}")


class Host:
    """send: (node, body), which may lose it. disk: where it keeps what it is told, None: nowhere; kept: what the disk
    has of the protocol. is_installed: whether the store has what came before this life began. draws: what gives
    Pulse.draw. clock: seconds that never fall, by which leases end. failure: what has ended it, if something has."""

    def __init__(
        self,
        cluster: Cluster,
        me: Incarnation,
        store: Store,
        send: Callable[[int, Body], object],
        pulse_s: float = PULSE_S,
        disk: Disk | None = None,
        kept: Kept = NOTHING_KEPT,
        is_installed: bool = True,
        draws: random.Random | None = None,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self.me = me
        self.disk: Disk = disk or NoDisk()
        self._clock = clock
        self.node: Node = leasing.begun(boot(cluster, me, kept), self.now_ms())
        self.had_to = 0
        """The last entry of the log when this life began. The node that it was may have acted on it."""
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], object] = lambda _: None
        """Is called once, in the protocol's thread, when something has ended it."""
        self.taken_out: Counter[int] = Counter()
        """How often each node was taken out since this life began, because nothing was heard of it."""
        self._install: Callable[[act.InstallState], object] = _not_joining
        self._collect: Callable[[act.CollectState], object] = self._collect_nothing
        self._on_pulse: Sequence[Callable[[], object]] = ()
        self.catching_up = CatchingUp(store, is_installed)
        self.dropped_messages = 0
        self._store = store
        self._send = send
        self._pulse_s = pulse_s
        self._draws = draws or random.Random()
        self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._next: deque[ev.Event] = deque()
        self._told: list[Callable[[], object]] = []
        """How others hear of this round. They do when it is safe."""
        self._is_in_round = False
        if kept.control is not None:
            store.place(kept.control)
        self._stable: Vts = {}
        self._errands: dict[int, Callable[[Errand | None], object]] = {}
        self._errand_numbers = itertools.count(1)
        self._outcomes: set[Future[Any]] = set()
        """The outcomes that callers wait for. Under the lock of `_changed`."""
        self._waiting: dict[Hashable, list[Future[Applied]]] = {}
        """By record: of these, also some that nobody waits for any more."""
        self._decided: list[tuple[Future[Applied], Applied | Dropped]] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="wukongs-host", daemon=True)

    def delegate(
        self,
        install: Callable[[act.InstallState], object],
        collect: Callable[[act.CollectState], object] | None = None,
        on_pulse: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Say who does the work that other threads or nodes take part in, before the node takes part. Each is called in
        the protocol's thread and returns at once. install: takes over what other nodes hold; collect: gives it, None:
        it is asked for by packets, later; on_pulse: grows older with each pulse."""
        self._install, self._on_pulse = install, on_pulse
        self._collect = collect or self._collect_nothing

    def fetch_first(self) -> None:
        """Delay the request to join until the event Fetched. Called before this node takes part."""
        self.node = replace(self.node, is_fetching=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. Closing twice is allowed."""
        self._is_closed = True
        self._inbox.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        with self._changed:
            self._changed.notify_all()

    # --- from other threads -------------------------------------------------------------------------------------------

    def post(self, event: ev.Event) -> None:
        """Let the protocol take in an event, soon. Nothing, once this node has ended."""
        if self._is_closed:
            return
        if isinstance(event, ev.Received) and self._inbox.qsize() >= INBOX_MAX:
            self.dropped_messages += 1
            return
        self._inbox.put(lambda: self.take(event))

    def receive(self, message: Message) -> None:
        self.post(ev.Received(message, self.now_ms()))

    def now_ms(self) -> int:
        """Return the time on the clock of leases."""
        return int(self._clock() * 1000)

    @property
    def lease_left_s(self) -> float:
        """How long this node may answer reads from now on: 0 or less if it may not."""
        return (leasing.holds_until(self.node) - self.now_ms()) / 1000

    def fail(self, error: BaseException) -> None:
        """End this node, soon: it cannot do without what has failed."""

        def end() -> None:
            raise error

        self._inbox.put(end)

    def call(self, function: Callable[[], object]) -> None:
        """Have the protocol's thread call a quick function: that it does says that it moves."""
        self._inbox.put(function)

    def end(self, error: BaseException) -> None:
        """End this node at once, from another thread: its own may hang. Whoever waits is told. Nothing, once it
        has ended by itself."""
        if self.failure is not None or self._is_closed:
            return
        self.failure = error
        self._give_up()
        self.on_failure(error)
        self._store.fail(error)

    def run(
        self,
        function: Callable[[], Outcome],
        timeout_s: float,
        refusals: tuple[type[WukongsError], ...] = (NodeUnavailable,),
    ) -> Outcome:
        """Run a function in the protocol's thread, and return its result once all that it has done is safe. An error
        that it raises ends the node, unless it is one of the refusals.

        Raises the refusals, NodeUnavailable (not within timeout_s seconds)."""
        outcome: Future[Outcome] = Future()

        def call() -> None:
            try:
                self._told.append(partial(outcome.set_result, function()))
            except refusals as error:
                self._told.append(partial(outcome.set_exception, error))

        return self._outcome_of(call, outcome, timeout_s, "the node's protocol")

    @contextmanager
    def errand(self, carry_out: Callable[[Errand | None], object]) -> Iterator[int]:
        """Give a number for a claim, or for a question of another node. carry_out: takes the actions that name it, in
        the protocol's thread, and must return at once (what it raises ends the node); None: the node has ended, and
        nothing more comes."""
        number = self.open_errand(carry_out)
        try:
            self.check()  # whoever ends the thread from here on finds it among the errands
            yield number
        finally:
            with self._changed:
                del self._errands[number]

    def open_errand(self, carry_out: Callable[[Errand | None], object]) -> int:
        """Give a number as `errand` does, for a claim or question that lasts as long as this life of the node."""
        number = next(self._errand_numbers)
        with self._changed:
            self._errands[number] = carry_out
        return number

    def carry_out(self, event: ev.Submitted | Callable[[], ev.Submitted], timeout_s: float) -> Sn:
        """Ask for a record in the majority log; return its SN once reads here see what it has done.

        event: or what makes it, in the protocol's thread: so numbers are given in the order of the records.

        Raises as submit, and the reason why it could not be carried out."""
        applied = self.submit(event, timeout_s)
        try:
            self._store.wait_for(applied.sn, timeout_s)
        except WukongsError as error:
            error.outcome = NOT_KNOWN
            raise
        refused = self._store.refused(applied.index)
        if refused is not None:
            raise refused
        return applied.sn

    def submit(self, event: ev.Submitted | Callable[[], ev.Submitted], timeout_s: float) -> Applied:
        """Ask for a record in the majority log; return its place once it is applied here.

        Raises Dropped; OutcomeUnknown (no majority agrees within timeout_s seconds: it may still come)."""
        self.check()
        outcome: Future[Applied] = Future()
        who = f"a majority of the cluster's {len(self.node.control.members)} nodes"
        try:
            return self._outcome_of(
                lambda: self.hand_in(event() if callable(event) else event, outcome), outcome, timeout_s, who
            )
        except Dropped:
            raise
        except WukongsError as error:
            raise OutcomeUnknown(f"{error}. It may still be done") from error

    def wait_until(self, holds: Callable[[Node], bool], timeout_s: float, what: str) -> Node:
        """Wait until something holds of the node. Raises NodeUnavailable (not within timeout_s seconds)."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not holds(self.node):
                self.check()
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    if holds(self.node):
                        break
                    raise NodeUnavailable(
                        f"node {self.me.node}: waited {timeout_s:.3g} s for {what}: {self.who_is_away()}"
                    )
        return self.node

    def wait_for_record(self, index: int, timeout_s: float) -> None:
        """Wait until this node has come so far in the log. Raises NodeUnavailable."""
        self.wait_until(lambda node: node.control.index >= index, timeout_s, f"record {index} of the log")

    def wait_for_what_it_had(self, timeout_s: float) -> None:
        """Wait until it is known of every entry that was in the log when this life began whether it is committed.

        Raises NodeUnavailable."""
        what = "a majority of the nodes, to say what was in the log"
        self.wait_until(lambda _: self.knows_what_it_had, timeout_s, what)

    @property
    def knows_what_it_had(self) -> bool:
        """Whether that is known (wait_for_what_it_had)."""
        log = self.node.log
        return not self.had_to or (log.leader is not None and log.commit >= min(self.had_to, log.last))

    @property
    def is_installed(self) -> bool:
        """Whether this node has what came before it joined."""
        return self.catching_up.is_installed

    def wait_until_installed(self, timeout_s: float) -> None:
        """Wait until a node that joins has what came before. Raises NodeUnavailable (not within timeout_s seconds)."""
        if not self.is_installed:
            self.wait_until(lambda _: self.is_installed, timeout_s, "what it takes over of the other nodes")

    def check(self) -> None:
        """Raise NodeUnavailable once this node has ended, WukongsError once it has failed."""
        if self.failure is not None or self._is_closed:
            raise self._end()

    def _end(self) -> WukongsError:
        if isinstance(self.failure, NodeUnavailable):
            return NodeUnavailable(str(self.failure))
        if self.failure is not None:
            return WukongsError(f"node {self.me.node} has failed: {self.failure}. See its log")
        return NodeUnavailable(f"node {self.me.node} is closing")

    def _outcome_of(
        self, function: Callable[[], object], outcome: Future[Outcome], timeout_s: float, who: str
    ) -> Outcome:
        """Let the protocol's thread call a function, and return the outcome that it decides on, then or later.

        Raises as check; NodeUnavailable (not within timeout_s seconds)."""
        with self._changed:
            self._outcomes.add(outcome)
        self._inbox.put(function)
        try:
            self.check()  # whoever ends the thread from here on finds the outcome among those that are awaited
            return outcome.result(timeout_s)
        except FutureTimeout:
            raise NodeUnavailable(
                f"node {self.me.node}: {who} did not answer within {timeout_s:.3g} s: {self.who_is_away()}"
            ) from None
        finally:
            with self._changed:
                self._outcomes.discard(outcome)

    def who_is_away(self) -> str:
        """Say which nodes are not heard, and what is to be done."""
        silent = self.node.silent_members
        if not silent:
            return "is a node away? `wukongs stats` tells the nodes' roles"
        nodes = f"node {silent[0]}" if len(silent) == 1 else f"nodes {', '.join(map(str, silent))}"
        voters = {voter.node for voter in self.node.log.voters}
        if 2 * len(voters.difference(silent)) > len(voters):
            return f"nothing is heard of {nodes}: start it again, or wait until the others have taken it out"
        return f"nothing is heard of {nodes}, and the rest is no majority: start enough of them again"

    # --- the protocol's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        pulsed_s, wait_s = time.monotonic(), self._pulse_s
        try:
            while not self._is_closed:
                try:
                    happens = self._inbox.get(timeout=max(0.0, pulsed_s + wait_s - time.monotonic()))
                except Empty:
                    happens = None
                if happens is not None:
                    with self._round():
                        happens()
                        self._drain()
                # Whether somebody waits takes a while to find out: it is asked behind a pulse, if nothing else is to be
                # done, and once the next one could be due, not at each of the events between.
                passed_s = time.monotonic() - pulsed_s
                if passed_s < self._pulse_s:
                    wait_s = self._pulse_s
                    continue
                wait_s = self.wait_s()
                if passed_s >= wait_s:
                    self.pulse(passed_s)
                    pulsed_s = time.monotonic()
                    wait_s = self.wait_s() if self._inbox.empty() else self._pulse_s
        except NodeUnavailable as error:
            self._fail(error)
            log.error("%s", error)
        except BaseException as error:
            self._fail(error)  # first of all: without memory, saying more may fail as well
            log.exception("node %d: the protocol has failed", self.me.node)
        finally:
            self._give_up()

    def _drain(self) -> None:
        """Let what waits happen in the same round."""
        for _ in range(min(self._inbox.qsize(), self.disk.round_max - 1)):
            happens = self._inbox.get_nowait()  # nobody else takes from it
            if happens is None:
                return
            happens()

    @contextmanager
    def _round(self) -> Iterator[None]:
        """Let things happen of which others hear at the end, when they are safe."""
        if self._is_in_round:
            yield
            return
        self._is_in_round = True
        try:
            yield
            self.disk.sync()
            told, self._told = self._told, []
            for tell in told:
                tell()
        finally:
            self._is_in_round = False

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Let things happen again that the disk has kept: they are not kept once more, and nobody hears of them."""
        disk, self.disk, send, self._send = self.disk, NoDisk(), self._send, _to_nobody
        try:
            yield
        finally:
            self.disk, self._send = disk, send

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        try:
            self._store.fail(error)
        finally:
            self.on_failure(error)

    def wait_s(self) -> float:
        """Return how long after the last pulse the next one is due."""
        return self._pulse_s * (1 if is_waited_for(self.node) else self.node.cluster.quiet_pulses)

    def pulse(self, passed_s: float) -> None:
        """Let a moment pass. passed_s: since the last one."""
        with self._round():
            self._pulse(passed_s)

    def _pulse(self, passed_s: float) -> None:
        if self._store.failure is not None:
            raise self._store.failure  # nothing is brought forward here any more: let others answer instead
        for part in self._on_pulse:
            part()
        if not self.is_installed and self.node.is_spare:
            self.catching_up.wait_on(self.node.control)
        if self.is_installed:
            self._store.hold(held_anywhere(self.node.progress, self.node.control))
            held = self._store.held()
            come = None if held.delivered is None else Delivered(held.delivered, self.node.control.index)
            reading = ev.HeldReads(held.oldest_sn, held.oldest_firing, come, held.stands)
            if reading != self.node.reading:
                self.take(reading)
            settled = self.disk.settled(self.node.control.index)
            if settled > self.node.settled:
                self.take(ev.Settled(settled))
        elapsed = min(max(1, round(passed_s / self._pulse_s)), self.node.cluster.quiet_pulses)
        self.take(ev.Pulse(self._draws.getrandbits(40), elapsed, self.now_ms()))

    def take_in(self, event: ev.PieceOffered | ev.Marker, notes: list[Packet] | None = None) -> tuple[int, int, bool]:
        """Take in a piece or marker, in the protocol's thread. Return how far the partition has come. An error here
        leaves things half done: it ends the node. notes: records of what was said beside it: if it is taken, they are
        kept in the same round, and not in the list any more."""
        before = self.node.intakes
        self.take(event)
        while notes and self.node.intakes is not before:
            self.disk.add(notes.pop())
        return position(self.node.intakes.get(event.stream), event.partition)

    def hand_in(self, event: ev.Submitted, outcome: Future[Applied]) -> None:
        """Do what `submit` does, in the protocol's thread. outcome: is set when it is decided."""
        key = record_key(event.record)
        self._waiting[key] = [*(one for one in self._waiting.get(key, ()) if one in self._outcomes), outcome]
        self.take(event)

    def follow(self, event: ev.Event) -> None:
        """Take in an event behind the one whose actions are being carried out. In the protocol's thread."""
        self._next.append(event)

    def take(self, event: ev.Event) -> None:
        """Take in an event and those that follow from it, and carry out what they ask."""
        with self._round():
            self._take(event)

    def _take(self, event: ev.Event) -> None:
        self._next.append(event)
        node = self.node
        while self._next:
            event, before = self._next.popleft(), leasing.seeing(node, self._store.reached)
            node, actions = step(before, event)
            if isinstance(event, ev.PieceOffered | ev.Marker) and node.intakes is not before.intakes:
                self.disk.taken(event)
            elif node.heard is not before.heard:
                self._note_heard(before, node)
            if node.control.shards is not before.control.shards:
                self._store.place(node.control)
            for action in actions:
                self._do(action, node)
        if self.node is not node:
            with self._changed:
                self.node = node  # nobody sees a record in it before the store has taken it in
                self._changed.notify_all()
        if self.catching_up.is_installed and node.progress.stable is not self._stable:
            stable, self._stable = self._stable, node.progress.stable
            risen = {key: batch for key, batch in self._stable.items() if stable.get(key) != batch}
            if risen:
                self._store.stable(risen)
        self._tell_decided()

    def _note_heard(self, before: Node, node: Node) -> None:
        for number, life in node.heard.items():
            if life is not before.heard.get(number):
                self.disk.meet(number, life.disk)

    def _tell_decided(self) -> None:
        """Answer those whose records are decided: all of them see it in `node`."""
        decided, self._decided = self._decided, []
        for outcome, found in decided:
            if isinstance(found, Applied):
                self._told.append(partial(outcome.set_result, found))
            else:
                self._told.append(partial(outcome.set_exception, found))

    def _do(self, action: act.Action, node: Node) -> None:
        match action:
            case act.Send(node=other, body=body):
                self._told.append(partial(self._send, other, body))
            case act.TakePiece(piece=piece):
                self._store.take(piece)
            case act.SealBatch(stream=stream, batch=batch):
                if self._store.seal(action):
                    self._next.append(ev.Inserted(stream, batch))
            case act.AskClaim(claim=number) | act.CompareTerms(question=number):
                self._hand_on(number, action)
            case act.SettleClaim(claim=number) | act.AnswerClaim(question=number):
                self._told.append(partial(self._hand_on, number, action))
            case act.Apply(index=index, entry=entry, sn=sn):
                self.disk.sync()  # a single voter commits with the save, and other threads act on applied entries
                self._note_role(entry.record)
                self.disk.commit(index)
                self.catching_up.apply(index, entry.record, sn)
                self._decide(entry.record, Applied(index, sn or node.control.last_sn))
            case act.Drop(record=record):
                self._decide(record, Dropped(f"{type(record).__name__}: superseded by another record of the log"))
            case act.Expose():
                self.disk.sync()  # readers hear of it
                self.catching_up.expose(action)
            case act.SaveVote() | act.SaveEntries() | act.SaveControl():
                self.disk.save(action)
                if isinstance(action, act.SaveControl) and action.is_jump:
                    self.catching_up.jump(action.control)
            case act.CollectState():
                self._collect(action)
            case act.InstallState():
                self._install(action)

    def _collect_nothing(self, asked: act.CollectState) -> None:
        """Answer at once: a joining node asks for the data by packets, once all that take part know of it."""
        self._next.append(ev.StateCollected(asked.asker, structs.replace(asked.state, payload="")))

    def _hand_on(self, number: int, errand: Errand) -> None:
        carry_out = self._errands.get(number)
        if carry_out is not None:  # else nobody waits for it any more
            carry_out(errand)

    def _decide(self, record: Record, found: Applied | Dropped) -> None:
        self._decided += [(outcome, found) for outcome in self._waiting.pop(record_key(record), [])]

    def _note_role(self, record: Record) -> None:
        """Count nodes that are taken out. End this one, if it has no disk, when it was taken out or has begun anew
        elsewhere: only a new life takes over the data that it has missed."""
        if not isinstance(record, Membership):
            return
        is_taken_out = record.role is Role.OUT and not record.tells_of_a_loss
        if is_taken_out:
            self.taken_out[record.node] += 1
        if self.disk.is_lasting or record.node != self.me.node:
            return
        if record.disk > self.me.disk:
            raise NodeUnavailable(f"node {self.me.node} was started anew elsewhere: this one ends")
        if is_taken_out and record.disk == self.me.disk:
            raise NodeUnavailable(
                f"node {self.me.node} was taken out of the cluster, since the others had heard nothing of it for too "
                "long; it has missed what came since, and ends. The others go on without it: ask one of them, or start "
                "it again"
            )

    def go_on(self, sn: Sn, events: Iterable[ev.Event]) -> None:
        """Go on from the data that the store has taken over, as of an SN. In the protocol's thread. events: to be taken
        in."""
        self.catching_up.go_on(sn)
        self._stable = {}  # The streams that were taken over have heard nothing of it.
        for event in events:
            self.take(event)
        self.catching_up.show()
        with self._changed:
            self._changed.notify_all()

    def _give_up(self) -> None:
        """Tell all who wait that nothing will come."""
        self._is_closed = True
        with self._changed:
            for outcome in self._outcomes:
                if not outcome.done():
                    outcome.set_exception(self._end())
            for carry_out in self._errands.values():
                carry_out(None)
            self._changed.notify_all()

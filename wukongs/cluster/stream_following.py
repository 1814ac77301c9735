"""StreamFollowing: what follows by rules from the tuples that streams store, at a cluster's leader (decision 0096).

While there are rules, ticks wait for the records that have the tuples of their stream batches (protocol/followed.py).
The leader asks the nodes for these tuples once all have them, derives what follows, as of any change (following.py),
and proposes the record. One tick is followed after the other; those without tuples that store are passed over together.

Any node could do it: what it says follows from what all nodes have, and the log lets one record of two count. So
nothing is handed over when another node leads: it goes on from what the log has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.cluster.changes import Changes
from wukongs.cluster.following import Following
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.node_store import NodeStore, ToStore
from wukongs.cluster.turns import Turns
from wukongs.errors import DataError, WukongsError
from wukongs.protocol.control import Control
from wukongs.protocol.followed import Due, to_follow
from wukongs.protocol.log import LogRole
from wukongs.protocol.records import LIVE, Role
from wukongs.protocol.snapshots import tick_due
from wukongs.protocol.state import Node
from wukongs.store.quads import NO_QUADS, Quads, joined
from wukongs.wire.assignment import SHARD_COUNT, Assignment
from wukongs.wire.packets import Packet, Peers

log = logging.getLogger("wukongs")
TO_STORE = "to_store"
COLUMNS = ("graphs", "subjects", "predicates", "objects")
ROWS_MAX = 1 << 17
ASK_S = 5.0
IDLE_S = 1.0
RETRY_S = 0.02
WARN_S = 10.0
"""How often is said that it does not go on."""
FOREVER = 1 << 62


class StreamFollowing:
    """That of one node: follows while it leads, and answers who does. assignment: which node answers for which shard
    now; it may raise NodeUnavailable."""

    def __init__(
        self,
        host: Host,
        store: NodeStore,
        following: Following,
        changes: Changes,
        turns: Turns,
        peers: Peers,
        assignment: Callable[[], Assignment],
    ) -> None:
        self._host, self._store = host, store
        self._following, self._changes, self._turns = following, changes, turns
        self._peers, self._assignment = peers, assignment
        self._known: dict[bool, _Known] = {}
        """The answers of nodes about late streams, and about others."""
        self._was_late = False
        """Whether late streams were followed last: then others come first."""
        self._closed, self._has_rules = threading.Event(), threading.Event()
        self._warned_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="wukongs-following", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Call it behind the end of the host, the network and the store, for each of which it may wait."""
        self._closed.set()
        self._has_rules.set()
        if self._thread.is_alive():
            self._thread.join()

    def pulse(self) -> None:
        """Begin if this node leads and there are rules. In the protocol's thread."""
        if self._leads(self._host.node):
            self._has_rules.set()

    def answer(self, packet: Packet) -> Packet:
        """Handler of TO_STORE."""
        parts, shards = packet.fields.get("parts"), packet.arrays.get("shards")
        is_list = isinstance(parts, list) and all(_is_part(part) for part in parts)
        if not is_list or shards is None or shards.dtype != np.bool_ or shards.shape != (SHARD_COUNT,):
            raise DataError(f"{TO_STORE}: expected parts of streams and shards, found {dict(packet.fields)!r}")
        asked: list[tuple[str, int, int]] = [tuple(part) for part in parts]  # type: ignore[union-attr]
        return _packet(self._store.to_store(asked, shards, ROWS_MAX))  # type: ignore[arg-type]

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _leads(self, node: Node) -> bool:
        return bool(node.control.rules) and node.log.standing is LogRole.LEADER and node.role is Role.IN

    def _has_work(self, node: Node) -> bool:
        return not self._leads(node) or bool(to_follow(node.control, node.progress.stable))

    def _run(self) -> None:
        while not self._closed.is_set():
            self._has_rules.wait()
            self._has_rules.clear()
            while not self._closed.is_set() and self._leads(self._host.node):
                if not self._has_work(self._host.node):
                    self._wait()
                    continue
                try:
                    self._step()
                except WukongsError as error:
                    if self._is_over():
                        return
                    if not isinstance(error, Dropped):
                        self._warn(error)
                    self._forget()
                    self._closed.wait(RETRY_S)
                except Exception:  # the nodes go on, and it is known again once the rules are others
                    if self._is_over():
                        return
                    log.exception("node %d: what follows from streams cannot be derived", self._peers.me)
                    self._forget()
                    self._closed.wait(WARN_S)
            self._forget()

    def _wait(self) -> None:
        try:
            self._host.wait_until(self._has_work, IDLE_S, "tuples of streams")
        except WukongsError:
            if self._is_over():
                self._closed.set()

    def _is_over(self) -> bool:
        """Tell whether this node has ended."""
        try:
            self._host.check()
        except WukongsError:
            return True
        return False

    def _warn(self, error: WukongsError) -> None:
        now_s = time.monotonic()
        if now_s > self._warned_s + WARN_S:
            self._warned_s = now_s
            log.warning("streams wait for what follows by rules: %s", error)

    def _forget(self) -> None:
        self._known = {}

    def _step(self) -> None:
        """Follow what comes next. Raises Dropped (another change came first), and as Following.store."""
        node = self._host.node
        control = node.control
        due = to_follow(control, node.progress.stable, late_first=not self._was_late)
        if not due:
            return
        is_late = due[0].is_late
        to = self._known_to(control, node, due)
        if to is None:
            self._known[is_late] = self._ask(due)
            to = self._known_to(control, node, due)
            assert to is not None, due
        known = self._known[is_late]
        gone, come, limit = _next(known, due, to)
        follows = {}
        for one in due:
            batch = min(one.to, known.ranges[one.stream.key][1], one.stream.batch_before(limit))
            if batch > one.after:
                follows[one.stream.key] = batch
        with self._store.core.update_turn, self._turns.step() as is_free:
            if not is_free:
                pass
            elif len(gone[0]) or len(come[0]):
                self._following.store(gone, come, follows)
            else:
                self._changes.say(follows=follows)
        if not is_free:
            self._closed.wait(RETRY_S)
            return
        known.found = {tick: quads for tick, quads in known.found.items() if tick > limit}
        self._was_late = is_late

    def _known_to(self, control: Control, node: Node, due: Sequence[Due]) -> int | None:
        """Return the tick up to which it is known what is to be stored, None if it has to be asked for first."""
        known = self._known.get(due[0].is_late)
        if known is None:
            return None
        to = min(known.complete_to, tick_due(control, LIVE, node.progress.stable) if not due[0].is_late else FOREVER)
        for one in due:
            after, last = known.ranges.get(one.stream.key, (0, 0))
            if last <= one.after or after > one.after:
                return None
            if last < one.to:
                to = min(to, one.stream.cover_of(last))
        return None if to < _first_end(due) else to

    def _ask(self, due: Sequence[Due]) -> _Known:
        """Ask the nodes for what is to be stored. Raises NodeUnavailable."""
        assignment = self._assignment()
        parts = [(one.stream.key, one.after + 1, one.to) for one in due]
        fields = {"parts": [list(part) for part in parts]}
        asked = [(node, Packet(TO_STORE, fields, {"shards": assignment.shards(node)})) for node in assignment.others]
        answers = [_read(answer) for answer in self._peers.ask(asked, ASK_S)] if asked else []
        answers.append(self._store.to_store(parts, assignment.shards(assignment.me), ROWS_MAX))
        changes = defaultdict[int, list[tuple[Quads, Quads]]](list)
        for answer in answers:
            for tick, change in answer.changes.items():
                changes[tick].append(change)
        complete_to = min((one.to for one in answers if one.to is not None), default=FOREVER)
        return _Known(
            {one.stream.key: (one.after, one.to) for one in due},
            {
                tick: (joined([gone for gone, _ in found]), joined([come for _, come in found]))
                for tick, found in sorted(changes.items())
                if tick <= complete_to
            },
            complete_to,
        )


@dataclass(slots=True)
class _Known:
    """The answers of nodes. ranges: stream batches after < k <= to that were asked for, by the keys of their streams;
    found: quads that go and that come with them, by the ticks at which they end; complete_to: the tick up to which that
    is all."""

    ranges: dict[str, tuple[int, int]]
    found: dict[int, tuple[Quads, Quads]]
    complete_to: int


def _next(known: _Known, due: Sequence[Due], to: int) -> tuple[Quads, Quads, int]:
    """Return the deletes and inserts of the next record, and the tick up to which there are no others."""
    ticks = [tick for tick in known.found if tick <= to]
    if not ticks:
        return NO_QUADS, NO_QUADS, to
    if not due[0].is_late and _first_end(due) < ticks[0]:
        return NO_QUADS, NO_QUADS, ticks[0] - 1
    count = 1
    if due[0].is_late:  # all at one SN, but for retractions: of a triple the last sign counts
        signed = [at for at, tick in enumerate(ticks) if len(known.found[tick][0][0])]
        count = max(1, min([*signed, len(ticks)]))
    parts = [known.found[tick] for tick in ticks[:count]]
    limit = ticks[count] - 1 if count < len(ticks) else to
    return joined([gone for gone, _ in parts]), joined([come for _, come in parts]), limit


def _first_end(due: Sequence[Due]) -> int:
    return min(one.stream.end_of(one.after + 1) for one in due)


def _is_part(part: object) -> bool:
    return isinstance(part, list | tuple) and [type(one) for one in part] == [str, int, int]


def _packet(found: ToStore) -> Packet:
    parts = [
        (tick, goes, quads) for tick, both in found.changes.items() for goes, quads in zip((1, 0), both, strict=True)
    ]
    sizes = [len(quads[0]) for _, _, quads in parts]
    columns = dict(zip(COLUMNS, joined([quads for _, _, quads in parts]), strict=True))
    ticks, goes = (np.repeat(np.array([part[at] for part in parts], np.int64), sizes) for at in (0, 1))
    return Packet(TO_STORE, {"to": found.to}, {"ticks": ticks, "goes": goes, **columns})


def _read(packet: Packet) -> ToStore:
    """Return what another node has answered. Raises DataError."""
    arrays, to = packet.arrays, packet.fields.get("to")
    names = ("ticks", "goes", *COLUMNS)
    is_sound = (to is None or type(to) is int) and all(
        name in arrays and arrays[name].dtype == np.int64 and arrays[name].shape == arrays["ticks"].shape
        for name in names
    )
    if not is_sound:
        raise DataError(f"{TO_STORE}: expected {', '.join(names)} as int64[n], found {sorted(arrays)}")
    changes = dict[int, tuple[Quads, Quads]]()
    columns: Mapping[str, np.ndarray] = arrays
    for tick in np.unique(columns["ticks"]).tolist():
        gone, come = (
            tuple(columns[name][(columns["ticks"] == tick) & (columns["goes"] == goes)] for name in COLUMNS)
            for goes in (1, 0)
        )
        changes[tick] = gone, come
    return ToStore(changes, to)

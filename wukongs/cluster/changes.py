"""Changes: loads and updates of a cluster. Their terms are claimed, their rows are staged at the nodes that are to hold
them, and one record of the majority log makes them count at one SN everywhere, or nowhere.

A change that a client has numbered (wukongs/outcomes.py) carries its client and number in that record. So it counts
once, whichever nodes the client asks for it.

An update has read a snapshot: if another update has come into the log since, its record is void, and the update is
evaluated again (protocol/records.py, Change). A load has read nothing; its record waits while members come and go.
"""

from __future__ import annotations

import itertools
import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from wukongs.cluster.claims import Claims
from wukongs.cluster.feeding import index_of
from wukongs.cluster.host import Applied, Dropped, Host
from wukongs.cluster.members import VIEW, ask_members, check_joined, is_silent, members_of
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.outcomes import Asked, asked, asking
from wukongs.protocol import events as ev
from wukongs.protocol.control import Control, Mark
from wukongs.protocol.records import Change, Sn
from wukongs.query.limits import current
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded, TermCutter, TermTable
from wukongs.wire.packet_columns import tuples_in, tuples_packet
from wukongs.wire.packets import Packet, Peers
from wukongs.wire.sharding import split

log = logging.getLogger("wukongs")
STAGE = "stage"
TIMEOUT_S = 60.0
"""How long the other nodes may take for one step of a change, unless its deadline comes first."""
IS_WHOLE, LATE = "is_whole", "late"
LIFE = "life"
"""The field of an answer to STAGE that says which life of the node has given it: its disk, its boot."""
LOG_S = 10.0
"""How far behind a node's log may be."""
ABANDON_S = 2.0
"""How long each other node may take to forget a change."""
BUILD_S = 30.0
"""How long the last chunk of a change waits until all is put in order; from then on its record waits."""
_NO_ROWS: Int64Array = np.empty(0, np.int64)
Read: TypeAlias = tuple[int, list[str | None]]
NOTHING = Encoded(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS, TermTable.empty())


class Changes:
    """The loads and updates that clients ask of one node."""

    def __init__(self, host: Host, store: NodeStore, claims: Claims, peers: Peers) -> None:
        self._host, self._store, self._claims, self._peers = host, store, claims, peers
        self._client = f"node {host.me.node}.{host.me.disk}.{host.me.boot}"
        self._numbers = itertools.count(1)
        self._under_way: set[int] = set()
        """The numbers of changes that no client has numbered."""

    def add(self, chunks: Iterable[Encoded], graph: str | None, gone: Iterable[Encoded] = ()) -> Sn:
        """Add the tuples of a load, those without a graph of their own to `graph`; return their SN once reads here see
        it. gone: quads that go first, if they are there by then. Raises NodeUnavailable, BudgetExceeded, StreamError
        (it is not visible in time), and what `chunks` raises; then nothing was changed, unless it says otherwise."""
        with self._staged() as staged:
            for chunk in gone:
                staged.send(chunk, goes=True)
            for chunk in chunks:
                staged.send(chunk, into=() if gone else (graph,))
        return self._submit(staged, {"graph": graph, "cleared": [], "operations": 0}, None)

    def add_late(self, late: Encoded, graph: str | None, stream: str) -> Sn:
        """Let late tuples of a stream, in the order of their arrival, join the stored graph by their event times, those
        without a graph of their own in `graph`. Return, and raise, as add; StreamError also if a node has no room for
        their event times."""
        with self._staged() as staged:
            staged.send(late, late_of=stream)
        return self._submit(staged, {"graph": graph, "cleared": [], "operations": 0, LATE: stream}, None)

    def change(
        self, gone: Encoded, come: Encoded, cleared: Sequence[str | None], after: int, read_sn: int, operations: int
    ) -> Sn:
        """Empty graphs, delete and insert quads, in this order, if no other update was applied since the one at index
        `after` of the log; return their SN once reads here see it. Only quads of the snapshot of read_sn go; this node
        has to hold that snapshot meanwhile. operations: how many the update has.

        Raises Dropped (there was another update), CompactedError (a node has merged beyond read_sn: evaluate it anew),
        and the errors of add."""
        with self._staged((read_sn, list(cleared)) if len(gone) or cleared else None) as staged:
            staged.send(gone, goes=True, into=(None,))
            staged.send(come, into=(None,))
        return self._submit(staged, {"graph": None, "cleared": list(cleared), "operations": operations}, after)

    def whole(
        self,
        gone: Iterable[Encoded],
        come: Iterable[Encoded],
        after: int | None,
        read: Sn | None,
        operations: int,
        rules: str | None = None,
        follows: Mapping[str, int] = MappingProxyType({}),
    ) -> Sn:
        """Let a change count that says all that changes with what follows by rules, if nothing was changed behind the
        SN that was read (None: there are no rules). rules, follows: as the record has them. Raises as change."""
        with self._staged() as staged:
            for chunk in gone:
                staged.send(chunk, goes=True, is_whole=True)
            for chunk in come:
                staged.send(chunk, is_whole=True)
        payload = {"graph": None, "cleared": list[str](), "operations": operations, IS_WHOLE: True}
        return self._submit(staged, payload, after, read, rules, follows)

    def say(self, rules: str | None = None, follows: Mapping[str, int] = MappingProxyType({})) -> Sn:
        """Let a change count that stores nothing (protocol/followed.py): there are rules from then on, or none, or
        streams have brought nothing. Raises as change."""
        with asking(None):
            return self._agreed("", None, None, rules, follows)

    def known(self) -> Sn | None:
        """Return the SN of the client's change that this thread works for, if it was applied before. Raises StreamError
        (the client has given it up)."""
        by = asked()
        if by is None:
            return None
        control = self._host.node.control
        mark = control.outcome_of(by)
        if mark is not None:
            return self._shown(mark)
        if control.outcomes.is_over(by):
            raise StreamError(f"change {by.number} of this client was given up: nothing was done")
        return None

    def answer(self, packet: Packet) -> Packet:
        """Handler of STAGE: keep a chunk of a change, or forget what there is of one."""
        if not packet.fields.get("is_abandoned"):
            self._host.wait_for_record(index_of(packet), LOG_S)
            check_joined(self._host.node, index_of(packet))
            self._check_entries(packet)
        stage(self._store, packet, self._hold, builds=self._host.is_installed)
        is_last = bool(packet.fields.get("is_last"))
        self._host.disk.add(packet, is_awaited=is_last)
        if is_last:  # what came before it is safe then as well
            self._host.disk.sync()
            self._store.wait_for_built(packet.fields["change"], BUILD_S)
        me = self._host.me
        return Packet(STAGE, {VIEW: self._host.node.control.view, LIFE: [me.disk, me.boot]})

    def _check_entries(self, packet: Packet) -> None:
        """Raise StreamError if there is no room here for the event times of late tuples."""
        stream, subjects = packet.fields.get(LATE), packet.arrays.get("subjects")
        if isinstance(stream, str) and subjects is not None and self._store.has_stream(stream):
            self._store.stream(stream).check_entries(len(subjects))

    def pulse(self) -> None:
        """Let what is staged here grow older. In the protocol's thread."""
        node = self._host.node
        self._store.age_staged(any(is_silent(node, other) for other in members_of(self._host)))

    def _hold(self, change: str, read_sn: int, cleared: Sequence[str | None]) -> None:
        """Hold what an update has read until it is applied. Raises CompactedError, NodeUnavailable."""
        self._host.wait_until_installed(TIMEOUT_S)
        try:
            self._store.hold_for(change, read_sn, cleared, TIMEOUT_S)
        except StreamError as error:  # this node is behind
            raise NodeUnavailable(f"node {self._host.me.node}: {error}") from error

    @contextmanager
    def _staged(self, read: Read | None = None) -> Iterator[Staged]:
        """Give a change to be filled; it is whole on all nodes behind that, or on none."""
        staged = Staged(self._host, self._store, self._peers, self._claims, read)
        try:
            yield staged
            staged.finish()
        except BaseException:
            staged.abandon()
            raise

    def _submit(
        self,
        staged: Staged,
        payload: Mapping[str, Any],
        after: int | None,
        read: Sn | None = None,
        rules: str | None = None,
        follows: Mapping[str, int] = MappingProxyType({}),
    ) -> Sn:
        try:
            return self._agreed(json.dumps({"change": staged.name, **payload}), after, read, rules, follows)
        except Dropped:
            staged.abandon()
            if (known := self.known()) is not None:
                return known
            raise

    def _agreed(
        self, payload: str, after: int | None, read: Sn | None, rules: str | None, follows: Mapping[str, int]
    ) -> Sn:
        by, own = asked(), list[int]()

        def numbered() -> ev.Submitted:
            if by is None:
                own.append(next(self._numbers))
                self._under_way.add(own[0])
            said = by or Asked(self._client, own[0], tuple(sorted(self._under_way)))
            view = self._host.node.control.view
            told = tuple(sorted(follows.items()))
            return ev.Submitted(Change(said.client, said.number, payload, after, view, said.needed, read, rules, told))

        try:
            # After an error the record may come into the log later: then all nodes have to have what it is about.
            return self._shown(self._host.submit(numbered, current().within(TIMEOUT_S)))
        finally:
            self._under_way.difference_update(own)

    def _shown(self, applied: Applied | Mark) -> Sn:
        """Wait until reads here see a change of the log; return its SN. It counts, also if this node fails meanwhile.
        Raises the reason why it could not be carried out."""
        try:
            self._store.wait_for(applied.sn, current().within(TIMEOUT_S))
        except WukongsError as error:
            log.warning("record %d of the log, a change, is not seen here yet: %s", applied.index, error)
        refused = self._store.refused(applied.index)
        if refused is not None:
            raise refused
        return applied.sn


def stage(
    store: NodeStore,
    packet: Packet,
    hold: Callable[[str, int, Sequence[str | None]], object],
    builds: bool = True,
    is_trusted: bool = False,
) -> None:
    """Keep the chunk of a change that a packet of STAGE has, or forget what there is of one. hold: is told of an update
    that reads a snapshot: its name, the SN, and the graphs that it clears; builds: whether it may be built ahead;
    is_trusted: the packet was checked before it was written to this node's log.

    Raises DataError, and as NodeStore.stage."""
    fields = packet.fields
    change, number, cleared = fields.get("change"), fields.get("number"), fields.get("cleared", [])
    if not isinstance(change, str) or type(number) is not int:
        raise DataError(f"{STAGE}: expected change and number, found {dict(fields)!r}")
    if not isinstance(cleared, list) or not all(one is None or isinstance(one, str) for one in cleared):
        raise DataError(f"{STAGE}: expected the graphs that are cleared, found {cleared!r}")
    into = fields.get("into", [])
    if not isinstance(into, list) or len(into) > 1 or not all(one is None or isinstance(one, str) for one in into):
        raise DataError(f"{STAGE}: expected the graph of a change, found {into!r}")
    if fields.get("is_abandoned"):
        store.unstage(change)
        return
    goes, is_last, read_sn = bool(fields.get("goes")), bool(fields.get("is_last")), fields.get("read_sn")
    store.stage(change, number, _tuples(packet, is_trusted), goes=goes, is_last=is_last, into=into if builds else ())
    if type(read_sn) is int:
        hold(change, read_sn, cleared)


class Staged:
    """One change on its way to the nodes. read: the SN of the snapshot that an update has read, which the nodes are to
    hold until it is applied, and the graphs that it clears; None: there is none that it depends on."""

    def __init__(self, host: Host, store: NodeStore, peers: Peers, claims: Claims, read: Read | None) -> None:
        self.name = uuid.uuid4().hex
        self._read = read
        self._host, self._store, self._peers, self._claims = host, store, peers, claims
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._lives = dict[int, object]()
        """Which life of each node has answered last: one that goes on from its folder may lack what the one before had
        not seen to the disk."""

    def send(
        self,
        encoded: Encoded,
        goes: bool = False,
        into: Sequence[str | None] = (),
        is_whole: bool = False,
        late_of: str | None = None,
    ) -> None:
        """Claim the terms of some tuples, and stage them. into: its graph, if it may be built ahead; is_whole: they are
        of a change with what follows by rules; late_of: they are late tuples of this stream, and go by event time."""
        if not len(encoded):
            return
        self._claims.settle([self._store.new_terms(encoded)], TIMEOUT_S)
        cutter = TermCutter(encoded)

        def shares(control: Control) -> dict[int, Encoded]:
            divided = split(encoded, self._store.map_of(control.shards, len(control.members)))
            return {node: cutter.cut(rows) for node, rows in divided if len(rows)}

        fields: dict[str, Any] = {"goes": goes, "into": list(into)} if into else {"goes": goes}
        fields |= {IS_WHOLE: True} if is_whole else {}
        self._send(shares, fields | ({} if late_of is None else {LATE: late_of}))

    def finish(self) -> None:
        """Send each member the end of the change: all its chunks were sent."""
        held = {} if self._read is None else dict(zip(("read_sn", "cleared"), self._read, strict=True))
        self._send(lambda control: dict.fromkeys(control.members, NOTHING), {"is_last": True, **held})

    def abandon(self) -> None:
        """Let the nodes forget it, as far as they can be reached: the others do so after a while."""
        told = Packet(STAGE, {"change": self.name, "number": 0, "is_abandoned": True})
        self._store.unstage(self.name)
        self._host.disk.add(told)
        others = members_of(self._host) - {self._host.me.node, *self._host.node.silent_members}
        for node in sorted(others):  # one by one: none waits for one that is gone
            try:
                self._peers.ask([(node, told)], ABANDON_S)
            except WukongsError as error:
                log.debug("change %s: %s", self.name, error)

    def _send(self, shares: Callable[[Control], Mapping[int, Encoded]], fields: Mapping[str, Any]) -> None:
        """Send each node its share of a chunk. A node that was to get one gets it, though it may be empty by now."""
        told = set[int]()

        def asked(control: Control) -> dict[int, Packet]:
            found = shares(control)
            told.update(found)
            packets = {}
            for node in sorted(told):
                share = found.get(node, NOTHING)
                numbered = {"change": self.name, "number": self._counts[node], "index": control.index, **fields}
                packets[node] = tuples_packet(STAGE, [share] if len(share) else [], **numbered)
            return packets

        answers = ask_members(self._host, self._peers, asked, current().within(TIMEOUT_S))
        for node in told:
            self._counts[node] += 1
        for node, answer in answers.items():
            life = answer.fields.get(LIFE)
            before, self._lives[node] = self._lives.get(node, life), life
            if _is_later(life, before):
                raise NodeUnavailable(
                    f"node {node} has begun anew since a part of this change was sent to it, which it may have lost: "
                    "nothing was done. Do it again"
                )


def _is_later(life: object, before: object) -> bool:
    """Whether a node has begun anew with the same disk; nodes of an earlier release say neither."""
    return isinstance(life, list) and isinstance(before, list) and life[:1] == before[:1] and life != before


def _tuples(packet: Packet, is_trusted: bool) -> Encoded:
    groups = tuples_in(packet, writes_views=packet.fields.get(IS_WHOLE) is True, is_trusted=is_trusted)
    if len(groups) > 1:
        raise DataError(f"{STAGE}: expected the tuples of one chunk, found {len(groups)} groups of tuples")
    return groups[0] if groups else NOTHING

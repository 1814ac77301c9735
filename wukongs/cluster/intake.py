"""Intake: takes the messages of writers. Each piece's new terms are claimed. Then the protocol decides whether the
piece is taken, repeated or refused. A return means that it is safe here, as far as memory is.

It is the IngestHandler of the node's socket for pipelines, and answers other nodes that write for their clients.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from wukongs.cluster.claims import TIMEOUT_S as CLAIM_S
from wukongs.cluster.claims import Claims
from wukongs.cluster.feeding import FEED, Fed, feds_in, index_of, view_of
from wukongs.cluster.host import OFFER_S, Dropped, Host
from wukongs.cluster.members import VIEW, check_joined
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.pushes import Push, Pushes, PushesHere
from wukongs.errors import DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.live.pieces import Close, Finish, Open, Piece, check_batch_number
from wukongs.live.stream_state import PUSH_PARTITION
from wukongs.outcomes import Asked
from wukongs.protocol import events as ev
from wukongs.protocol.records import OpenPartition, Role
from wukongs.protocol.sealing import Partition
from wukongs.store.encoded import Encoded
from wukongs.wire.ingesting import AskAnew
from wukongs.wire.messages import NO_CLOSE, LastClose, Opened, Place, newest_close
from wukongs.wire.packet_columns import objects_of
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import error_told, refusal

Taken = TypeVar("Taken")
CLOSE, FED, PUSHED = "close", "fed", "pushed"
"""Records of a node's log: a Close, and what is noted of a Fed."""
LOG_S = 10.0
"""How far behind a node's log may be."""
DECLARED_S = 2.0
"""How long a writer may be ahead of a node's log: a stream that is still unknown then is refused."""
INSTALLED_S = 2.0
"""How long a node that joins lets a writer wait; it asks again."""
REFUSALS = NodeUnavailable, StreamError
"""The errors of messages that are not taken. Others leave things half done, and end the node."""
RECORD_S = 30.0
"""How long a majority of the nodes may take to agree that a partition joins."""


class PartitionAt(NamedTuple):
    """How far a partition is at a node: rows, the last stream batch for which it takes nothing more (the protocol's
    number: it was closed, or the partition has come late, or later rows are here and it does not go back), whether it
    is at its end, and for how many more tuples of the stream there is room."""

    offset: int
    closed: int
    is_ended: bool
    room: int


def standings_in(answer: Packet, count: int) -> list[PartitionAt | WukongsError]:
    """Return what a node has answered to FEED, for each of so many messages: how far its partition is now, or why the
    message is refused. Raises DataError."""
    found = objects_of(answer, "standings")
    if len(found) != count:
        raise DataError(f"{FEED}: expected {count} standings, found {len(found)}")
    return [_standing_in(one) for one in found]


def pushes_in(answer: Packet) -> Pushes:
    """Return what a node has answered to an opening about the pushes to its stream. Raises DataError."""
    found = answer.fields.get("pushes")
    if not isinstance(found, list) or len(found) != 1:
        raise DataError(f"{FEED}: expected the pushes to one stream, found {found!r:.200}")
    return Pushes.of_json(found[0])


EPOCH_MAX = 1 << 53
"""Epochs are about milliseconds since 1970, and JSON has no larger integers: one that is told to be larger is none."""


class LockedOut(StreamError):
    """A newer writer has the partition. newest: its epoch."""

    def __init__(self, message: str, newest: int) -> None:
        super().__init__(message)
        self.newest = newest


def _refused(error: WukongsError) -> Mapping[str, Any]:
    newest = {"newest": error.newest} if isinstance(error, LockedOut) else {}
    return {**refusal(error).fields, **newest}


def _standing_in(told: Mapping[str, Any]) -> PartitionAt | WukongsError:
    if "error" in told:
        error, newest = error_told(told), told.get("newest")
        if type(newest) is int and 0 <= newest < EPOCH_MAX and isinstance(error, StreamError):
            return LockedOut(str(error), newest)
        return error
    found = [told.get(name) for name in PartitionAt._fields]
    if [type(one) for one in found] != [int, int, bool, int]:
        raise DataError(f"{FEED}: expected {', '.join(PartitionAt._fields)}, found {told!r:.200}")
    return PartitionAt(*found)  # type: ignore[arg-type]


class OldView(NodeUnavailable):
    """Terms were agreed on under another view of the members than that of now: they are claimed anew."""


class Intake:
    """wukongs.wire.transport.IngestHandler of one node of a cluster. May be called from any thread."""

    def __init__(self, host: Host, store: NodeStore, claims: Claims) -> None:
        self._host, self._store, self._claims = host, store, claims
        self._epochs: dict[tuple[str, str], int] = {}
        """(key of a stream that is not gone, partition) -> its newest writer."""
        self._closes: dict[tuple[str, str], LastClose] = {}
        """The same -> its newest Close. Not of what is pushed."""
        self._lock = threading.Lock()
        self.pushes = PushesHere()

    def open_partition(self, message: Open) -> Opened:
        """Let a partition join its stream, if it has not before: when this returns, this node waits for it. Its writer
        sends once all nodes have answered."""
        self._check_takes_part()
        return self._open(message)

    def _open(self, message: Open) -> Opened:
        with suppress(NodeUnavailable):  # where it was declared it may be known sooner
            self._host.wait_until(lambda _: self._store.has_stream(message.stream), DECLARED_S, "a declaration")
        self._host.check()
        facts = self._store.stream(message.stream)
        if not self._is_open(message.stream, message.partition):
            facts.check_is_open(is_by_its_query=facts.is_made and message.partition == PUSH_PARTITION)
            self._join(message.stream, message.partition)
        self._fence(message.stream, message.partition, message.epoch)
        offset = self._partition(message.stream, message.partition).offset
        sealed = self._sealed(message.stream)
        return Opened(
            facts.batch_ms,
            facts.into_iri,
            facts.timing,
            offset,
            self._store.core.settings.hash_bits,
            self._store.real_batch(self._key(message.stream), sealed) * facts.batch_ms if sealed else None,
            self._place(),
            self._last_close(message.stream, message.partition),
        )

    def _last_close(self, stream: str, partition: str) -> LastClose | None:
        """Return the newest Close of a partition. None: it was closed in a folder, or by nodes, of an earlier release,
        which do not note it."""
        with self._lock:
            known = self._closes.get((self._key(stream), partition))
        return NO_CLOSE if known is None and not self._partition(stream, partition).closed else known

    def _place(self) -> Place:
        """Return how pieces are divided, and among whom, at this node's place in the log."""
        control, me = self._host.node.control, self._host.me.node
        members = control.with_role(Role.IN, Role.HOLDING, Role.JOINING)
        place = self._store.map_of(control.shards, len(control.members)).place(me, control.index, members)
        return replace(place, added=tuple(one.clients for _, one in sorted(control.added.items())))

    def _check_takes_part(self, index: int | None = None) -> None:
        """Let what a pipeline sends come again, and perhaps elsewhere, if this node is on its way into the cluster.
        index: of what was divided: the same if that was before this node has joined. Raises AskAnew."""
        if self._host.node.is_spare:  # it may be one for days: nobody waits for it
            raise AskAnew(f"node {self._host.me.node} is a spare one")
        try:
            self._host.wait_for_record(index or 0, LOG_S)
            self._host.wait_until_installed(INSTALLED_S)
            if index is not None:
                check_joined(self._host.node, index)
        except NodeUnavailable as error:
            self._host.check()
            raise AskAnew(str(error)) from None
        if self._host.node.role is Role.OUT:
            raise AskAnew(f"node {self._host.me.node} takes no part in the cluster")

    def _join(self, stream: str, partition: str) -> None:
        try:
            self._host.submit(ev.Submitted(OpenPartition(self._key(stream), partition)), RECORD_S)
        except Dropped:  # the other nodes are asked for the same
            if not self._is_open(stream, partition):
                raise StreamError(
                    f"stream {stream}, partition {partition!r}: it came too late to join, the stream has ended or was "
                    "dropped. Declare a new one to send more"
                ) from None

    def agree(self, groups: Sequence[Encoded], timeout_s: float) -> int:
        """Have the new terms of groups of tuples agreed on; return the view under which they are."""
        return self._claims.settle([self._store.new_terms(encoded) for encoded in groups], timeout_s)

    def inject(self, piece: Piece) -> int:
        if piece.index is not None:
            self._check_takes_part(piece.index)
        self._check_writer(piece)  # nobody is asked to agree to terms that are refused
        self._in_turn(lambda view: self._take_piece(piece, view), [piece.encoded])
        return self._host.node.control.view

    def close_batches(self, message: Close) -> int:
        self._check_takes_part()
        self._run(lambda: self._take_close(message, []))
        return self._host.node.control.view

    def finish_partition(self, message: Finish) -> int:
        self._check_takes_part()
        self._run(lambda: self._take_end(message))
        return self._host.node.control.view

    def answer(self, packet: Packet) -> Packet:
        """Handler of FEED: messages of another node's writers; answered when all of them are safe here, or refused. A
        stream does not hang on what comes of the others. NodeUnavailable is told for all: they are to come again.

        All of them are taken in by one turn of the protocol's thread, and made safe together."""
        feds, index, view = feds_in(packet), index_of(packet), view_of(packet)
        self._host.wait_for_record(index, LOG_S)
        self._host.wait_until_installed(INSTALLED_S)
        check_joined(self._host.node, index)
        refused = [self._opened(fed) if fed.is_opening else None for fed in feds]

        def take(view: int) -> list[Mapping[str, Any]]:
            return [why or self._answered(fed, view) for fed, why in zip(feds, refused, strict=True)]

        standings = self._in_turn(take, [piece.encoded for fed in feds for piece in fed.pieces], view)
        told: dict[str, Any] = {VIEW: self._host.node.control.view, "standings": standings}
        if any(fed.is_opening and fed.partition == PUSH_PARTITION for fed in feds):
            told["pushes"] = [self.pushes.of(self._key(fed.stream)).as_json() for fed in feds]
        return Packet(FEED, told)

    def _in_turn(self, take: Callable[[int], Taken], groups: Sequence[Encoded], view: int | None = None) -> Taken:
        """Take tuples in by one turn of the protocol's thread. take: is told under which view their terms are agreed
        on, and raises OldView; view: the one under which they are already."""
        while True:
            agreed = self.agree(groups, CLAIM_S) if view is None else view
            try:
                return self._run(partial(take, agreed))
            except OldView:
                view = None

    def _run(self, take: Callable[[], Taken]) -> Taken:
        return self._host.run(take, OFFER_S, REFUSALS)

    def _opened(self, fed: Fed) -> Mapping[str, Any] | None:
        """Let a writer open a partition; return why that is refused, if it is."""
        try:
            self._open(Open(fed.stream, fed.partition, fed.epoch))
        except NodeUnavailable:
            raise
        except WukongsError as error:
            return _refused(error)
        return None

    # --- in the protocol's thread -------------------------------------------------------------------------------------

    def _answered(self, fed: Fed, view: int) -> Mapping[str, Any]:
        try:
            self._take_in(fed, view)
            return self._standing(fed.stream, fed.partition)._asdict()
        except StreamError as error:
            return _refused(error)

    def _take_in(self, fed: Fed, view: int) -> None:
        who = fed.stream, fed.partition, fed.epoch
        if fed.partition == PUSH_PARTITION and (fed.push is not None or fed.pieces):
            self._check_writer(Close(*who, 0, 0))
            first = fed.pieces[0].first_offset if fed.push is None else fed.push.first_offset
            self.note_push(self._key(fed.stream), first, fed.push, fed.torn)
        notes = [Packet(FED, fed.fields)] if fed.partition == PUSH_PARTITION else []
        for piece in fed.pieces:
            has_more = piece is not fed.pieces[-1] or fed.complete_ms is not None
            self._take_piece(piece, view, None if has_more else notes)
        if fed.complete_ms is not None:
            self._take_close(Close(*who, fed.end_offset, fed.complete_ms), notes)
        if fed.is_last:
            self._take_end(Finish(*who))
        if fed.partition == PUSH_PARTITION:
            self.note(fed)
            self._keep(notes)

    def _take_piece(self, piece: Piece, view: int, notes: list[Packet] | None = None) -> None:
        """notes: as Host.take_in has them."""
        facts = self._store.stream(piece.stream)
        check_batch_number(piece, facts.batch_ms, may_carry=facts.carry_rule is not None)
        self._check_writer(piece)
        if piece.end_offset <= self._partition(piece.stream, piece.partition).offset:
            return
        self._store.check(piece)
        where = self._key(piece.stream), piece.partition
        batch = self._store.protocol_batch(where[0], piece.batch_number)
        rows = piece.first_offset, piece.end_offset
        taken: Piece | None = piece
        closed = max(self._partition(piece.stream, piece.partition).closed, self._sealed(piece.stream))
        if piece.lateness_ms is not None and batch <= closed:
            # The rows are here: a writer that does not know its newest Close begins before it.
            batch, taken = closed + 1, None
            facts.passed_over_count += piece.end_offset - piece.first_offset
        self._check_is_new(piece, batch)
        lateness_ms = facts.lateness_of(piece.partition)
        lateness_ms = piece.lateness_ms if lateness_ms is None else lateness_ms
        after = None if lateness_ms is None else max(0, batch - 1 - -(-lateness_ms // facts.batch_ms))
        found = self._host.take_in(ev.PieceOffered(*where, piece.epoch, batch, *rows, view, taken, after), notes)
        if found[0] < piece.end_offset and view != self._host.node.control.view:
            raise OldView("members have come or gone since: the terms are claimed of those that are there now")
        self._check_writer(piece)  # a newer one has perhaps opened it meanwhile
        if found[0] < piece.end_offset:
            raise StreamError(
                f"stream {piece.stream}, partition {piece.partition!r}: rows {piece.first_offset} to "
                f"{piece.end_offset} of stream batch {piece.batch_number} do not follow on what is here. Send "
                f"again from row {found[0]}, with stream batches that do not fall"
            )

    def _take_close(self, message: Close, notes: list[Packet]) -> None:
        facts = self._store.stream(message.stream)
        facts.check_range(max(message.complete_ms, 0))  # an earlier time than can be named closes nothing
        batch = self._store.protocol_batch(self._key(message.stream), message.complete_ms // facts.batch_ms)
        fields = asdict(message)
        if not message.carried_count:  # nodes of an earlier release do not know it
            del fields["carried_count"]
        notes.append(Packet(CLOSE, fields))
        self._mark(message, batch, message.end_offset, notes=notes)
        self.note_close(message)
        self._keep(notes)

    def _keep(self, notes: list[Packet]) -> None:
        """Keep the notes that went with nothing that was taken."""
        while notes:
            self._host.disk.add(notes.pop())

    def _take_end(self, message: Finish) -> None:
        known = self._partition(message.stream, message.partition)
        others = self._others(message.stream, message.partition)
        state = self._store.stream(message.stream)
        state.is_ending = all(one.is_ended for one in others)
        try:
            # The protocol closes the last piece's stream batch as well.
            self._mark(message, known.closed, known.offset, is_last=True)
        except BaseException:
            state.is_ending = False
            raise

    def note_close(self, message: Close) -> None:
        """Note a Close that was taken."""
        self._store.take_close(message)
        if message.partition != PUSH_PARTITION:
            said = message.end_offset, message.complete_ms, message.carried_count
            self.restore_closes([[self._key(message.stream), message.partition, *said]])

    def closes(self) -> list[list[Any]]:
        """Return the newest Close of each stream's partition, as JSON: what restore_closes takes."""
        with self._lock:
            return [[*known, *said] for known, said in self._closes.items()]

    def restore_closes(self, closes: Iterable[Sequence[Any]]) -> None:
        """Note what was closed, here or at another node."""
        with self._lock:
            for stream, partition, *said in closes:
                newest = newest_close([self._closes.get((stream, partition)), (said[0], said[1], said[2])])
                assert newest is not None, closes
                self._closes[stream, partition] = newest
            carried = Counter[str]()
            for (stream, _), newest in self._closes.items():
                carried[stream] += newest[2]
        for stream, count in carried.items():
            with suppress(StreamError):  # it was dropped
                self._store.count_piped(stream, count)

    def note_push(self, stream: str, first_offset: int, push: Push | None, torn: Asked | None) -> None:
        """Record the push that the next rows belong to, before they are appended. stream: its key."""
        if self.pushes.begin(stream, first_offset, push, torn):
            said = {"stream": stream, "first_offset": first_offset, "push": push, "torn": torn}
            self._host.disk.add(Packet(PUSHED, said))

    def note(self, fed: Fed) -> None:
        """Note what the writer of what is pushed says beside the protocol: from when on the stream is there, whether it
        is idle, up to where it has closed it so, and what was late. The next writer goes on from there."""
        state = self._store.stream(fed.stream)
        state.late_count = max(state.late_count, fed.late_count)
        state.dropped_count = max(state.dropped_count, fed.dropped_count)
        state.carried_count = max(state.carried_count, fed.carried_count)
        state.is_idle = fed.is_idle
        if fed.first_ms is not None:
            is_alone = not self._others(fed.stream, PUSH_PARTITION)
            self._store.take_beginning(fed.stream, fed.first_ms, fed.complete_ms if is_alone else None)
        if fed.is_idle and fed.complete_ms is not None:
            closed_ms = state.floor(fed.complete_ms)
            state.idle_ms = closed_ms if state.idle_ms is None else max(closed_ms, state.idle_ms)

    def epochs(self) -> list[list[Any]]:
        """Return the newest writer's epoch of each stream's partition, as JSON: what restore_epochs takes."""
        with self._lock:
            return [[stream, partition, epoch] for (stream, partition), epoch in self._epochs.items()]

    def restore_epochs(self, epochs: Iterable[Sequence[Any]]) -> None:
        """Lock out the writers that another node has locked out."""
        with self._lock:
            for stream, partition, epoch in epochs:
                self._epochs[stream, partition] = max(epoch, self._epochs.get((stream, partition), 0))

    def newest_epoch(self, stream: str, partition: str) -> int:
        """Return the newest writer's epoch, 0 if there was none."""
        with self._lock:
            return self._epochs.get((self._key(stream), partition), 0)

    def _standing(self, stream: str, partition: str) -> PartitionAt:
        known = self._partition(stream, partition)
        closed = max(known.closed, self._sealed(stream))
        if self._store.stream(stream).lateness_of(partition) is None:
            closed = max(closed, known.reached - 1)
        return PartitionAt(known.offset, closed, known.is_ended, self._store.room(stream))

    def _mark(
        self,
        message: Close | Finish,
        batch: int,
        end_offset: int,
        is_last: bool = False,
        notes: list[Packet] | None = None,
    ) -> None:
        """Take in a marker. Everything that its writer sent before is acknowledged. So rows that are missing here were
        set aside: they come as no piece."""
        stream, partition, epoch = message.stream, message.partition, message.epoch
        self._check_writer(message)
        known = self._partition(stream, partition)
        if known.is_ended or (batch <= known.closed and end_offset <= known.offset and not is_last):
            return
        if batch > known.closed or is_last:
            event: ev.Marker | ev.PieceOffered = ev.Marker(
                self._key(stream), partition, epoch, batch, end_offset, is_last, min(known.offset, end_offset)
            )
        else:  # nothing new is closed, but rows were set aside
            next_batch = max(known.closed + 1, known.reached, self._sealed(stream) + 1)
            event = ev.PieceOffered(self._key(stream), partition, epoch, next_batch, known.offset, end_offset)
        found = self._host.take_in(event, notes)
        if found[1] < batch or (is_last and not found[2]):
            raise StreamError(
                f"stream {stream}, partition {partition!r}: the end of stream batch {batch} at row {end_offset} does "
                f"not follow on what is here: send again from row {known.offset}"
            )

    def _check_writer(self, message: Piece | Close | Finish) -> None:
        """Check that a partition was opened, and by no newer writer."""
        if not self._is_open(message.stream, message.partition):
            raise StreamError(
                f"stream {message.stream}, partition {message.partition!r}: no writer has opened it here. If the "
                "stream was dropped and declared anew, start the pipeline anew too"
            )
        self._fence(message.stream, message.partition, message.epoch)

    def _check_is_new(self, piece: Piece, batch: int) -> None:
        if batch <= self._sealed(piece.stream):
            raise StreamError(
                f"stream {piece.stream}, partition {piece.partition!r}: rows {piece.first_offset} to "
                f"{piece.end_offset} are of stream batch {piece.batch_number}, which is closed. Send what is later"
            )

    def _is_open(self, stream: str, partition: str) -> bool:
        found = self._host.node.control.stream_named(stream)
        return found is not None and partition in found.partitions

    def _sealed(self, stream: str) -> int:
        intake = self._host.node.intakes.get(self._key(stream))
        return intake.sealed if intake is not None else 0

    def _others(self, stream: str, partition: str) -> list[Partition]:
        """Return the other partitions of a stream, as they stand here."""
        found = self._host.node.control.stream_named(stream)
        names = () if found is None else found.partitions
        return [self._partition(stream, name) for name in names if name != partition]

    def _partition(self, stream: str, partition: str) -> Partition:
        intake = self._host.node.intakes.get(self._key(stream))
        return intake.partitions.get(partition, Partition()) if intake is not None else Partition()

    def _key(self, stream: str) -> str:
        """Return how the protocol calls a stream: another one was perhaps declared under this name before."""
        return self._host.node.control.key_of(stream)

    def _fence(self, stream: str, partition: str, epoch: int) -> None:
        streams, known = self._host.node.control.streams, (self._key(stream), partition)
        with self._lock:
            if known not in self._epochs:
                self._epochs = {one: newest for one, newest in self._epochs.items() if one[0] in streams}
                self._closes = {one: newest for one, newest in self._closes.items() if one[0] in streams}
                self.pushes.forget(streams)
            newest = max(epoch, self._epochs.get(known, 0))
            self._epochs[known] = newest
        if epoch < newest:
            raise LockedOut(
                f"stream {stream}, partition {partition!r}: writer {epoch} is locked out by the newer writer {newest}. "
                "Only one may send a partition; stop the other one",
                newest,
            )

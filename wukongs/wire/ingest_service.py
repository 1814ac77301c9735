"""IngestService: an engine's handling of the messages that pipelines send to its ingest socket."""

from __future__ import annotations

from wukongs.errors import StreamError
from wukongs.live.core import Core, take_piece
from wukongs.live.idleness import be_active
from wukongs.live.injector import Injector
from wukongs.live.pieces import Close, Finish, Open, Piece, check_batch_number
from wukongs.live.stream import take_call
from wukongs.live.stream_state import StreamState
from wukongs.wire.messages import NO_CLOSE, Opened


class IngestService:
    """wukongs.wire.ingesting.IngestHandler: a return means that the message is safe here."""

    def __init__(self, core: Core, injector: Injector) -> None:
        self._core = core
        self._injector = injector

    def open_partition(self, message: Open) -> Opened:
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(message.stream)
            known = state.ledgers.get(message.partition)
            if known is None:
                state.check_is_open()
            else:
                known.check_writer(message.epoch)
            self._core.journal.commit(message)
            ledger = state.open_partition(message.partition)
            resume_offset = ledger.open(message.epoch)
            closed = [ms for ms in (ledger.complete_ms, state.closed_ms) if ms is not None]
            last_close = NO_CLOSE if ledger.complete_ms is None else None
            if ledger.closed_offset is not None:
                last_close = ledger.closed_offset, ledger.complete_ms, 0
            return Opened(
                state.batch_ms,
                state.into_iri,
                state.timing,
                resume_offset,
                self._core.settings.hash_bits,
                max(closed, default=None),
                last_close=last_close,
            )

    def inject(self, piece: Piece) -> None:
        lsn = None
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(piece.stream)
            ledger = state.opened_partition(piece.partition)
            if ledger.admit(piece, may_carry=state.carry_rule is not None):
                be_active(self._core, state)
                check_batch_number(piece, state.batch_ms, may_carry=state.carry_rule is not None)
                piece = state.numbered(piece)
                timestamps = piece.encoded.timestamps
                if len(timestamps) != len(piece.encoded) or len(piece.timing) != len(piece.encoded):
                    raise StreamError(
                        f"stream {piece.stream}: {len(piece.encoded)} tuples with {len(timestamps)} timestamps and "
                        f"{len(piece.timing)} timing marks: expected one of each for every tuple"
                    )
                if state.idle_ms is not None:
                    lsn, _ = take_call(self._core, self._injector, state, lambda: self._checked(state, piece))
                else:
                    self._checked(state, piece)
                    self._core.journal.prepare()
                    take_piece(self._core, state, piece)
                    state.count_carried(piece)
                    lsn = self._core.journal.note(piece, lambda: self._begin(state, piece))
        self._core.journal.wait(lsn)  # also for a repeat: the first one may not be safe yet

    def _checked(self, state: StreamState, piece: Piece) -> Piece:
        """Return a piece that may be taken. Raises StreamError."""
        self._core.check_is_open()
        if not state.opened_partition(piece.partition).admit(piece, may_carry=state.carry_rule is not None):
            raise StreamError(
                f"stream {piece.stream}, partition {piece.partition!r}: rows {piece.first_offset} to "
                f"{piece.end_offset} came twice at the same time: send each piece once"
            )
        state.check_piece(piece)
        state.check_room(len(piece.encoded))
        state.check_entries(len(piece.encoded))
        return piece

    def close_batches(self, message: Close) -> None:
        lsn = None
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(message.stream)
            state.check_range(message.complete_ms)
            ledger = state.opened_partition(message.partition)
            be_active(self._core, state)
            self._core.journal.prepare()
            if ledger.close(message):
                state.promise(message.partition, message.complete_ms)
                lsn = self._core.journal.note(message, lambda: self._complete(state, message))
        self._core.journal.wait(lsn)

    def _begin(self, state: StreamState, piece: Piece) -> None:
        state.begin_with(piece.encoded.timestamps, piece.numbers)
        self._core.progress.moved(self._core)

    def _complete(self, state: StreamState, message: Close) -> None:
        state.complete(message.partition, message.complete_ms)
        self._core.progress.moved(self._core)
        self._injector.wake()

    def finish_partition(self, message: Finish) -> None:
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(message.stream)
            if not state.is_ended:
                state.opened_partition(message.partition).check_writer(message.epoch)
                self._core.journal.commit(message)
                state.finish(message.partition)
                self._core.progress.moved(self._core)
                self._injector.wake()

"""IngestService: what an engine does with the messages that pipelines send to its ingest socket."""

from __future__ import annotations

from wukongs.core import Core
from wukongs.errors import StreamError
from wukongs.injector import Injector
from wukongs.messages import Close, Finish, Open, Opened, Piece, check_batch_number


class IngestService:
    """wukongs.transport.IngestHandler: a return means that the message is safe here."""

    def __init__(self, core: Core, injector: Injector) -> None:
        self._core = core
        self._injector = injector

    def open_partition(self, message: Open) -> Opened:
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(message.stream)
            resume_offset = state.open_partition(message.partition).open(message.epoch)
            return Opened(state.batch_ms, state.into_iri, state.timing, resume_offset, self._core.settings.hash_bits)

    def inject(self, piece: Piece) -> None:
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(piece.stream)
            ledger = state.opened_partition(piece.partition)
            if not ledger.admit(piece):
                return
            check_batch_number(piece, state.batch_ms)
            timestamps = piece.encoded.timestamps
            if len(timestamps) != len(piece.encoded) or len(piece.timing) != len(piece.encoded):
                raise StreamError(
                    f"stream {piece.stream}: {len(piece.encoded)} tuples with {len(timestamps)} timestamps and "
                    f"{len(piece.timing)} timing marks: expected one of each for every tuple"
                )
            state.check_timestamps(timestamps, piece.partition)
            state.check_room(len(piece.encoded))
            encoded, transient_ids = self._core.registry.confirm(piece.encoded, piece.timing)
            state.take(encoded, piece.timing, transient_ids)
            ledger.taken(piece)

    def close_batches(self, message: Close) -> None:
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(message.stream)
            state.check_range(message.complete_ms)
            if state.opened_partition(message.partition).close(message):
                state.complete(message.partition, message.complete_ms)
                self._injector.wake()

    def finish_partition(self, message: Finish) -> None:
        with self._core.lock:
            self._core.check_is_open()
            state = self._core.stream(message.stream)
            if not state.is_ended:
                state.opened_partition(message.partition).check_writer(message.epoch)
                state.finish(message.partition)
                self._injector.wake()

"""DirectLink: the writer's side of the ingest protocol, to an engine of the same process, without messages.

A call returns when the engine has taken it, and what it keeps is safe: nothing is ever unacknowledged.
"""

from __future__ import annotations

from types import TracebackType

from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.wire.ingesting import IngestHandler
from wukongs.wire.messages import Opened


class DirectLink:
    """Has the methods of IngestLink that writers use. Used by one thread. The engine keeps the columns of a piece,
    which nobody may change any more. Each call raises what the engine refuses it with."""

    sent_bytes = 0
    """Nothing goes over a wire."""

    def __init__(self, handler: IngestHandler) -> None:
        self._handler = handler

    def open(self, stream: str, partition: str, epoch: int) -> Opened:
        return self._handler.open_partition(Open(stream, partition, epoch))

    def send(self, piece: Piece) -> None:
        self._handler.inject(piece)

    def close_batches(
        self, stream: str, partition: str, epoch: int, end_offset: int, complete_ms: int, carried_count: int = 0
    ) -> None:
        self._handler.close_batches(Close(stream, partition, epoch, end_offset, complete_ms, carried_count))

    def finish(self, stream: str, partition: str, epoch: int) -> None:
        self._handler.finish_partition(Finish(stream, partition, epoch))

    def close(self) -> None: ...

    def __enter__(self) -> DirectLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

"""The ledger of one source partition on this node: which pieces it may take, and in which order.

Pieces tile the rows of a partition: a new one begins exactly where the one before it, or a Close, ended. So a repeat is
known without a list of all pieces, and a gap or an overlap is refused: no row is lost or doubled. The shares of one
offset range never go to one node twice, so a range is known by its end.
"""

from __future__ import annotations

from wukongs.errors import StreamError
from wukongs.live.pieces import Close, Piece


class PartitionLedger:
    """The rows of one source partition that are safe here: [0, end_offset), closed up to complete_ms (None: nothing).

    epoch is the newest writer's; every call of an older one is refused. closed_offset: the end_offset of the newest
    Close; None: there was none, or its record is of an earlier release.
    """

    def __init__(self, stream: str, partition: str, end_offset: int = 0) -> None:
        self.stream = stream
        self.partition = partition
        self.end_offset = end_offset
        self.complete_ms: int | None = None
        self.closed_offset: int | None = None
        self.epoch = 0

    def open(self, epoch: int) -> int:
        """Let the writer with this fencing epoch in; return the offset from which it has to send.

        Raises: StreamError (a newer writer is there)."""
        self._fence(epoch)
        self.epoch = epoch
        return self.end_offset

    def admit(self, piece: Piece, *, may_carry: bool = False) -> bool:
        """Tell whether a piece is new; False for a repeat, which is acknowledged and dropped. Changes nothing.
        may_carry: its stream batch may carry late tuples, so that their times say nothing.

        Raises: StreamError (an older writer; a gap; an overlap; a tuple at or before what was closed)."""
        self._fence(piece.epoch)
        if piece.end_offset <= self.end_offset:
            return False
        if piece.first_offset != self.end_offset:
            raise StreamError(
                f"{self._name()}: expected a piece that begins at row {self.end_offset}, found rows "
                f"{piece.first_offset} to {piece.end_offset}. Send again from row {self.end_offset}"
            )
        times = piece.encoded.timestamps
        if not may_carry and self.complete_ms is not None and len(times) and int(times.min()) <= self.complete_ms:
            raise StreamError(
                f"{self._name()}: a tuple at {times.min()} ms came after everything up to {self.complete_ms} ms was "
                "declared complete. Close a partition only up to a time that all later rows exceed"
            )
        return True

    def taken(self, piece: Piece) -> None:
        """Note that an admitted piece is safe."""
        self.end_offset = piece.end_offset

    def close(self, message: Close) -> bool:
        """Note a Close; False for a repeat or one that says nothing new. Rows that were set aside come as no piece: a
        Close passes them. Raises: StreamError (an older writer)."""
        self._fence(message.epoch)
        if message.end_offset < self.end_offset:
            return False
        news = (
            message.end_offset > self.end_offset or self.complete_ms is None or message.complete_ms > self.complete_ms
        )
        self.end_offset = self.closed_offset = message.end_offset
        if self.complete_ms is None or message.complete_ms > self.complete_ms:
            self.complete_ms = message.complete_ms
        return news

    def check_writer(self, epoch: int) -> None:
        """Check that no newer writer is there. Raises: StreamError."""
        self._fence(epoch)

    def _fence(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise StreamError(
                f"{self._name()}: writer {epoch} is locked out by the newer writer {self.epoch}. "
                "Only one pipeline may send a partition; stop the other one"
            )

    def _name(self) -> str:
        return f"stream {self.stream}, partition {self.partition!r}"

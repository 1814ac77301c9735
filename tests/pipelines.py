"""A pipeline of one partition, over a socket, as the adapters have one: rows go to the nodes and are acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wukongs.live.pieces import Piece, timing_mask
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_columns
from wukongs.wire.direct_link import DirectLink
from wukongs.wire.link import IngestLink

EX = "http://ex/"


class Pipeline:
    """Sends tuples <name> <p> <o> of one partition of a stream, and says what is complete."""

    def __init__(self, link: IngestLink | DirectLink, stream: str, partition: str, epoch: int = 1) -> None:
        self.link, self.stream, self.partition, self.epoch = link, stream, partition, epoch
        self.opened = link.open(stream, partition, epoch)
        self.row = self.opened.resume_offset

    def push(self, *rows: tuple[str, int]) -> None:
        """Send (name, timestamp) rows of one stream batch."""
        names, times = zip(*rows, strict=True)
        columns = [[f"<{EX}{name}>" for name in names], [f"<{EX}p>"] * len(rows), [f"<{EX}o>"] * len(rows)]
        self._send(
            encode_columns(
                *columns, np.array(times, np.int64), scope=self.stream.encode(), hash_bits=self.opened.hash_bits
            )
        )

    def push_table(self, table: Any) -> None:
        """Send tuples of one stream batch that name their graphs and have signs."""
        names = ("subject", "predicate", "object", "timestamp_ms", "graph", "op")
        self._send(
            encode_columns(
                *(table.column(name) for name in names), scope=self.stream.encode(), hash_bits=self.opened.hash_bits
            )
        )

    def _send(self, encoded: Encoded) -> None:
        number = -(-int(encoded.timestamps[0]) // self.opened.batch_ms)
        timing = timing_mask(encoded, self.opened.timing)
        end = self.row + len(encoded)
        self.link.send(Piece(self.stream, self.partition, self.epoch, self.row, end, 0, number, encoded, timing))
        self.row = end

    def complete(self, time_ms: int) -> None:
        """Say that nothing comes any more up to a time."""
        self.link.close_batches(self.stream, self.partition, self.epoch, self.row, time_ms)

    def finish(self) -> None:
        self.link.finish(self.stream, self.partition, self.epoch)


@contextmanager
def pipelines(engine: Any, stream: str, *partitions: str, epoch: int = 1) -> Iterator[list[Pipeline]]:
    """Open partitions of a stream at whatever address the engine listens at."""
    with IngestLink(engine.listen().split(",")) as link:
        yield [Pipeline(link, stream, partition, epoch) for partition in partitions]

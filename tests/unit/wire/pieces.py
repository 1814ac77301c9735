"""Makes pieces for the tests of the wire."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.live.pieces import Piece
from wukongs.store.encoder import encode_columns

STREAM = "http://ex/s"


def make_piece(
    triples: Sequence[tuple[str, str, str]] = (("<http://ex/a>", "<http://ex/p>", '"x"'),),
    *,
    first: int = 0,
    end: int | None = None,
    number: int = 1,
    epoch: int = 1,
    time: int = 1000,
    hash_bits: int = 62,
    graphs: Sequence[str | None] | None = None,
) -> Piece:
    """A piece of stream batch `number`; timing alternates."""
    columns = [list(column) for column in zip(*triples, strict=True)] or [[], [], []]
    times = np.full(len(triples), time, np.int64)
    encoded = encode_columns(*columns, times, graphs, scope=b"s", hash_bits=hash_bits)
    timing = np.arange(len(triples)) % 2 == 1
    stop = first + len(triples) if end is None else end
    return Piece(STREAM, "part-0", epoch, first, stop, 0, number, encoded, timing)


def many(count: int) -> list[tuple[str, str, str]]:
    return [(f"<http://ex/s{row}>", f"<http://ex/p{row % 5}>", f'"object {row}"@en') for row in range(count)]

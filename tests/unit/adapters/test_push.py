"""The cutting of rows into pieces, against a row-by-row check of what pieces promise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.unit.adapters.helpers import triples_of
from wukongs.adapters.push import PartitionSetup, carried_in, pieces_of
from wukongs.adapters.source import Rows
from wukongs.store.encoder import encode_ntriples

BATCH_MS = 10


class Named:
    partition = "p"

    def read(self, *_: Any) -> Rows:
        raise AssertionError


@fuzzed(200)
@given(
    drawn=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=12),
    first=st.integers(0, 3),
    cuts=st.sets(st.integers(0, 16), max_size=4),
    carries=st.booleans(),
)
def test_pieces_tile_rows_and_end_at_cuts(
    drawn: list[tuple[int, int, int]], first: int, cuts: set[int], carries: bool
) -> None:
    """drawn: of each row how many tuples it gives, its time, and by how many stream batches it is carried."""
    wanted, text, offsets, numbers = list[tuple[int, str, int]](), "", list[int](), list[int]()
    for row, (count, time_ms, later) in enumerate(drawn, first):
        number = -(-time_ms // BATCH_MS) + (later if carries else 0)
        for one in range(count):
            text += f'<http://ex/{row}> <http://ex/p> "{one}" . {time_ms}\n'
            wanted.append((row, f"{row} {one}", number))
            offsets.append(row)
            numbers.append(number)
    encoded, _ = encode_ntriples(text.encode(), b"", timestamps="suffix")
    decided = np.array(numbers, np.int64) if carries else None
    rows = Rows(encoded, np.array(offsets, np.int64), [], [], 60, decided)
    setup = PartitionSetup("http://ex/s", Named(), 1, BATCH_MS, True, 62, cuts=tuple(sorted(cuts)))
    end = first + len(drawn)
    pieces = list(pieces_of(setup, rows, first, end, 100))
    if not wanted:
        assert not pieces
        return
    assert (pieces[0].first_offset, pieces[-1].end_offset) == (first, end)
    assert all(one.end_offset == other.first_offset for one, other in pairwise(pieces))
    ends = {one.end_offset for one in pieces}
    assert all(cut in ends for cut in cuts if first < cut < end)
    found = list[tuple[int, str, int]]()
    for piece in pieces:
        assert piece.first_offset < piece.end_offset
        times = piece.encoded.timestamps
        assert (np.diff(times) >= 0).all()
        for subject, _, value in triples_of(piece.encoded):
            row = int(subject.strip("<>").rpartition("/")[2])
            assert piece.first_offset <= row < piece.end_offset
            found.append((row, f"{row} {value.strip(chr(34))}", piece.batch_number))
        assert len(times) or {piece.first_offset, piece.end_offset} & cuts, "only cuts make empty pieces"
    assert sorted(found) == sorted(wanted)
    for one, other in pairwise(pieces):
        assert one.batch_number != other.batch_number or one.end_offset in cuts, "no piece is cut without need"
    assert carried_in(rows, BATCH_MS) == sum(later > 0 for count, _, later in drawn for _ in range(count)) * carries

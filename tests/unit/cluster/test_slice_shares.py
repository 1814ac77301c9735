"""SliceShares against a list of rows."""

from __future__ import annotations

import numpy as np

from wukongs.cluster.slice_shares import ShareRows, SliceShares
from wukongs.wire.assignment import SHARD_COUNT


def test_shares_counts_and_references_are_those_of_a_list() -> None:
    rng = np.random.default_rng(3)
    shares = SliceShares()
    rows: list[tuple[int, int, int]] = []  # stream batch, subject, place
    released: list[int] = []
    number, dropped_to = -50, -51
    for turn in range(120):
        number += int(rng.integers(0, 3))
        subjects = rng.integers(0, 1 << 63, int(rng.integers(0, 6)))
        places = np.arange(len(subjects)) * 2
        shares.add(
            number,
            ShareRows(
                "p", turn, subjects, subjects, subjects, np.full(len(subjects), number * 100), places, np.array([turn])
            ),
        )
        rows += [(number, int(subject), int(place)) for subject, place in zip(subjects, places, strict=True)]
        shards = rng.random(SHARD_COUNT) < rng.choice([0.1, 0.5, 1.0])
        first, last = sorted((number - int(rng.integers(0, 40)), number - int(rng.integers(0, 40))))
        found = [part for _, part in shares.share(first, last, shards)]
        kept = [row for row in rows if row[0] > dropped_to]
        wanted = [row for row in kept if first <= row[0] <= last and shards[row[1] >> 53]]
        assert sorted(
            (int(t) // 100, int(s), int(p))
            for part in found
            for t, s, p in zip(part.timestamps, part.subjects, part.places, strict=True)
        ) == sorted(wanted)
        assert all(not len(part.transient_ids) for part in found)
        if first > dropped_to:
            before = [row for row in rows if row[0] < first and shards[row[1] >> 53]]
            assert shares.before(first, shards) == (len(before), max((row[0] for row in before), default=None))
        assert shares.row_count == len(kept)
        if turn % 10 == 9:
            dropped_to = number - 20
            released += shares.drop(dropped_to).tolist()
            assert not len(shares.drop(dropped_to))
    released += shares.drop(1 << 60).tolist()
    assert released == list(range(120))
    assert shares.size_bytes == 0

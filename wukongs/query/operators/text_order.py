"""The order of texts by code points, found on their UTF-8 a few bytes at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wukongs.query.limits import current
from wukongs.query.rows import PIECE_ROWS, stable_order
from wukongs.query.terms.arrow_texts import bytes_of
from wukongs.store.dtypes import Int64Array

COMMON_BYTES_MAX = 512
"""Texts that have so many first bytes in common are left to be compared otherwise."""
_KEY_BITS = 63
_BYTES_AT_ONCE = 7


def ranks_of_texts(texts: pa.LargeStringArray) -> Int64Array | None:
    """Return the rank of each of some distinct texts, from 0 on; None if some have very long beginnings in common.

    Each turn sorts the texts that are still tied by one number: the number of their group of ties, then as many of
    their next bytes as fit. Bytes behind the end of a text count as zeros. Of two texts that are still tied at the end,
    the shorter one is first."""
    data, offsets = bytes_of(texts)
    limits = current()
    limits.hold(len(data) + 80 * len(texts), "ORDER BY")
    words = np.ndarray((len(data) + 1,), ">u8", np.concatenate((data, np.zeros(8, np.uint8))).data, strides=(1,))
    starts, sizes, ranks = offsets[:-1], np.diff(offsets), np.zeros(len(texts), np.int64)
    tied, groups, at = np.arange(len(texts)), np.zeros(len(texts), np.int64), 0
    while len(tied):
        limits.check()
        left = sizes[tied] - at
        if (left <= 0).all():
            _, places = np.unique(groups, return_index=True)
            order = stable_order([groups, left])
            ranks[tied[order]] = ranks[tied] + np.arange(len(tied)) - places[groups]
            return ranks
        if at > COMMON_BYTES_MAX:
            return None
        width = min(_BYTES_AT_ONCE, (_KEY_BITS - int(groups[-1]).bit_length()) // 8)
        beyond = (8 * (width - np.clip(left, 0, width))).astype(np.uint64)
        bits = words[np.minimum(starts[tied] + at, len(data))].astype(np.uint64) >> np.uint64(64 - 8 * width)
        keys = groups << 8 * width | (bits >> beyond << beyond).astype(np.int64)
        if keys[0] != keys[-1] or (keys != keys[0]).any():
            tied, groups = _refined(ranks, tied, groups, keys)
        at += width
    return ranks


def _refined(
    ranks: Int64Array, tied: Int64Array, groups: Int64Array, keys: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Rank texts that are tied with others of their group by their keys. A rank is that of the first of its ties.

    groups : int64[n_tied], ascending from 0 on. Returns (the texts that are still tied, their groups), in order."""
    order = np.argsort(keys) if len(keys) <= PIECE_ROWS else stable_order([keys])
    tied, keys, places = tied[order], keys[order], np.arange(len(tied))
    # Groups keep their places: `groups` is as good before as after the sort.
    is_other = np.append(True, groups[1:] != groups[:-1])
    is_new = np.append(True, keys[1:] != keys[:-1])
    group_firsts = np.maximum.accumulate(np.where(is_other, places, 0))
    ranks[tied] += np.maximum.accumulate(np.where(is_new, places, 0)) - group_firsts
    is_tied = ~(is_new & np.append(is_new[1:], True))
    return tied[is_tied], np.cumsum(is_new & is_tied)[is_tied] - 1

"""The kernels that build a batch, in plain Python: same names, same arguments, written from their docstrings."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from wukongs.store.dtypes import Int64Array


def assign_directory(graphs: Int64Array, predicates: Int64Array) -> tuple[Int64Array, ...]:
    pairs = list(zip(predicates.tolist(), graphs.tolist(), strict=True))
    directory = sorted(set(pairs))
    rows = [directory.index(pair) for pair in pairs]
    return (
        np.array(rows, np.int32),
        np.array([g for _, g in directory], np.int64),
        np.array([p for p, _ in directory], np.int64),
        np.array([pairs.count(pair) for pair in directory], np.int64),
    )


def group_rows(
    rows: Int64Array, counts: Int64Array, first: Int64Array, second: Int64Array, payload: Int64Array
) -> tuple[Int64Array, ...]:
    order = sorted(range(len(rows)), key=lambda i: int(rows[i]))
    starts = [sum(counts.tolist()[:r]) for r in range(len(counts) + 1)]
    moved = payload[order] if len(payload) else payload
    return first[order], second[order], moved, np.array(starts, np.int64)


def sort_ranges(first: Int64Array, second: Int64Array, payload: Int64Array, range_starts: Int64Array) -> None:
    for lo, hi in zip(range_starts.tolist(), range_starts.tolist()[1:], strict=False):
        order = lo + np.lexsort((second[lo:hi], first[lo:hi]))
        first[lo:hi], second[lo:hi] = first[order], second[order]
        if len(payload):
            payload[lo:hi] = payload[order]


def compress_pairs(
    first: Int64Array, second: Int64Array, payload: Int64Array, range_starts: Int64Array
) -> tuple[Int64Array, ...]:
    key_starts, value_starts, keys, offsets, values, payloads = [0], [0], [], [], [], []
    for lo, hi in zip(range_starts.tolist(), range_starts.tolist()[1:], strict=False):
        newest: dict[tuple[int, int], int] = {}
        for i in range(lo, hi):
            pair = int(first[i]), int(second[i])
            newest[pair] = max(newest.get(pair, -(2**63)), int(payload[i]) if len(payload) else 0)
        for key in sorted({key for key, _ in newest}):
            keys.append(key)
            offsets.append(len(values))
            for k, value in sorted(newest):
                if k == key:
                    values.append(value)
                    payloads.append(newest[k, value])
        key_starts.append(len(keys))
        value_starts.append(len(values))
    return (
        np.array(key_starts, np.int64),
        np.array(keys, np.int64),
        np.array([*offsets, len(values)], np.int32),
        np.array(values, np.int64),
        np.array(payloads if len(payload) else [], np.int64),
        np.array(value_starts, np.int64),
    )


def swap_sides(
    key_starts: Int64Array, keys: Int64Array, offsets: Int64Array, values: Int64Array
) -> tuple[Int64Array, Int64Array]:
    del key_starts
    return values.copy(), np.repeat(keys, np.diff(offsets))


def list_vertices(
    out_key_starts: Int64Array, out_keys: Int64Array, in_key_starts: Int64Array, in_keys: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Every subject, and every object that is no inlined literal, with 2 * directory row + direction."""
    found = []
    for direction, starts, keys in ((0, out_key_starts.tolist(), out_keys), (1, in_key_starts.tolist(), in_keys)):
        for row in range(len(starts) - 1):
            own = keys.tolist()[starts[row] : starts[row + 1]]
            found += [(key, 2 * row + direction) for key in own if direction == 0 or key % 2 == 0]
    pairs = np.array(found, np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def find_by_fence(keys: list[int], shift: int, fence: list[int], key: int) -> int:
    """Where a key lies, or belongs, when only the bucket that the fence names is looked at."""
    bucket = key >> shift
    return bisect_left(keys, key, fence[bucket], fence[bucket + 1])


def hash_key(key: int, direction: int) -> int:
    folded = (key ^ key >> 32 ^ direction * 0x165667B1) % 2**32
    return folded * 0x5E3779B1


def add_keys(words: Int64Array, keys: Int64Array, direction: int, start: int, stop: int) -> None:
    for key in keys.tolist()[start:stop]:
        hashed = hash_key(key, direction)
        place = 1 + hashed // 2**24 % (len(words) - 1)
        bits = int(words[place]) % 2**64
        for first in (45, 51, 57):
            bits |= 2 ** (hashed // 2**first % 64)
        words[place] = bits - 2**64 if bits >= 2**63 else bits

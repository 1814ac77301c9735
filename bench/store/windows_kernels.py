# mypy: disallow-untyped-defs=false
"""Reading a window without a stream index: walk the stored value list of each key and look at every time."""

from __future__ import annotations

from wukongs.store.addresses import int64_array
from wukongs.store.dtypes import OUT
from wukongs.store.jit import njit
from wukongs.store.layout import TIMES, TRIPLE_COUNT
from wukongs.store.lookup_kernels import find_key, side_values, value_range


@njit
def walk_values(descriptor, keys, start_ms, end_ms, out):
    """Write the values of keys whose time lies in (start_ms, end_ms]; return how many there are.

    Parameters
    ----------
    descriptor : int64[DESCRIPTOR_WIDTH]    A batch of one directory row, with times.
    keys : int64[n]                         Subjects.
    out : int64[...]                        Large enough for all matches.

    Cost: the length of the value lists, which hold all that was ever stored. Source: the paper, 6.4 (Wukong/Ext).
    """
    values = side_values(descriptor, OUT, descriptor[TRIPLE_COUNT])
    times = int64_array(descriptor[TIMES], descriptor[TRIPLE_COUNT])
    found = 0
    for i in range(keys.size):
        at = find_key(descriptor, OUT, 0, keys[i])
        if at < 0:
            continue
        start, end = value_range(descriptor, OUT, at)
        for v in range(start, end):
            if start_ms < times[v] <= end_ms:
                out[found] = values[v]
                found += 1
    return found

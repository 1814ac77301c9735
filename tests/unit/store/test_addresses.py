"""Arrays behind addresses: compiled and plain views see one memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from wukongs.store import addresses
from wukongs.store.addresses import int32_array, int64_array, int64_table, int64_tables, prefetch, uint16_array
from wukongs.store.jit import JIT_DISABLED, njit


@njit
def int64_at(address, size, place):  # type: ignore[no-untyped-def]
    return int64_array(address, size)[place]


@njit
def int32_at(address, size, place):  # type: ignore[no-untyped-def]
    return int32_array(address, size)[place]


@njit
def uint16_at(address, size, place):  # type: ignore[no-untyped-def]
    return uint16_array(address, size)[place]


@njit
def size_of(address, size):  # type: ignore[no-untyped-def]
    return int64_array(address, size).size


@njit
def cell_of_table(address, rows, columns, row, column):  # type: ignore[no-untyped-def]
    return int64_table(address, rows, columns)[row, column]


@njit
def cell_of_tables(address, count, rows, columns, place, row, column):  # type: ignore[no-untyped-def]
    return int64_tables(address, count, rows, columns)[place][row, column]


CASES = [
    (int64_at, int64_array, np.int64, [-(2**63), -1, 0, 2**63 - 1]),
    (int32_at, int32_array, np.int32, [-(2**31), -1, 0, 2**31 - 1]),
    (uint16_at, uint16_array, np.uint16, [0, 1, 2**15, 2**16 - 1]),
]


@pytest.mark.nojit
@pytest.mark.parametrize(("kernel", "view", "dtype", "values"), CASES)
def test_a_view_reads_the_array(
    kernel: Callable[..., int], view: Callable[..., Any], dtype: type[np.generic], values: list[int]
) -> None:
    array = np.array(values, dtype)
    for place, value in enumerate(values):
        assert kernel(array.ctypes.data, len(array), place) == value
    seen = view(array.ctypes.data, len(array))
    assert seen.dtype == dtype
    assert seen.tolist() == values
    array[0] = 7
    assert seen[0] == 7, "a view, no copy"
    assert kernel(array.ctypes.data, len(array), 0) == 7


@pytest.mark.nojit
def test_a_table_is_read_by_row_and_column() -> None:
    array = np.arange(2 * 3 * 4, dtype=np.int64)
    address = array.ctypes.data
    table, tables = array.reshape(6, 4), array.reshape(2, 3, 4)
    for row in range(6):
        for column in range(4):
            assert cell_of_table(address, 6, 4, row, column) == table[row, column]
            assert cell_of_tables(address, 2, 3, 4, row // 3, row % 3, column) == tables[row // 3, row % 3, column]
    int64_table(address, 6, 4)[5, 3] = 77
    int64_tables(address, 2, 3, 4)[0, 0, 0] = 78
    assert array[[0, -1]].tolist() == [78, 77]


@pytest.mark.nojit
def test_nothing_at_no_address() -> None:
    assert size_of(0, 0) == 0
    for view in (int64_array, int32_array, uint16_array):
        assert view(0, 0).size == 0


def test_compiled_code_does_not_call_back_into_python() -> None:
    """The overloads and not the plain functions run inside compiled kernels."""
    if JIT_DISABLED:
        pytest.skip("nothing is compiled")
    array = np.arange(3, dtype=np.int64)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(addresses, "_view", None)
        assert int64_at(array.ctypes.data, 3, 2) == 2


@njit
def sum_with_prefetch(numbers):  # type: ignore[no-untyped-def]
    total = 0
    for i in range(numbers.size):
        prefetch(numbers, i + 8)  # also behind the end: it never fails
        total += numbers[i]
    return total


@pytest.mark.nojit
def test_a_prefetch_changes_nothing() -> None:
    for dtype in (np.int64, np.uint64, np.int32):
        numbers = np.arange(100, dtype=dtype)
        assert sum_with_prefetch(numbers) == 4950
        assert numbers.tolist() == list(range(100))

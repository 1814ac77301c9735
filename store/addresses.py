# mypy: disallow-untyped-defs=false
"""Arrays behind addresses: the one place where a kernel turns a number into memory.

A plan reads many batches, so a kernel gets a table of addresses instead of arrays. The owner of an address must outlive
the call. Compiled code makes a view without a copy, subject to numba's bounds checks; plain Python makes the same view
through ctypes, so every kernel also runs un-jitted.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic, overload


def _view(address: int, size: int, ctype: Any, dtype: Any) -> Any:
    if size == 0:
        return np.empty(0, dtype)
    return np.frombuffer((ctype * int(size)).from_address(int(address)), dtype)


def int64_array(address, size):
    """View `size` int64 at `address`."""
    return _view(address, size, ctypes.c_int64, np.int64)


def int32_array(address, size):
    """View `size` int32 at `address`."""
    return _view(address, size, ctypes.c_int32, np.int32)


def uint16_array(address, size):
    """View `size` uint16 at `address`."""
    return _view(address, size, ctypes.c_uint16, np.uint16)


@intrinsic
def _pointer(typingctx, address):
    """Make a void pointer of an integer, inside compiled code."""

    def codegen(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


@overload(int64_array, inline="never")
def _int64_array(address, size):
    return lambda address, size: numba.carray(_pointer(address), (size,), np.int64)


@overload(int32_array, inline="never")
def _int32_array(address, size):
    return lambda address, size: numba.carray(_pointer(address), (size,), np.int32)


@overload(uint16_array, inline="never")
def _uint16_array(address, size):
    return lambda address, size: numba.carray(_pointer(address), (size,), np.uint16)

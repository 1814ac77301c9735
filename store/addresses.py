# mypy: disallow-untyped-defs=false
"""Arrays behind addresses: the one place where a kernel turns a number into memory.

A plan reads many batches, so a kernel gets a table of addresses instead of arrays. The owner of an address must outlive
the call. Compiled code makes a view without a copy, subject to numba's bounds checks; plain Python makes the same view
through ctypes, so every kernel also runs un-jitted.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import make_array, populate_array


def _view(address: int, size: int, ctype: Any, dtype: Any) -> Any:
    if size == 0:
        return np.empty(0, dtype)
    return np.frombuffer((ctype * int(size)).from_address(int(address)), dtype)


def int64_array(address, size):
    """View `size` int64 at `address`."""
    return _view(address, size, ctypes.c_int64, np.int64)


def int64_table(address, rows, columns):
    """View int64[rows, columns] at `address`."""
    return int64_array(address, rows * columns).reshape(rows, columns)


def int64_tables(address, count, rows, columns):
    """View int64[count, rows, columns] at `address`."""
    return int64_array(address, count * rows * columns).reshape(count, rows, columns)


def rows_of(table):
    """View int64[rows, columns] by its entry: int64[3], address, rows and columns."""
    return int64_table(table[0], table[1], table[2])


def float64_array(address, size):
    """View `size` float64 at `address`."""
    return _view(address, size, ctypes.c_double, np.float64)


def int32_array(address, size):
    """View `size` int32 at `address`."""
    return _view(address, size, ctypes.c_int32, np.int32)


def uint32_array(address, size):
    """View `size` uint32 at `address`."""
    return _view(address, size, ctypes.c_uint32, np.uint32)


def uint16_array(address, size):
    """View `size` uint16 at `address`."""
    return _view(address, size, ctypes.c_uint16, np.uint16)


def uint8_array(address, size):
    """View `size` uint8 at `address`."""
    return _view(address, size, ctypes.c_uint8, np.uint8)


def _define(function, item, dimensions=1):
    """Teach compiled code the meaning of a view function. A view has no owner there, so no references to it are
    counted; and it is typed here, not by an overload, so that kernels without reference counting (njit_uncounted) may
    make one."""
    array_type = types.Array(item, dimensions, "C")

    @type_callable(function)
    def typing(context):
        if dimensions == 1:
            return lambda address, size: array_type
        if dimensions == 2:
            return lambda address, rows, columns: array_type
        return lambda address, count, rows, columns: array_type

    @lower_builtin(function, *[types.Integer] * (1 + dimensions))
    def lowering(context, builder, signature, arguments):
        address = context.cast(builder, arguments[0], signature.args[0], types.int64)
        shape = [
            context.cast(builder, size, kind, types.intp)
            for size, kind in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        return _lowered_view(context, builder, array_type, address, shape)


def _lowered_view(context, builder, array_type, address, shape):
    array = make_array(array_type)(context, builder)
    width = context.get_constant(types.intp, array_type.dtype.bitwidth // 8)
    strides = [width]
    for size in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], size))
    data = builder.inttoptr(address, array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=width, meminfo=None)
    return array._getvalue()


_TABLE = types.Array(types.int64, 2, "C")


@type_callable(rows_of)
def _type_rows_of(context):
    return lambda table: _TABLE


@lower_builtin(rows_of, types.Array)
def _lower_rows_of(context, builder, signature, arguments):
    entry = make_array(signature.args[0])(context, builder, arguments[0])
    cells = [builder.load(builder.gep(entry.data, [context.get_constant(types.intp, at)])) for at in range(3)]
    return _lowered_view(context, builder, _TABLE, cells[0], cells[1:])


_define(int64_array, types.int64)
_define(int64_table, types.int64, 2)
_define(int64_tables, types.int64, 3)
_define(float64_array, types.float64)
_define(int32_array, types.int32)
_define(uint32_array, types.uint32)
_define(uint16_array, types.uint16)
_define(uint8_array, types.uint8)


def prefetch(array, index):
    """Let the cache line of array[index] be fetched for writing, without waiting for it. Plain Python does nothing."""


@type_callable(prefetch)
def _type_prefetch(context):
    return lambda array, index: types.none


@lower_builtin(prefetch, types.Array, types.Integer)
def _lower_prefetch(context, builder, signature, arguments):
    array = make_array(signature.args[0])(context, builder, arguments[0])
    place = context.cast(builder, arguments[1], signature.args[1], types.intp)
    _fetch(builder, builder.bitcast(builder.gep(array.data, [place]), cgutils.voidptr_t), for_writing=1)
    return context.get_dummy_value()


def fetch_ahead(address):
    """Let the cache line at an address be fetched for reading, without waiting for it. Any address will do; plain
    Python does nothing."""


@type_callable(fetch_ahead)
def _type_fetch_ahead(context):
    return lambda address: types.none


@lower_builtin(fetch_ahead, types.Integer)
def _lower_fetch_ahead(context, builder, signature, arguments):
    address = context.cast(builder, arguments[0], signature.args[0], types.int64)
    _fetch(builder, builder.inttoptr(address, cgutils.voidptr_t), for_writing=0)
    return context.get_dummy_value()


def _fetch(builder, line, for_writing):
    byte, flag, ir = cgutils.voidptr_t, cgutils.int32_t, cgutils.ir
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(function, [line, flag(for_writing), flag(3), flag(1)])  # keep it in all caches; data

"""Canonical form <-> term id: the tables behind inlined literals, and hash ids of single terms.

Other rooms use store/terms.py. This module stands apart so that the dictionaries can use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from wukongs.store.dtypes import HASH_SEED, INLINE_MARK, BoolArray, Int64Array, UInt8Array
from wukongs.store.hash_kernels import hash_id as _hash_id
from wukongs.store.hash_kernels import xxh64 as _xxh64
from wukongs.store.inline_kernels import decimal_ids as _decimal_ids
from wukongs.store.inline_kernels import integer_ids as _integer_ids
from wukongs.store.jit import wrapping
from wukongs.store.payload_kernels import (
    _MASK_62,
    _SHIFT,
    _UNMIX_1,
    _UNMIX_2,
    SUBTYPE_BITS,
    SUBTYPE_DATE_TIME_TENTHS,
    TAG_OTHER,
)
from wukongs.store.term_id_kernels import canonical_id as _canonical_id
from wukongs.store.term_id_kernels import canonical_ids as _canonical_ids
from wukongs.store.time_part_kernels import time_differences as _time_differences
from wukongs.store.time_part_kernels import time_parts as _time_parts
from wukongs.store.unpack_kernels import unpack as _unpack
from wukongs.store.value_kernels import OP_AT_LEAST, OP_AT_MOST, OP_EQUAL, OP_GREATER, OP_LESS, OP_NOT_EQUAL
from wukongs.store.value_kernels import compare_values as _compare_values
from wukongs.store.value_kernels import decimal_parts as _decimal_parts
from wukongs.store.value_kernels import numeric_values as _numeric_values

XSD_NAMESPACE = "http://www.w3.org/2001/XMLSchema#"
HASH_BITS = 62
"""Bits of the hash that an id has room for; tests use fewer, to meet collisions."""

_ANY = (0, -1)
# Row number = type code. Derived integer types (from row 8 on) with their least and greatest value; those of xsd:long
# and xsd:unsignedLong are what 55 bits can hold.
_DATATYPES: tuple[tuple[str, tuple[int, int]], ...] = (
    ("string", _ANY),
    ("double", _ANY),
    ("decimal", _ANY),
    ("integer", _ANY),
    ("float", _ANY),
    ("boolean", _ANY),
    ("dateTime", _ANY),
    ("date", _ANY),
    ("int", (-(2**31), 2**31 - 1)),
    ("long", (-(2**54), 2**54 - 1)),
    ("short", (-(2**15), 2**15 - 1)),
    ("byte", (-128, 127)),
    ("nonNegativeInteger", (0, 2**54 - 1)),
    ("positiveInteger", (1, 2**54 - 1)),
    ("nonPositiveInteger", (-(2**54), 0)),
    ("negativeInteger", (-(2**54), -1)),
    ("unsignedLong", (0, 2**54 - 1)),
    ("unsignedInt", (0, 2**32 - 1)),
    ("unsignedShort", (0, 2**16 - 1)),
    ("unsignedByte", (0, 255)),
)


def _datatype_tables() -> tuple[UInt8Array, Int64Array]:
    text = XSD_NAMESPACE
    rows = []
    for name, (least, greatest) in _DATATYPES:
        rows.append((len(text), len(text) + len(name), least, greatest))
        text += name
    return np.frombuffer(text.encode(), np.uint8).copy(), np.array(rows, np.int64)


DATATYPE_NAMES, DATATYPES = _datatype_tables()


def readonly_bytes(data: bytes | memoryview) -> UInt8Array:
    """View bytes as a read-only uint8[n], the one kind that the kernels are compiled for."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


@lru_cache(maxsize=8)
def hash_mask(hash_bits: int) -> np.uint64:
    """Return the mask of the top hash_bits bits of a 64-bit hash."""
    if not 1 <= hash_bits <= HASH_BITS:
        raise ValueError(f"hash_bits = {hash_bits}: expected 1 to {HASH_BITS}")
    return np.uint64(((1 << hash_bits) - 1) << (64 - hash_bits))


def xxh64(data: bytes, seed: int = HASH_SEED) -> int:
    """Return the XXH64 of some bytes."""
    with np.errstate(over="ignore"):
        return int(_xxh64(readonly_bytes(data), 0, len(data), np.uint64(seed)))


def hash_id(canonical: bytes, hash_bits: int = HASH_BITS, seed: int = HASH_SEED) -> int:
    """Return the hash id of a canonical form; a term that can be inlined has another id, see term_id."""
    with np.errstate(over="ignore"):
        return int(_hash_id(readonly_bytes(canonical), 0, len(canonical), np.uint64(seed), hash_mask(hash_bits)))


def term_id(canonical: str, hash_bits: int = HASH_BITS) -> int:
    """Return the id of a term in canonical form: inlined if it can be, its hash otherwise.

    The store may know a term under another id, if two terms have the same hash: TermRegistry.resolve tells."""
    data = readonly_bytes(canonical.encode())
    with wrapping():
        found = _canonical_id(data, 0, len(data), DATATYPE_NAMES, DATATYPES, np.uint64(HASH_SEED), hash_mask(hash_bits))
    return int(found)


def term_ids(canonical: Sequence[str], hash_bits: int = HASH_BITS) -> Int64Array:
    """Do the same as term_id, for many terms at once. int64[n]"""
    return text_ids([text.encode() for text in canonical], hash_bits)


def text_ids(canonical: Sequence[bytes], hash_bits: int = HASH_BITS) -> Int64Array:
    """Do the same as term_ids, for canonical forms in UTF-8."""
    offsets = np.zeros(len(canonical) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, canonical), np.int64, len(canonical)), out=offsets[1:])
    ids = np.empty(len(canonical), np.int64)
    data = readonly_bytes(b"".join(canonical))
    with np.errstate(over="ignore"):
        _canonical_ids(data, offsets, DATATYPE_NAMES, DATATYPES, np.uint64(HASH_SEED), hash_mask(hash_bits), ids)
    return ids


def is_inlined(ids: Int64Array) -> BoolArray:
    """Tell which ids are inlined literals; UNBOUND and other negative values are not."""
    inlined: BoolArray = (ids >= 0) & (ids & INLINE_MARK == INLINE_MARK)
    return inlined


def is_literal_id(ids: Int64Array) -> BoolArray:
    """Tell which inlined ids have a known type. Another process may send any number, and a kernel that unpacks it would
    read beyond its tables."""
    x = ids.astype(np.uint64) >> np.uint64(1)
    with np.errstate(over="ignore"):
        for factor in (_UNMIX_2, _UNMIX_1):
            x = ((x ^ (x >> _SHIFT)) * factor) & _MASK_62
    payload = (x ^ (x >> _SHIFT)).astype(np.int64)
    is_typed: BoolArray = (payload >> 60 != TAG_OTHER) | ((payload >> SUBTYPE_BITS) & 31 <= SUBTYPE_DATE_TIME_TENTHS)
    return is_typed


def unpack(ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
    """Return the canonical forms of inlined ids: text i is the UTF-8 text[offsets[i]:offsets[i + 1]]."""
    with np.errstate(over="ignore"):
        text, offsets = _unpack(ids, DATATYPE_NAMES, DATATYPES)
    return text, offsets


def numeric_values(ids: Int64Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
    """Return the kind (a KIND constant) and the value of each id that is an inlined literal.

    Numbers are the nearest float64 (xsd:float: the nearest float32 of that), booleans 0 and 1, times ms since 1970 in
    UTC. KIND_NONE and NaN where the dictionary has to be asked."""
    with np.errstate(over="ignore"):
        kinds, values = _numeric_values(ids)
    return kinds, values


OPS = {"=": OP_EQUAL, "!=": OP_NOT_EQUAL, "<": OP_LESS, ">": OP_GREATER, "<=": OP_AT_MOST, ">=": OP_AT_LEAST}


def compare_values(op: str, left: Int64Array, right: Int64Array, length: int) -> npt.NDArray[np.int8]:
    """Compare inlined numbers and date-times by = != < > <= or >=: 1 where it holds, 0 where it does not, -1 where
    float64s do not tell, and for all other ids. left, right : int64[length], or [1] for one id."""
    verdicts = np.empty(length, np.int8)
    if length:
        _compare_values(OPS[op], left, right, verdicts)
    return verdicts


@lru_cache(maxsize=4096)
def inlined_id(canonical: str) -> Int64Array | None:
    """Return the id of a term that is inlined, so that it is the same everywhere, as int64[1]; None for others."""
    found = term_id(canonical)
    return np.array([found], np.int64) if found & INLINE_MARK else None


def integer_ids(numbers: Int64Array) -> Int64Array:
    """Return the ids of xsd:integers from -2**59 to below 2**59; these are inlined, and the same everywhere."""
    with np.errstate(over="ignore"):
        ids: Int64Array = _integer_ids(numbers)
    return ids


def decimal_ids(numerators: Int64Array, scales: Int64Array) -> Int64Array:
    """Return the ids of the xsd:decimals numerators / 10 ** scales; -1 for those that are not inlined."""
    with np.errstate(over="ignore"):
        ids: Int64Array = _decimal_ids(numerators, scales)
    return ids


def decimal_parts(ids: Int64Array) -> tuple[Int64Array, npt.NDArray[np.int8]]:
    """Return inlined numbers exactly, as (numerator, scale): numerator / 10 ** scale; scale -1 for all other ids."""
    with np.errstate(over="ignore"):
        numerators, scales = _decimal_parts(ids)
    return numerators, scales


def time_parts(ids: Int64Array, part: int) -> Int64Array:
    """Return a part (a PART constant of store/time_part_kernels.py) of inlined dateTimes and dates, -1 for all other
    ids and where ids cannot tell."""
    with np.errstate(over="ignore"):
        found: Int64Array = _time_parts(ids, part)
    return found


def time_differences(left: Int64Array, right: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Return the microseconds from right to left in each row, and whether both ids are dateTimes, or both dates. A
    missing zone is UTC."""
    with np.errstate(over="ignore"):
        micros, is_known = _time_differences(left, right)
    return micros, is_known

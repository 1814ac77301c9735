"""The fields and arrays of packets, as their readers need them: of the right type and length, or a DataError that names
the packet, the field or array, and what is wrong with it. So nothing wrong comes near a kernel.

Tuples go as these arrays; several groups of tuples go together, each with a table of terms of its own:

sizes : in the fields, for each group the numbers of its rows, terms and clashing terms;
subjects, predicates, objects, graphs, timestamps : int64[all rows]; timestamps are left out where data has no times;
goes : bool[all rows], which tuples are retractions; left out where none is;
term_ids : int64[all terms]; term_offsets : int64[all terms + 1]; term_text : uint8[bytes];
clash_ids, clash_offsets, clash_text : the same of clashing terms; left out where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from wukongs.errors import DataError
from wukongs.live.pieces import check_ids
from wukongs.store.dtypes import Int64Array, UInt8Array
from wukongs.store.encoded import Encoded, TermTable, signs, signs_of
from wukongs.wire.packets import Array, Packet

_INT64_MAX = (1 << 63) - 1
_COLUMNS = ("subjects", "predicates", "objects", "graphs")
_NOTHING: Int64Array = np.empty(0, np.int64)


# --- fields -----------------------------------------------------------------------------------------------------------


def count_of(packet: Packet, name: str, limit: int = _INT64_MAX) -> int:
    """Return a field that has to be an integer from 0 to a limit. Raises DataError."""
    value = packet.fields.get(name)
    if type(value) is not int or not 0 <= value <= limit:
        raise DataError(f"{packet.kind}: {name} = {value!r}: expected an integer from 0 to {limit}")
    return value


def time_of(packet: Packet, name: str) -> int:
    """Return a field that has to be a time, in milliseconds. Raises DataError."""
    value = packet.fields.get(name)
    if type(value) is not int or abs(value) > _INT64_MAX:
        raise DataError(f"{packet.kind}: {name} = {value!r}: expected a time in milliseconds")
    return value


def text_of(packet: Packet, name: str) -> str:
    """Return a field that has to be a text. Raises DataError."""
    value = packet.fields.get(name)
    if not isinstance(value, str):
        raise DataError(f"{packet.kind}: {name} = {value!r}: expected a text")
    return value


def timeout_of(packet: Packet) -> float:
    """Return how long whoever asks waits, in seconds. Raises DataError."""
    value = packet.fields.get("timeout_s")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise DataError(f"{packet.kind}: timeout_s = {value!r}: expected a number of seconds")
    return float(value)


def numbers_of(packet: Packet, name: str, count: int) -> list[int]:
    """Return a field that has to be a list of so many integers. Raises DataError."""
    value = packet.fields.get(name)
    if not isinstance(value, list) or not all(type(one) is int and abs(one) <= _INT64_MAX for one in value):
        raise DataError(f"{packet.kind}: {name} = {str(value)[:60]}: expected a list of integers")
    if len(value) != count:
        raise DataError(f"{packet.kind}: {name}: expected {count} integers, found {len(value)}")
    return value


def objects_of(packet: Packet, name: str) -> list[dict[str, Any]]:
    """Return a field that has to be a list of objects. Raises DataError."""
    value = packet.fields.get(name)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise DataError(f"{packet.kind}: {name} = {str(value)[:60]}: expected a list of objects")
    return value


# --- arrays -----------------------------------------------------------------------------------------------------------


def column_of(packet: Packet, name: str, dtype: type[np.generic], length: int | None = None) -> Any:
    """Return an array of a type, and of a length if one is given. Raises DataError."""
    array = packet.arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != 1 or length not in (None, len(array)):
        found = "none" if array is None else f"{array.dtype}[{', '.join(map(str, array.shape))}]"
        expected = f"{np.dtype(dtype)}[{'n' if length is None else length}]"
        raise DataError(f"{packet.kind}: array {name}: expected {expected}, found {found}")
    return np.ascontiguousarray(array)


def ids_of(packet: Packet, name: str, length: int | None = None) -> Int64Array:
    """Return a column of term ids, all bound. Raises DataError."""
    ids: Int64Array = column_of(packet, name, np.int64, length)
    if len(ids) and ids.min() < 0:
        raise DataError(f"{packet.kind}: array {name}: {ids.min()} is no term id")
    return ids


# --- texts ------------------------------------------------------------------------------------------------------------


def texts_in(packet: Packet, count: int, prefix: str = "", is_trusted: bool = False) -> tuple[UInt8Array, Int64Array]:
    """Return so many texts, as UTF-8 one after the other, and where each begins. is_trusted: the texts were looked at
    before. Raises DataError."""
    text: UInt8Array = column_of(packet, f"{prefix}text", np.uint8)
    offsets: Int64Array = column_of(packet, f"{prefix}offsets", np.int64, count + 1)
    if offsets[0] != 0 or offsets[-1] != len(text) or (offsets[1:] < offsets[:-1]).any():
        raise DataError(f"{packet.kind}: {prefix}offsets do not divide {len(text)} bytes of text")
    if is_trusted:
        return text, offsets
    try:
        whole = str(text.data, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{packet.kind}: the {prefix}text is no UTF-8: {error}") from None
    if not whole.isascii() and ((text[offsets[:-1][offsets[:-1] < len(text)]] & 0xC0) == 0x80).any():
        raise DataError(f"{packet.kind}: a text begins within a character")
    return text, offsets


def term_arrays(terms: TermTable, prefix: str = "term_") -> dict[str, Array]:
    """Return the arrays of a table of terms: what terms_in takes."""
    return {f"{prefix}ids": terms.ids, f"{prefix}offsets": terms.offsets, f"{prefix}text": terms.text}


def terms_in(packet: Packet, prefix: str = "term_", is_trusted: bool = False) -> TermTable:
    """Return terms with their texts. is_trusted: as in texts_in. Raises DataError."""
    ids: Int64Array = column_of(packet, f"{prefix}ids", np.int64)
    text, offsets = texts_in(packet, len(ids), prefix, is_trusted)
    return TermTable(ids, offsets, text)


# --- tuples -----------------------------------------------------------------------------------------------------------


def tuples_packet(kind: str, groups: Sequence[Encoded], **fields: Any) -> Packet:
    """Return groups of tuples, all with times or all without, as a packet. Its arrays are its own."""
    if not groups:
        return Packet(kind, fields)
    arrays: dict[str, Array] = {name: np.concatenate([getattr(one, name) for one in groups]) for name in _COLUMNS}
    times = np.concatenate([one.timestamps for one in groups])
    if len(times):
        arrays["timestamps"] = times
    if any(len(one.goes) for one in groups):
        arrays["goes"] = np.concatenate([signs_of(one.goes, len(one)) for one in groups])
    arrays |= term_arrays(TermTable.joined([one.terms for one in groups]))
    sizes = [(len(one), len(one.terms), len(one.clashes)) for one in groups]
    if any(clash_count for _, _, clash_count in sizes):
        arrays |= term_arrays(TermTable.joined([one.clashes for one in groups]), "clash_")
    return Packet(kind, {"sizes": sizes, **fields}, arrays)


def tuples_in(packet: Packet, writes_views: bool = False, is_trusted: bool = False) -> list[Encoded]:
    """Return the groups of tuples of a packet. writes_views: whether graphs may be named that are views, by a node that
    says what rules infer; is_trusted: it was checked before it was written to this node's log. Raises DataError."""
    sizes = _sizes(packet)
    if not sizes:
        return []
    row_count = sum(rows for rows, _, _ in sizes)
    columns = [column_of(packet, name, np.int64, row_count) for name in _COLUMNS]
    has_times = "timestamps" in packet.arrays
    times: Int64Array = column_of(packet, "timestamps", np.int64, row_count) if has_times else _NOTHING
    goes = column_of(packet, "goes", np.bool_, row_count) if "goes" in packet.arrays else np.zeros(row_count, np.bool_)
    terms, clashes = terms_in(packet, is_trusted=is_trusted), TermTable.empty()
    if "clash_ids" in packet.arrays:
        clashes = terms_in(packet, "clash_", is_trusted)
    term_count, clash_count = sum(count for _, count, _ in sizes), sum(count for _, _, count in sizes)
    if (term_count, clash_count) != (len(terms), len(clashes)):
        raise DataError(
            f"{packet.kind}: sizes of {term_count} terms and {clash_count} clashes, found {len(terms)} and "
            f"{len(clashes)}"
        )
    found = []
    bounds = (pairwise(accumulate(counts, initial=0)) for counts in zip(*sizes, strict=True))
    for (lo, hi), of_terms, of_clashes in zip(*bounds, strict=True):
        subjects, predicates, objects, graphs = (column[lo:hi] for column in columns)
        texts = terms.part(*of_terms), clashes.part(*of_clashes)
        encoded = Encoded(subjects, predicates, objects, graphs, times[lo:hi], *texts, signs(goes[lo:hi]))
        if not is_trusted:
            check_ids(encoded, packet.kind, writes_views)
        found.append(encoded)
    return found


def _sizes(packet: Packet) -> list[Sequence[int]]:
    sizes = packet.fields.get("sizes", [])
    if not isinstance(sizes, list) or not all(_is_size(one) for one in sizes):
        raise DataError(
            f"{packet.kind}: sizes = {str(sizes)[:60]}: expected the numbers of rows, terms and clashes of each group"
        )
    return sizes


def _is_size(one: object) -> bool:
    if not isinstance(one, list | tuple) or len(one) != 3:
        return False
    return all(type(count) is int and count >= 0 for count in one)

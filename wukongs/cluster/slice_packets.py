"""Slice shares on their way between nodes: rows with the texts of their terms, and whole slices made of them.

A whole slice stands in the order of its arrival: timestamp, source partition, row of the partition. Tuples that its
stream batch carries stand last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.node_terms import NodeRegistry
from wukongs.cluster.slice_shares import ShareRows
from wukongs.errors import DataError
from wukongs.live.stream_state import Columns, WholeSlice
from wukongs.store.dtypes import BoolArray, Int32Array, Int64Array
from wukongs.store.encoded import TermTable
from wukongs.store.term_ids import is_inlined
from wukongs.store.term_registry import distinct_terms, term_table
from wukongs.wire.packet_columns import term_arrays
from wukongs.wire.packets import Packet

KIND = "slices"
_ROWS = ("subjects", "predicates", "objects", "timestamps", "offsets", "places")
_BYTES_PER_TERM = 24


@dataclass(frozen=True, slots=True, eq=False)
class SliceAnswer:
    """The answer of a node. Columns : int64[n]; partition: int32[n], by their places in `partitions`; numbers :
    int64[n], their stream batches; before: rows in stream batches before the first one asked for, and the last of these
    with one."""

    partitions: tuple[str, ...]
    partition: Int32Array
    subjects: Int64Array
    predicates: Int64Array
    objects: Int64Array
    timestamps: Int64Array
    offsets: Int64Array
    places: Int64Array
    numbers: Int64Array
    terms: TermTable
    before: tuple[int, int | None]


def slice_packet(stream: NodeStream, registry: NodeRegistry, first: int, last: int, shards: BoolArray) -> Packet:
    """Return the rows of stream batches first <= k <= last of these shards. Called with the lock held."""
    numbered = stream.shares.share(first, last, shards)
    parts = [part for _, part in numbered]
    counts = [len(part.subjects) for part in parts]
    partitions = sorted({part.partition for part in parts})
    columns: dict[str, Any] = {name: _joined(parts, name) for name in _ROWS if name != "offsets"}
    columns["offsets"] = np.repeat(np.array([part.first_offset for part in parts], np.int64), counts)
    places = [partitions.index(part.partition) for part in parts]
    columns["partition"] = np.repeat(np.array(places, np.int32), counts)
    if stream.state.carry_rule is not None:
        columns["numbers"] = np.repeat(np.array([number for number, _ in numbered], np.int64), counts)
    terms = term_table([columns[name] for name in _ROWS[:3]], registry.snapshot_reader().gather)
    count, latest = stream.shares.before(first, shards)
    fields = {"stream": stream.key, "first": first, "last": last, "partitions": partitions}
    return Packet(KIND, {**fields, "rows_before": count, "last_before": latest}, {**columns, **term_arrays(terms)})


def _joined(parts: Sequence[ShareRows], name: str) -> Int64Array:
    return np.concatenate([np.empty(0, np.int64), *(getattr(part, name) for part in parts)])


def read_answer(
    packet: Packet, stream: str, first: int, last: int, batch_ms: int, *, may_carry: bool = False
) -> SliceAnswer:
    """Check what another node has answered. may_carry: the stream batches may carry late tuples, so the answer has the
    number of each row's. Raises DataError."""

    def check(is_right: bool, expected: str) -> None:
        if not is_right:
            raise DataError(f"slices of stream {stream}, stream batches {first} to {last}: expected {expected}")

    fields, arrays = packet.fields, packet.arrays
    check(packet.kind == KIND, f"a packet '{KIND}', found '{packet.kind}'")
    asked = {"stream": stream, "first": first, "last": last}
    check(all(fields.get(name) == value for name, value in asked.items()), "an answer to this question")
    partitions, count, latest = (fields.get(name) for name in ("partitions", "rows_before", "last_before"))
    is_list = isinstance(partitions, list | tuple) and all(isinstance(name, str) for name in partitions)
    check(is_list, "a list of source partitions")
    assert partitions is not None, fields
    assert count is not None, fields
    check(type(count) is int and count >= 0, "a number of rows before")
    check(latest is None or type(latest) is int, "the last stream batch before, or null")
    names = (*_ROWS, *(("numbers",) if may_carry else ()))
    dtypes = {**dict.fromkeys((*names, "term_ids", "term_offsets"), np.int64), "partition": np.int32}
    for name, dtype in {**dtypes, "term_text": np.uint8}.items():
        check(
            name in arrays and arrays[name].dtype == dtype and arrays[name].ndim == 1, f"{name} as {dtype.__name__}[]"
        )
    found: dict[str, Any] = dict(arrays)
    terms = TermTable(found["term_ids"], found["term_offsets"], found["term_text"])
    row_count = len(found["subjects"])
    check(all(len(found[name]) == row_count for name in (*names, "partition")), "columns of one length")
    numbers = found["numbers"] if may_carry else -(-found["timestamps"] // batch_ms)
    check(_are_terms(terms), "distinct ascending term ids with their texts in UTF-8")
    if row_count:
        check(found["partition"].min() >= 0 and found["partition"].max() < len(partitions), "known partitions")
        is_inside = bool((found["timestamps"] <= numbers * batch_ms).all())
        check(is_inside and first <= numbers.min() and numbers.max() <= last, "timestamps of these stream batches")
        ids = distinct_terms([found[name] for name in _ROWS[:3]])
        is_sound = min(int(found[name].min()) for name in _ROWS[:3]) >= 0
        check(is_sound and np.array_equal(ids, terms.ids), "the texts of all terms, and no others")
    rows = {name: found[name] for name in (*_ROWS, "partition")}
    return SliceAnswer(tuple(partitions), numbers=numbers, terms=terms, before=(count, latest), **rows)


def _are_terms(terms: TermTable) -> bool:
    offsets = terms.offsets
    if not terms.is_divided or (terms.ids[1:] <= terms.ids[:-1]).any() or is_inlined(terms.ids).any():
        return False
    try:
        terms.text.tobytes().decode()
    except UnicodeDecodeError:
        return False
    inside = offsets[offsets < len(terms.text)]
    begins_anew = (terms.text[inside] & 0xC0) != 0x80  # no character lies in two texts
    return bool(begins_anew.all()) and (not len(terms) or bool(terms.ids[0] > 0))


def whole_slices(answers: Sequence[SliceAnswer], batch_ms: int, registry: NodeRegistry) -> dict[int, WholeSlice]:
    """Put the shares of all nodes together: the stream batches with rows, in order. Their terms are held from now on.

    Raises DataError (texts that cannot be of one cluster); then nothing is held."""
    names = sorted({name for answer in answers for name in answer.partitions})
    places = [np.array([names.index(name) for name in answer.partitions], np.int64) for answer in answers]
    partition = np.concatenate([_at(place, answer.partition) for place, answer in zip(places, answers, strict=True)])
    joined = {name: np.concatenate([getattr(answer, name) for answer in answers]) for name in (*_ROWS, "numbers")}
    is_carried = joined["timestamps"] <= (joined["numbers"] - 1) * batch_ms
    keys = joined["places"], joined["offsets"], partition, joined["timestamps"], is_carried, joined["numbers"]
    order = np.lexsort(keys)
    subjects, predicates, objects, times = (joined[name][order] for name in _ROWS[:4])
    numbers = joined["numbers"][order]
    terms = _united([answer.terms for answer in answers])
    found: dict[int, WholeSlice] = {}
    lo = 0
    is_one = len(numbers) > 0 and numbers[0] == numbers[-1]
    try:
        while lo < len(times):
            number = int(numbers[lo])
            hi = int(np.searchsorted(numbers, number, "right"))
            columns = subjects[lo:hi], predicates[lo:hi], objects[lo:hi], times[lo:hi]
            used = terms if is_one else terms.take(np.searchsorted(terms.ids, distinct_terms(columns[:3])))
            found[number] = _slice(columns, used, registry)
            lo = hi
    except DataError:
        for whole in found.values():
            registry.release(whole.transient_ids)
        raise
    return found


def _at(places: Int64Array, numbers: Int32Array) -> Int64Array:
    return places[numbers] if len(numbers) else np.empty(0, np.int64)


def _slice(columns: Columns, used: TermTable, registry: NodeRegistry) -> WholeSlice:
    taken = registry.borrow(used)
    size = _BYTES_PER_TERM * len(taken) + len(used.text) * len(taken) // max(1, len(used))
    return WholeSlice(columns, taken, size)


def _united(tables: Sequence[TermTable]) -> TermTable:
    """Return each term once, in order of ids; of an id, the first text."""
    if len(tables) == 1:
        return tables[0]
    whole = TermTable.joined(tables)
    order = np.argsort(whole.ids, kind="stable")
    is_first = np.ones(len(order), np.bool_)
    np.not_equal(whole.ids[order[1:]], whole.ids[order[:-1]], out=is_first[1:])
    return whole.take(order[is_first])

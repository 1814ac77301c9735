"""The reads that nodes ask of each other, and their answers: packets to values and back. Everything received is
checked.

A node that asks may lie, and so may one that answers. A wrong packet is refused before it comes near a kernel. The side
that answers raises DataError; the side that asks raises NodeUnavailable, which names the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from wukongs.errors import DataError, NodeUnavailable
from wukongs.query.plans import plan_layout as layout
from wukongs.store.dtypes import NO_MATCH, UNBOUND, BoolArray, Int64Array
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packet_columns import column_of, count_of, ids_of, timeout_of
from wukongs.wire.packets import Array, Packet

RUN, NODES, GRAPHS, TRIPLES = "read.run", "read.nodes", "read.graphs", "read.triples"
TEXTS, RESOLVE = "read.texts", "read.resolve"
Read = TypeVar("Read")
ROWS_PER_ANSWER = 1 << 20
"""A longer answer comes in so many rows at a time."""
STEPS_MAX = 64
PARTS_MAX = 1 << 16
COLUMNS_MAX = 1024
OPERANDS = (
    (layout.KEY_KIND, layout.KEY),
    (layout.PREDICATE_KIND, layout.PREDICATE),
    (layout.VALUE_KIND, layout.VALUE),
    (layout.GRAPH_KIND, layout.GRAPH),
)


@dataclass(frozen=True, slots=True, eq=False)
class StepsRun:
    """Steps to run from rows, each looked up in the stored graph of one node at an SN.

    steps : int64[n, STEP_WIDTH], whose PARTS_FROM and PARTS_TO point at stored : int64[m, 2], (graph or ALL_NAMED, name
    or FROM_DIRECTORY); columns : of the rows, int64[length] each; shards : bool[SHARD_COUNT], those that the node is
    asked to answer for; split : int64[k], see Assignment; skip: leave out so many rows of the answer in its order.
    """

    sn: int
    steps: Int64Array
    stored: Int64Array
    columns: tuple[Int64Array, ...]
    length: int
    shards: BoolArray
    split: Int64Array
    rows_max: int
    timeout_s: float
    rows_wanted: int | None = None
    skip: int = 0

    @property
    def width(self) -> int:
        """The columns of the answer."""
        return len(self.columns) + sum(map(new_columns, self.steps))

    def packet(self) -> Packet:
        fields = {
            "sn": self.sn,
            "columns": len(self.columns),
            "length": self.length,
            "rows_max": self.rows_max,
            "timeout_s": self.timeout_s,
            "rows_wanted": self.rows_wanted,
            "skip": self.skip,
        }
        arrays: dict[str, Array] = {
            "steps": self.steps.reshape(-1),
            "stored": self.stored.reshape(-1),
            "shards": self.shards,
            "split": self.split,
            **{f"c{at}": column for at, column in enumerate(self.columns)},
        }
        return Packet(RUN, fields, arrays)

    @staticmethod
    def of(packet: Packet) -> StepsRun:
        """Raises DataError: anything that a kernel could not be given."""
        steps = _table(packet, "steps", layout.STEP_WIDTH, 1, STEPS_MAX)
        stored = _table(packet, "stored", 2, 0, PARTS_MAX)
        length = count_of(packet, "length")
        n_columns = count_of(packet, "columns", COLUMNS_MAX)
        columns = tuple(ids_of(packet, f"c{at}", length) for at in range(n_columns))
        _check_steps(steps, len(stored), n_columns)
        wanted = None if packet.fields.get("rows_wanted") is None else count_of(packet, "rows_wanted")
        return StepsRun(
            count_of(packet, "sn"),
            steps,
            stored,
            columns,
            length,
            shards_in(packet),
            column_of(packet, "split", np.int64),
            count_of(packet, "rows_max"),
            timeout_of(packet),
            wanted,
            count_of(packet, "skip"),
        )


def new_columns(step: Int64Array) -> int:
    """Return how many columns a step binds."""
    return int((step[[kind for kind, _ in OPERANDS]] == layout.NEW).sum())


def _check_steps(steps: Int64Array, parts: int, columns: int) -> None:
    """Raises DataError for a step that looks at columns or parts that are not there."""
    for number, step in enumerate(steps):
        bound = columns
        for kind_at, at in OPERANDS:
            kind, reference = int(step[kind_at]), int(step[at])
            is_graph = kind_at == layout.GRAPH_KIND
            right = {
                layout.CONSTANT: reference >= 0 and not is_graph,
                layout.BOUND: 0 <= reference < bound,
                layout.NEW: reference == columns,
                layout.SAME: bound <= reference < columns,
                layout.ANY: is_graph,
            }.get(kind, False)
            if not right:
                raise DataError(f"step {number}: operand {kind_at} is of kind {kind} with the reference {reference}")
            columns += kind == layout.NEW
        first, last = int(step[layout.PARTS_FROM]), int(step[layout.PARTS_TO])
        if not 0 <= first <= last <= parts or step[layout.DIRECTION] not in (0, 1):
            raise DataError(f"step {number}: parts {first} to {last} of {parts}, direction {step[layout.DIRECTION]}")
        if columns > COLUMNS_MAX:
            raise DataError(f"step {number}: more than {COLUMNS_MAX} columns")


def checked(node: int, answer: Packet, read: Callable[[Packet], Read]) -> Read:
    """Read a node's answer. Raises NodeUnavailable if it is none to what was asked."""
    try:
        return read(answer)
    except DataError as error:
        raise wrong_answer(node, str(error)) from error


def wrong_answer(node: int, what: str) -> NodeUnavailable:
    return NodeUnavailable(
        f"node {node} does not answer what it was asked: {what}. Check that all nodes run the same version"
    )


# --- arrays of reads --------------------------------------------------------------------------------------------------


def shards_in(packet: Packet) -> BoolArray:
    """Return for which shards a node is asked. Raises DataError."""
    shards: BoolArray = column_of(packet, "shards", np.bool_, SHARD_COUNT)
    return shards


def parts_in(packet: Packet) -> Int64Array:
    """Return (graph or ALL_NAMED, name or FROM_DIRECTORY) of parts of the stored graph. Raises DataError."""
    return _table(packet, "stored", 2, 0, PARTS_MAX)


def _table(packet: Packet, name: str, width: int, rows_min: int, rows_max: int) -> Int64Array:
    flat: Int64Array = column_of(packet, name, np.int64)
    if len(flat) % width or not rows_min * width <= len(flat) <= rows_max * width:
        raise DataError(
            f"{packet.kind}: array {name}: {len(flat)} numbers for {rows_min} to {rows_max} rows of {width}"
        )
    return flat.reshape(-1, width)


def known_ids(packet: Packet, count: int) -> tuple[Int64Array, BoolArray]:
    """Return what each text that was asked for is known by: an id, UNBOUND if it is unknown, NO_MATCH if another text
    has its id; and whether it is for ever. Raises DataError."""
    ids: Int64Array = column_of(packet, "ids", np.int64, count)
    if ((ids < 0) & (ids != UNBOUND) & (ids != NO_MATCH)).any():
        raise DataError(f"{packet.kind}: {ids.min()} is no term id")
    return ids, column_of(packet, "lasting", np.bool_, count)


# --- tables of one step -----------------------------------------------------------------------------------------------


def one_step(direction: int, predicate: int | None, is_scan: bool, parts: int) -> Int64Array:
    """Return the step that finds the triples of keys (its first column), or all there are: int64[1, STEP_WIDTH].

    predicate: None for any, then it is the next column; the value and the graph are the last two."""
    step = np.zeros((1, layout.STEP_WIDTH), np.int64)
    row = step[0]
    row[layout.DIRECTION] = direction
    row[layout.KEY_KIND] = layout.NEW if is_scan else layout.BOUND
    columns = 1
    if predicate is None:
        row[layout.PREDICATE_KIND], row[layout.PREDICATE] = layout.NEW, columns
        columns += 1
    else:
        row[layout.PREDICATE_KIND], row[layout.PREDICATE] = layout.CONSTANT, predicate
    row[layout.VALUE_KIND], row[layout.VALUE] = layout.NEW, columns
    row[layout.GRAPH_KIND], row[layout.GRAPH] = layout.NEW, columns + 1
    row[layout.PARTS_TO] = parts
    return step


def columns_packet(kind: str, columns: Sequence[Int64Array], **fields: Any) -> Packet:
    """Return columns, numbered, as a packet."""
    return Packet(kind, fields, {f"c{at}": column for at, column in enumerate(columns)})

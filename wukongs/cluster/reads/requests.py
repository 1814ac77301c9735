"""The reads that nodes ask of each other, and their answers: packets to values and back. Everything received is
checked.

A node that asks may lie, and so may one that answers. A wrong packet is refused before it comes near a kernel. The side
that answers raises DataError; the side that asks raises NodeUnavailable, which names the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wukongs.errors import DataError, NodeUnavailable
from wukongs.query.plans import plan_layout as layout
from wukongs.store.dtypes import NO_MATCH, UNBOUND, BoolArray, Int64Array
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packet_columns import column_of
from wukongs.wire.packets import Array, Packet

RUN, NODES, GRAPHS, TRIPLES = "read.run", "read.nodes", "read.graphs", "read.triples"
TEXTS, RESOLVE, CHANGED = "read.texts", "read.resolve", "read.changed"
Read = TypeVar("Read")
CHANGED_MAX = 1 << 20
"""The triples and tombstones of a change that a node gives, at most."""
ROWS_PER_ANSWER = 1 << 20
"""A longer answer comes in so many rows at a time."""
STEPS_MAX = 64
PARTS_MAX = 1 << 16
COLUMNS_MAX = 1024
SHARD_WORDS = SHARD_COUNT // 64
HEAD = 11
"""Numbers before the plan: SN, rows at most, microseconds, rows wanted or -1, rows to skip, whether with texts, rows,
numbers of the plan, steps, graphs, columns."""
PLANS_KEPT, NUMBERS_KEPT = 256, 1024
"""So many plans of at most so many numbers are kept, checked and laid out."""
OPERANDS = (
    (layout.KEY_KIND, layout.KEY),
    (layout.PREDICATE_KIND, layout.PREDICATE),
    (layout.VALUE_KIND, layout.VALUE),
    (layout.GRAPH_KIND, layout.GRAPH),
)
KINDS = [kind for kind, _ in OPERANDS]


Operand = tuple[int, int]
"""(kind, reference), as a step has them."""


class Segment(NamedTuple):
    """Some steps that follow each other, and are run by one call of the kernel. before: rows are kept if the node
    answers for this operand; after: so are matches of the last step (None: all are), by its own operands."""

    first: int
    last: int
    before: Operand | None
    after: bool


@dataclass(eq=False)
class SharePlan:
    """Steps that can be run, and for what. steps : int64[n, STEP_WIDTH], whose PARTS_FROM and PARTS_TO point at
    stored : int64[m, 2], (graph or ALL_NAMED, name or FROM_DIRECTORY); shards : bool[SHARD_COUNT], those that the node
    is asked to answer for; split : int64[k], see Assignment; bound: columns that the rows have at first.

    laid_out: what was laid out for which batches last; see share_run."""

    steps: Int64Array
    stored: Int64Array
    shards: BoolArray
    split: Int64Array
    bound: int
    laid_out: tuple[object, Any] = (None, None)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(_segments(self.steps, self.split))

    @cached_property
    def width(self) -> int:
        """The columns of the answer."""
        return self.bound + new_columns(self.steps)

    @cached_property
    def numbers(self) -> Int64Array:
        """All of it as one array."""
        shards = np.packbits(self.shards).view(np.int64)
        return np.concatenate((shards, self.steps.reshape(-1), self.stored.reshape(-1), self.split))

    @staticmethod
    def of(numbers: bytes, n_steps: int, n_stored: int, bound: int) -> SharePlan:
        """Raises DataError: anything that a kernel could not be given."""
        flat = np.frombuffer(numbers, np.int64).copy()
        at_stored = SHARD_WORDS + n_steps * layout.STEP_WIDTH
        at_split = at_stored + 2 * n_stored
        shards = np.unpackbits(flat[:SHARD_WORDS].view(np.uint8)).astype(np.bool_)
        steps = flat[SHARD_WORDS:at_stored].reshape(-1, layout.STEP_WIDTH)
        _check_steps(steps, n_stored, bound)
        return SharePlan(steps, flat[at_stored:at_split].reshape(-1, 2), shards, flat[at_split:], bound)


_known_plan = lru_cache(maxsize=PLANS_KEPT)(SharePlan.of)


@dataclass(frozen=True, slots=True, eq=False)
class StepsRun:
    """Steps to run from rows, each looked up in the stored graph of one node at an SN.

    columns : of the rows, int64[length] each; skip: leave out so many rows of the answer in its order; with_texts: a
    short answer comes with the texts of what is found.
    """

    sn: int
    plan: SharePlan
    columns: tuple[Int64Array, ...]
    length: int
    rows_max: int
    timeout_s: float
    rows_wanted: int | None = None
    skip: int = 0
    with_texts: bool = False

    def packet(self) -> Packet:
        plan, wanted = self.plan, -1 if self.rows_wanted is None else self.rows_wanted
        numbers = plan.numbers
        limits = self.rows_max, int(self.timeout_s * 1e6), wanted, self.skip, int(self.with_texts)
        head = (self.sn, *limits, self.length, len(numbers), len(plan.steps), len(plan.stored), plan.bound)
        run = np.concatenate((np.array(head, np.int64), numbers, *self.columns))
        return Packet(RUN, {"length": self.length}, {"run": run})

    @staticmethod
    def of(packet: Packet) -> StepsRun:
        """Raises DataError: anything that a kernel could not be given."""
        run: Int64Array = column_of(packet, "run", np.int64)
        if len(run) < HEAD:
            raise DataError(f"{packet.kind}: {len(run)} numbers, at least {HEAD} were expected")
        head = run[:HEAD].tolist()
        sn, rows_max, timeout_us, wanted, skip, with_texts, length, size, n_steps, n_stored, bound = head
        fixed = SHARD_WORDS + n_steps * layout.STEP_WIDTH + 2 * n_stored
        if min(head) < -1 or head.count(-1) > (wanted == -1):
            raise DataError(f"{packet.kind}: {min(head)} where a count was expected")
        if not 0 < n_steps <= STEPS_MAX or n_stored > PARTS_MAX or bound > COLUMNS_MAX or timeout_us > 1e15:
            raise DataError(f"{packet.kind}: {n_steps} steps, {n_stored} graphs, {bound} columns, {timeout_us} us")
        if not bound and length > 1:
            raise DataError(f"{packet.kind}: {length} rows without columns")
        if size < fixed or len(run) != HEAD + size + bound * length:
            raise DataError(f"{packet.kind}: {len(run)} numbers for {n_steps} steps and {bound} columns of {length}")
        start = HEAD + size
        if bound and length and run[start:].min() < 0:
            raise DataError(f"{packet.kind}: {run[start:].min()} is no term id")
        make = _known_plan if size <= NUMBERS_KEPT else SharePlan.of
        plan = make(run[HEAD:start].tobytes(), n_steps, n_stored, bound)
        columns = tuple(run[start + at * length : start + (at + 1) * length] for at in range(bound))
        timeout_s = timeout_us / 1e6
        limits = rows_max, timeout_s, None if wanted < 0 else wanted, skip
        return StepsRun(sn, plan, columns, length, *limits, with_texts > 0)


def new_columns(steps: Int64Array) -> int:
    """Return how many columns a step binds, or several."""
    return int(np.count_nonzero(steps[..., KINDS] == layout.NEW))


def _segments(steps: Int64Array, split: Int64Array) -> Iterator[Segment]:
    """Cut steps where rows of which the node does not answer for all have to be left out. It answers for a match of a
    step by the end at which the triple is found, or by the subject if the predicate is split."""
    answered = set[Operand]()
    first, before = 0, None
    for at, step in enumerate(steps):
        by_value = step[layout.DIRECTION] == 1 and len(split) > 0
        is_constant = step[layout.PREDICATE_KIND] == layout.CONSTANT
        deciding = int(step[layout.KEY_KIND]), int(step[layout.KEY])
        if by_value and is_constant and bool((split == step[layout.PREDICATE]).any()):
            deciding = int(step[layout.VALUE_KIND]), int(step[layout.VALUE])
        if (by_value and not is_constant) or deciding[0] in (layout.NEW, layout.SAME):
            yield Segment(first, at + 1, before, True)
            first, before = at + 1, None
            if not by_value or is_constant:
                answered.add((layout.BOUND, deciding[1]))
        elif deciding not in answered:
            if at > first:
                yield Segment(first, at, before, False)
            first, before = at, deciding
            answered.add(deciding)
    if first < len(steps):
        yield Segment(first, len(steps), before, False)


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


def rows_packet(
    columns: Sequence[Int64Array], rows: int, more: bool, counts: Sequence[int], texts: Mapping[str, Array]
) -> Packet:
    """Return the answer to a run; columns: int64[rows] each; more: there are others; counts: rows after each step;
    texts: as the answer to TEXTS has them, or none."""
    told = np.concatenate(columns) if columns else np.empty(0, np.int64)
    return Packet(RUN, {"rows": rows, "more": more, "counts": counts}, {"columns": told, **texts})


def columns_packet(kind: str, columns: Sequence[Int64Array], **fields: Any) -> Packet:
    """Return columns, numbered, as a packet."""
    return Packet(kind, fields, {f"c{at}": column for at, column in enumerate(columns)})

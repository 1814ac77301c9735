"""A plan as the kernel takes it, and the values that its tables depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wukongs.csparql.algebra import GraphRef
from wukongs.csparql.terms import Variable
from wukongs.store.dtypes import Int64Array


class SourceShape(NamedTuple):
    """All that the tables of a plan take from a source. parts: (first descriptor, number of batches, graph, name)."""

    united: bool
    hiding: bool
    parts: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """steps : int64[n, STEP_WIDTH], without parts; graphs: where each step looks; variables: the columns.

    is_void: a constant is a term that no data can have, so there is no match.
    laid_out: the last outcome of with_parts, with the shapes of its dataset; none yet, or one. cut: the same, of what
    a Completion has made of the plan.
    """

    steps: Int64Array
    graphs: tuple[GraphRef, ...]
    variables: tuple[Variable, ...]
    is_void: bool
    laid_out: list[tuple[tuple[SourceShape, ...], Int64Array, Int64Array]] = field(
        default_factory=list, repr=False, compare=False
    )
    cut: list[tuple[object, Any]] = field(default_factory=list, repr=False, compare=False)

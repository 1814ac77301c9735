"""Stepwise merges with any fuel against building the union at once: every array is equal."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.property.test_batch import SHAPES, random_quads
from tests.quads import UNLISTED_SIZES, Quad, assert_same_batch, batch_of, columns, quads_of, unlisted_up_to
from wukongs.store import merge as merge_module
from wukongs.store.batch import Batch, build_batch
from wukongs.store.fuel import Fuelled
from wukongs.store.merge import Merge, listed, listed_in_steps, merge_batches, merge_runs

FUELS = st.lists(st.sampled_from([1, 2, 3, 10, 100, 10_000]), min_size=1, max_size=6)


def merged(a: Batch, b: Batch, fuels: list[int]) -> Batch:
    """Merge in steps of these fuels, over and over."""
    merge = Merge(a, b)
    step = 0
    while merge.result is None:
        fuel = fuels[step % len(fuels)]
        left = merge.work(fuel)
        assert 0 <= left <= fuel
        step += 1
        assert step <= 40 + 8 * (len(a) + len(b)), "a merge goes on for ever"
    return merge.result


@given(SHAPES, SHAPES, FUELS, st.booleans(), st.sampled_from(UNLISTED_SIZES))
@fuzzed(60)
def test_a_stepwise_merge_is_the_batch_of_the_union(
    one: list[Quad], other: list[Quad], fuels: list[int], timed: bool, unlisted: tuple[int, int]
) -> None:
    with unlisted_up_to(*unlisted):
        check_merge(one, other, fuels, timed)


@pytest.mark.nojit
def test_small_merges() -> None:
    for fuels, unlisted in zip(([1], [3], [1000]), UNLISTED_SIZES, strict=True):
        with unlisted_up_to(*unlisted):
            check_merge(random_quads(1, 40, 6, 3, 0.3, 0.3), random_quads(2, 50, 9, 3, 0.3, 0.3), fuels, True)
    check_merge([], [], [1], False)
    check_merge(random_quads(1, 10, 6, 3, 0.0, 0.0), [], [2], False)


def check_merge(one: list[Quad], other: list[Quad], fuels: list[int], timed: bool) -> None:
    rng = random.Random(len(one))
    times = [rng.randrange(-99, 99) for _ in [*one, *other]] if timed else []
    a, b = batch_of(one, times[: len(one)]), batch_of(other, times[len(one) :])
    both = batch_of([*one, *other], times)
    assert_same_batch(merged(a, b, fuels), both)
    assert_same_batch(merge_batches(a, b), both)
    assert quads_of(a) == sorted(set(one)), "the inputs of a merge stay as they are"


@given(SHAPES, FUELS)
@fuzzed(30)
def test_a_batch_that_listed_no_vertices_gets_the_same_index(quads: list[Quad], fuels: list[int]) -> None:
    with unlisted_up_to(2**30, 2**30):
        unlisted = batch_of(quads)
    steps = Fuelled(partial(listed_in_steps, unlisted))
    while steps.result is None:
        fuel = fuels[0]
        assert 0 <= steps.work(fuel) <= fuel
    with unlisted_up_to(-1, -1):
        assert_same_batch(steps.result, batch_of(quads))
    for rows_merged in (0, 2**30):
        with unlisted_up_to(-1, -1), patch.object(merge_module, "KEYS_MERGED_ROWS_MAX", rows_merged):
            assert_same_batch(listed(unlisted), batch_of(quads))


@given(SHAPES, SHAPES, SHAPES)
@fuzzed(30)
def test_runs_are_merged_to_the_batch_of_all_of_them(one: list[Quad], other: list[Quad], third: list[Quad]) -> None:
    with unlisted_up_to(-1, -1):
        runs = [build_batch(*columns(quads), lists_vertices=False) for quads in (one, other, third)]
        assert not any(len(run) and run.lists_vertices for run in runs)
        assert_same_batch(listed(merge_runs(merge_runs(runs[0], runs[1]), runs[2])), batch_of([*one, *other, *third]))


WRITTEN = {"merge_directories": (0, 1), "merge_side": (6, 1), "merge_vertices": (6, 1), "fill_fences": (2, 4)}
"""Kernel -> where its state counts what it has written, and how many of these one unit of fuel may pay for."""


@given(SHAPES, SHAPES)
@fuzzed(20)
def test_the_work_of_a_step_is_bounded_by_its_fuel(one: list[Quad], other: list[Quad]) -> None:
    """No part of a merge writes more than its fuel, and together they write all there is: nothing is done besides."""
    written = dict.fromkeys(WRITTEN, 0)

    def watched(name: str) -> Callable[..., int]:
        kernel = getattr(merge_module, name)
        counter, share = WRITTEN[name]

        def call(*arguments: Any) -> int:
            state, fuel = arguments[-2:]
            before = int(state[counter])
            left = int(kernel(*arguments))
            assert 0 <= int(state[counter]) - before <= share * (fuel - left) <= share * 5
            written[name] += int(state[counter]) - before
            return left

        return call

    with ExitStack() as stack:
        stack.enter_context(unlisted_up_to(-1, -1))
        for name in WRITTEN:
            stack.enter_context(patch.object(merge_module, name, watched(name)))
        merge = Merge(batch_of(one), batch_of(other))
        while merge.result is None:
            merge.work(5)
    batch = merge.result
    assert written["merge_directories"] == len(batch.graphs)
    assert written["merge_side"] == 2 * len(batch)
    assert written["merge_vertices"] == len(batch.vertex_index.codes)
    assert written["fill_fences"] == sum(map(len, (batch.out.fences, batch.in_.fences, batch.vertex_index.fence)))


def test_directories_that_need_wide_codes_only_together() -> None:
    """Two directories of 16-bit codes make one of 32-bit codes."""
    half = 2**14 + 50
    quads = [(0, 2 * i, 2 * i + 6, 8) for i in range(2 * half)]
    a, b = batch_of(quads[:half]), batch_of(quads[half:])
    assert a.vertex_index.codes.dtype == b.vertex_index.codes.dtype == np.uint16
    result = merged(a, b, [1000])
    assert result.vertex_index.codes.dtype == np.int32
    assert_same_batch(result, batch_of(quads))

"""Batches against plain sets, and the kernels that build them against their Python functions and their oracles."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles import batch_kernels as oracle
from tests.quads import UNLISTED_SIZES, Quad, batch_of, columns, filtered_of, plain, quads_of, spread, unlisted_up_to
from wukongs.bench.kernels.loop_kernels import count_passing
from wukongs.store import batch_kernels as kernels
from wukongs.store import layout
from wukongs.store.batch import Batch, is_listed
from wukongs.store.batch import batch_of as restored
from wukongs.store.dtypes import Int64Array
from wukongs.store.held_kernels import knows_subject, mark_held
from wukongs.store.key_filter_kernels import add_keys
from wukongs.store.lookup_kernels import (
    code_at,
    code_range,
    count_degree,
    count_distinct_keys,
    count_edges,
    directory_row,
    find_key,
    is_unlisted,
    key_range,
    side_keys,
    side_values,
    value_range,
)
from wukongs.store.sort_kernels import sort_ranges


def random_quads(seed: int, size: int, terms: int, directory: int, skew: float, marked: float) -> list[Quad]:
    """Quads over a few or many terms; skew: share of those at one subject; marked: share of inlined literals."""
    rng = random.Random(seed)
    graphs = [0, spread(900), spread(901)]
    predicates = [spread(1000 + i) for i in range(directory)]
    quads = []
    for _ in range(size):
        subject = spread(1) if rng.random() < skew else spread(rng.randrange(terms))
        object_ = spread(rng.randrange(terms), 1 if rng.random() < marked else 0)
        quads.append((rng.choice(graphs), subject, rng.choice(predicates), object_))
    return quads


SHAPES = st.builds(
    random_quads,
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0, 1, 2, 7, 40, 200, 900]),
    terms=st.sampled_from([1, 3, 20, 60, 1000]),
    directory=st.sampled_from([1, 2, 5, 30]),
    skew=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    marked=st.sampled_from([0.0, 0.3, 1.0]),
)


def check_batch(batch: Batch, quads: set[Quad]) -> None:
    """Compare all that a batch can be asked with a set of quads."""
    assert quads_of(batch) == sorted(quads)
    assert len(batch) == len(quads)
    directory = sorted({(p, g) for g, _, p, _ in quads})
    assert list(zip(batch.predicates.tolist(), batch.graphs.tolist(), strict=True)) == directory
    row_of = {pair: row for row, pair in enumerate(directory)}
    # One pass over the quads into plain dictionaries: all there is to know.
    adjacent: dict[tuple[int, int, int], list[int]] = {}
    codes: dict[int, set[int]] = {}
    for g, s, p, o in quads:
        row = row_of[p, g]
        for direction, key, value in ((0, s, o), (1, o, s)):
            adjacent.setdefault((direction, row, key), []).append(value)
            if direction == 0 or key & 1 == 0:
                codes.setdefault(key, set()).add(2 * row + direction)
    descriptor = batch.descriptor
    for direction in (0, 1):
        keys, values = side_keys(descriptor, direction), side_values(descriptor, direction, len(batch))
        for row in range(len(directory)):
            lo, hi = key_range(descriptor, direction, row)
            assert keys[lo:hi].tolist() == sorted(k for d, r, k in adjacent if (d, r) == (direction, row))
        for (d, row, key), found in adjacent.items():
            if d == direction:
                position = find_key(descriptor, direction, row, key)
                assert keys[position] == key
                lo, hi = value_range(descriptor, direction, position)
                assert values[lo:hi].tolist() == sorted(found)
    assert batch.lists_vertices == (not quads or is_listed(len(directory), len(quads)))
    for vertex, expected in codes.items():
        lo, hi = code_range(descriptor, vertex)
        assert [code_at(descriptor, i) for i in range(lo, hi)] == (sorted(expected) if batch.lists_vertices else [])
        assert is_unlisted(descriptor, vertex) == (vertex & 1 == 1 or not batch.lists_vertices)
    assert batch.vertex_index.vertices.tolist() == (sorted(codes) if batch.lists_vertices else [])
    assert batch.vertex_count() == pytest.approx(len(codes), rel=0.1 if len(codes) > 4000 else 0)


def check_absent(batch: Batch, quads: set[Quad]) -> None:
    """Ask for what is not there, next to what is, and at the ends of the id range."""
    near = [key + d for _, s, _, o in list(quads)[:40] for key in (s, o) for d in (-1, 1) if key + d >= 0]
    known = {direction: {(r, p): set() for r, p in quads_rows(batch)} for direction in (0, 1)}
    for g, s, p, o in quads:
        known[0][g, p].add(s)
        known[1][g, p].add(o)
    for key in [0, 1, 2**63 - 1, 2**62, *near]:
        for g, p in known[0]:
            row = directory_row(batch.descriptor, p, g)
            for direction in (0, 1):
                assert (find_key(batch.descriptor, direction, row, key) >= 0) == (key in known[direction][g, p])
        listed = key in set(batch.vertex_index.vertices.tolist())
        lo, hi = code_range(batch.descriptor, key)
        assert (hi > lo) == listed
    assert directory_row(batch.descriptor, spread(5000), 0) == -1


def quads_rows(batch: Batch) -> list[tuple[int, int]]:
    return list(zip(batch.graphs.tolist(), batch.predicates.tolist(), strict=True))


@given(SHAPES, st.sampled_from(UNLISTED_SIZES))
@fuzzed(60)
def test_a_batch_is_the_set_of_its_quads(quads: list[Quad], unlisted: tuple[int, int]) -> None:
    with unlisted_up_to(*unlisted):
        batch = batch_of(quads)
        check_batch(batch, set(quads))
        check_absent(batch, set(quads))


@pytest.mark.nojit
def test_a_small_batch_is_the_set_of_its_quads() -> None:
    for quads in ([], random_quads(1, 60, 40, 2, 0.2, 0.3), random_quads(2, 70, 200, 1, 0.0, 0.0)):
        batch = batch_of(quads)
        check_batch(batch, set(quads))
        check_absent(batch, set(quads))


@pytest.mark.parametrize("size", [31, 32, 33, 5000])
def test_ranges_with_and_without_a_fence(size: int) -> None:
    """One predicate with `size` subjects of one object: keys without a fence, then with larger and larger ones."""
    quads = {(0, spread(i), spread(-5), spread(3)) for i in range(size)}
    batch = batch_of(quads)
    assert (batch.out.fence_shifts[0] != layout.NO_FENCE) == (size >= 32)
    assert batch.in_.fence_shifts[0] == layout.NO_FENCE
    check_batch(batch, quads)
    check_absent(batch, quads)


def test_one_key_with_thousands_of_values() -> None:
    quads = {(0, spread(i), spread(-5), spread(3)) for i in range(6000)}
    quads |= {(0, spread(3), spread(-5), spread(i)) for i in range(3000)}
    batch = batch_of([*quads, *list(quads)[:500]])
    check_batch(batch, quads)


def test_keys_that_crowd_in_one_bucket() -> None:
    """Ids are uniform in practice; a batch must be right, if slow, where they are not."""
    quads = {(0, 2 * i, spread(-5), (1 << 62) + 2 * (i % 7)) for i in range(3000)}
    batch = batch_of(quads)
    check_batch(batch, quads)
    check_absent(batch, quads)


def test_the_newest_time_of_a_repeat_stays() -> None:
    quads = random_quads(3, 400, 6, 2, 0.3, 0.2)
    times = [random.Random(i).randrange(-1000, 1000) for i in range(len(quads))]
    newest = {q: max(t for r, t in zip(quads, times, strict=True) if r == q) for q in quads}
    batch = batch_of(quads, times)
    in_order = zip(*(part.tolist() for part in batch.triples()), strict=True)
    assert batch.times.tolist() == [newest[quad] for quad in in_order]
    assert len(batch.times) == len(newest)


@given(SHAPES, SHAPES)
@fuzzed(25)
def test_questions_over_several_batches(one: list[Quad], other: list[Quad]) -> None:
    check_questions(one, other)


def test_distinct_keys_are_estimated_from_samples() -> None:
    """Three batches of 400 subjects: 300 are in all of them, 100 in one only. All together there are 600."""
    graph, predicate = 0, spread(7)
    batches = [
        batch_of([(graph, spread(key if key < 300 else key + 1000 * at), predicate, spread(at)) for key in range(400)])
        for at in range(3)
    ]
    descriptors = np.stack([batch.descriptor for batch in batches])
    assert count_distinct_keys(descriptors, graph, predicate, 0, 100_000) == pytest.approx(600)
    assert count_distinct_keys(descriptors, graph, predicate, 0, 60) == pytest.approx(600, rel=0.25)
    assert count_distinct_keys(descriptors, graph, predicate, 1, 60) == 3
    assert count_distinct_keys(descriptors[:1], graph, predicate, 0, 1) == 400
    assert count_distinct_keys(descriptors, graph, spread(8), 0, 60) == 0


@pytest.mark.nojit
def test_questions_over_two_small_batches() -> None:
    check_questions(random_quads(1, 30, 5, 2, 0.2, 0.2), random_quads(2, 30, 5, 2, 0.2, 0.2))


def check_questions(one: list[Quad], other: list[Quad]) -> None:
    batches = [batch_of(one), filtered_of(other)]
    sets = [set(one), set(other)]
    descriptors = np.stack([batch.descriptor for batch in batches])
    asked = [*one[:20], *other[:20], (0, spread(77777), spread(1000), spread(3))]
    graphs, subjects, predicates, objects = columns(asked)
    held = mark_held(descriptors, graphs, predicates, subjects, objects)
    assert held.tolist() == [q in sets[0] | sets[1] for q in asked]
    for g, s, p, o in asked:
        own = [[(q[1], q[3]) for q in quads if q[0] == g and q[2] == p] for quads in sets]
        edges = [sum(map(len, own)), *(sum(len({pair[end] for pair in pairs}) for pairs in own) for end in (0, 1))]
        assert count_edges(descriptors, g, p).tolist() == edges
        for end in (0, 1):
            union = {pair[end] for pairs in own for pair in pairs}
            assert count_distinct_keys(descriptors, g, p, end, 1000) == pytest.approx(len(union))
        for subject in (s, spread(77777)):
            has = any(pair[0] == subject for pairs in own for pair in pairs)
            assert knows_subject(descriptors, g, p, np.array([spread(88888), subject])) == has
        assert not knows_subject(descriptors, g, p, np.empty(0, np.int64))
        assert count_degree(descriptors, g, p, 0, s) == sum(pair[0] == s for pairs in own for pair in pairs)
        assert count_degree(descriptors, g, p, 1, o) == sum(pair[1] == o for pairs in own for pair in pairs)


# --- kernels, their Python functions and their oracles ----------------------------------------------------------------


def same(one: Any, other: Any) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def three_ways(kernel: Callable[..., Any], check: Callable[..., Any], *arguments: Int64Array) -> Any:
    expected = check(*arguments)
    same(kernel(*arguments), expected)
    same(plain(kernel)(*arguments), expected)
    return expected


def check_building(quads: list[Quad], times: list[int]) -> None:
    """Follow build_batch step by step; the oracle makes the input of each next step."""
    graphs, subjects, predicates, objects = columns(quads)
    payload = np.array(times, np.int64)
    rows, _, _, counts = three_ways(kernels.assign_directory, oracle.assign_directory, graphs, predicates)
    grouped = three_ways(kernels.group_rows, oracle.group_rows, rows, counts, subjects, objects, payload)
    first, second, carried, starts = grouped
    expected = [first.copy(), second.copy(), carried.copy()]
    oracle.sort_ranges(*expected, starts)
    for sort in (sort_ranges, plain(sort_ranges)):
        found = [first.copy(), second.copy(), carried.copy()]
        sort(*found, starts)
        same(found[:2], expected[:2])
        # Repeats of a pair may come in any order: their payloads agree as a bag.
        assert sorted(zip(*map(list, found if times else found[:2]), strict=True)) == sorted(
            zip(*map(list, expected if times else expected[:2]), strict=True)
        )
    out = three_ways(kernels.compress_pairs, oracle.compress_pairs, *expected, starts)
    three_ways(kernels.swap_sides, oracle.swap_sides, *out[:4])
    three_ways(kernels.list_vertices, oracle.list_vertices, out[0], out[1], out[0], out[1])
    for build in (kernels.build_fences, plain(kernels.build_fences)):
        check_fences(out[1], out[0], *build(out[1], out[0]))


def check_fences(
    keys: Int64Array, key_starts: Int64Array, starts: Int64Array, shifts: Int64Array, fences: Int64Array
) -> None:
    """Every key is found in the one bucket that the fence gives it, and buckets are small."""
    assert len(fences) == starts[-1]
    for row in range(len(key_starts) - 1):
        own = keys[key_starts[row] : key_starts[row + 1]].tolist()
        fence = fences[starts[row] : starts[row + 1]].tolist()
        if len(own) < layout.FENCE_KEYS_MIN:
            assert shifts[row] == layout.NO_FENCE
            assert not fence
            continue
        assert len(fence) == 2 ** (63 - shifts[row]) + 1
        assert len(fence) - 1 <= len(own) <= 4 * (len(fence) - 1)
        for place, key in enumerate(own):
            assert oracle.find_by_fence(own, int(shifts[row]), fence, key) == place
        for key in (0, 2**63 - 1, own[0] + 1, own[-1] - 1):
            assert oracle.find_by_fence(own, int(shifts[row]), fence, key) == bisect_left(own, key)


def check_key_filter(quads: list[Quad]) -> None:
    """The filter has the bits of its keys and no others, however they are added; it passes what has all of its bits."""
    batch = filtered_of(quads)
    assert batch.descriptor[layout.KEY_FILTER] == (batch.key_filter.ctypes.data if quads else 0)
    if not quads:
        return
    expected = np.zeros_like(batch.key_filter)
    expected[0] = len(expected) - 2
    keys = {direction: side_keys(batch.descriptor, direction) for direction in (0, 1)}
    found = expected.copy()
    for direction, own in keys.items():
        oracle.add_keys(expected, own, direction, 0, len(own))
        for start, stop in ((0, len(own) // 2), (len(own) // 2, len(own))):
            plain(add_keys)(found, own, direction, start, stop)
    same((batch.key_filter, found), (expected, expected))
    for direction, own in keys.items():
        for key in [0, 2**63 - 1, *own[:20].tolist(), *(own[:20] ^ 2).tolist()]:
            alone = np.zeros_like(expected)
            oracle.add_keys(alone, np.array([key], np.int64), direction, 0, 1)
            passes = bool((expected[1:] & alone[1:] == alone[1:]).all())
            assert bool(count_passing(batch.descriptor, direction, np.array([key], np.int64))) == passes
            assert passes or key not in set(own.tolist())


KERNEL_QUADS = st.builds(
    random_quads,
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0, 1, 6, 60, 150]),
    terms=st.sampled_from([1, 4, 200]),
    directory=st.sampled_from([1, 3, 40]),
    skew=st.sampled_from([0.0, 0.6]),
    marked=st.sampled_from([0.0, 0.4]),
)


@given(KERNEL_QUADS, st.booleans())
@fuzzed(20)
def test_kernel_python_function_and_oracle_agree(quads: list[Quad], timed: bool) -> None:
    check_building(quads, list(range(len(quads))) if timed else [])


@given(KERNEL_QUADS)
@fuzzed(20)
def test_key_filters_pass_their_keys(quads: list[Quad]) -> None:
    check_key_filter(quads)


@pytest.mark.nojit
def test_key_filters_of_a_few_shapes() -> None:
    check_key_filter([])
    check_key_filter(random_quads(5, 130, 100, 1, 0.2, 0.2))
    check_key_filter([(0, 2 * i + 1, spread(-5), 4) for i in range(100)])


def test_a_large_batch_has_no_key_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.store.batch.FILTERED_TRIPLES_MAX", 3)
    quads = [(0, spread(i), spread(-5), spread(3)) for i in range(4)]
    assert not len(filtered_of(quads).key_filter)
    assert len(filtered_of(quads[1:]).key_filter)


def test_a_file_holds_no_key_filter() -> None:
    batch = filtered_of([(0, spread(1), spread(2), spread(3))])
    again = restored(batch.columns())
    assert not len(again.key_filter)
    assert again.descriptor[layout.KEY_FILTER] == 0


@pytest.mark.nojit
def test_kernels_agree_on_a_few_shapes() -> None:
    check_building([], [])
    check_building(random_quads(5, 130, 100, 1, 0.2, 0.2), list(range(130)))
    check_building(random_quads(6, 120, 2, 40, 0.0, 0.5), [])


@pytest.mark.nojit
def test_the_three_ways_of_sorting_a_bucket() -> None:
    """Small buckets by insertion, large ones by quicksort, a large one of a single key by another radix pass."""
    rng = random.Random(7)
    for first in ([5] * 700, [spread(i % 3) for i in range(120)], [4 + 2 * (i % 40) for i in range(300)]):
        keys, values = np.array(first, np.int64), np.array([rng.randrange(2**62) for _ in first], np.int64)
        payload = np.arange(len(first), dtype=np.int64)
        order = np.lexsort((values, keys))
        expected = keys[order], values[order], payload[order]
        sort_ranges(keys, values, payload, np.array([0, len(first)], np.int64))
        same((keys, values, payload), expected)

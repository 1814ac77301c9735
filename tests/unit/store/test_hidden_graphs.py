"""Hidden graphs: batches with negative graph ids, counts and names that leave them out, and views."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quads import UNLISTED_SIZES, Quad, batch_of, columns, filtered_of, plain, quads_of, spread, unlisted_up_to
from wukongs.errors import DataError
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch_set import BatchSet
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.directory_kernels import count_graph, count_named_degree, count_named_edges, count_vertex_edges
from wukongs.store.encoder import encode_ntriples
from wukongs.store.hidden_graphs import View, check_graphs_written, check_written, view_of
from wukongs.store.lookup_kernels import count_degree, count_edges
from wukongs.store.merge import merge_batches
from wukongs.store.quads import graph_quads, is_held
from wukongs.store.term_registry import TermRegistry
from wukongs.store.tombstones import subtract

DEFAULT = spread(9)
GRAPHS = [DEFAULT, *(spread(n) for n in range(1, 4))]
ALL_GRAPHS = [*GRAPHS, *(~graph for graph in GRAPHS)]
PREDICATES = [spread(n) for n in range(20, 23)]
VERTICES = [*(spread(n) for n in range(30, 36)), spread(36, 1)]
QUADS = st.sets(st.tuples(*map(st.sampled_from, (ALL_GRAPHS, VERTICES[:-1], PREDICATES, VERTICES))), max_size=60)


def visible(read: BatchSet) -> list[Quad]:
    """All quads of a read, hidden graphs included."""
    found = [quad for graph in ALL_GRAPHS for quad in zip(*graph_quads(read, graph), strict=True)]
    return sorted((int(g), int(s), int(p), int(o)) for g, s, p, o in found)


@given(st.lists(st.tuples(QUADS, QUADS), min_size=1, max_size=6))
def test_a_trace_with_hidden_graphs_holds_what_was_sealed(steps: list[tuple[set[Quad], set[Quad]]]) -> None:
    arrangement, held = Arrangement("g"), set[Quad]()
    for sn, (come, gone) in enumerate(steps, 1):
        if sn % 2:
            arrangement.apply(sn, columns(gone), columns(come))
            held = held - (gone - come) | come
        else:
            gone -= come
            assert arrangement.absorb(sn, *columns(come), gone=columns(gone)) == len(come - held)
            held = held - gone | come
        read = arrangement.trace.read(sn)
        assert visible(read) == sorted(held)
        assert len(read) == len(arrangement) == len(held)
        assert read.graphs.tolist() == sorted({graph for graph, *_ in held if graph >= 0})
        assert [graph for graph in ALL_GRAPHS if read.has_graph(graph)] == [
            graph for graph in ALL_GRAPHS if any(graph == one for one, *_ in held)
        ]
        counted = read.counts_of(np.array(sorted(ALL_GRAPHS), np.int64)).tolist()
        assert counted == [sum(graph == one for one, *_ in held) for graph in sorted(ALL_GRAPHS)]
        assert read.hidden_count == sum(graph < 0 for graph, *_ in held)
        assert is_held(read, columns(held)).all()
    arrangement.trace.merge_all()
    assert visible(arrangement.trace.read(len(steps))) == sorted(held)


@given(QUADS, QUADS)
def test_batches_with_hidden_graphs_are_merged_cut_and_kept(one: set[Quad], other: set[Quad]) -> None:
    assert quads_of(batch_of(one)) == sorted(one)
    assert quads_of(merge_batches(batch_of(one), batch_of(other))) == sorted(one | other)
    assert quads_of(subtract(batch_of(one), batch_of(other))) == sorted(one - other)


def test_a_checkpoint_keeps_hidden_graphs(tmp_path: Path) -> None:
    quads = list(product(ALL_GRAPHS, VERTICES[:2], PREDICATES, VERTICES[:2]))
    arrangement, registry = Arrangement("g"), TermRegistry()
    arrangement.absorb(1, *columns(quads))
    arrangement.apply(2, columns(quads[::3]), columns([]))
    with CheckpointStore(tmp_path) as store:
        store.open()
        store.commit(arrangement.trace.entries(), arrangement.trace.upper, registry, {})
    again = Arrangement("again")
    with CheckpointStore(tmp_path) as store:
        found = store.open()
        assert found is not None
        found.into(again.trace, TermRegistry())
        assert visible(again.trace.read(2)) == sorted(set(quads) - set(quads[::3]))
        assert again.absorb(3, *columns(quads)) == len(quads[::3])


def _both(kernel: Callable[..., Any]) -> list[Callable[..., Any]]:
    return list({kernel: None, plain(kernel): None})


@pytest.mark.parametrize("unlisted", UNLISTED_SIZES)
@given(st.lists(QUADS, min_size=1, max_size=3))
def test_counts_of_named_graphs_leave_hidden_ones_out(unlisted: tuple[int, int], parts: list[set[Quad]]) -> None:
    with unlisted_up_to(*unlisted):
        read = BatchSet.of(tuple(map(filtered_of, parts)), disjoint=False)
    descriptors = read.descriptors

    def counted(is_asked: Callable[[Quad], bool]) -> list[int]:
        found = [[quad for quad in part if is_asked(quad)] for part in parts]
        rows = [
            sum(len({(g, p, s) for g, s, p, _ in part}) for part in found),
            sum(len({(g, p, o) for g, _, p, o in part}) for part in found),
        ]
        return [sum(map(len, found)), *rows]

    def is_named(graph: int) -> bool:
        return graph >= 0 and graph != DEFAULT

    for kernel in _both(count_named_edges):
        for predicate in PREDICATES:
            expected = counted(lambda quad, p=predicate: quad[2] == p and is_named(quad[0]))  # type: ignore[misc]
            assert kernel(descriptors, DEFAULT, predicate).tolist() == expected
    for kernel in _both(count_graph):
        assert kernel(descriptors, -1, DEFAULT).tolist() == counted(lambda quad: is_named(quad[0]))
        for graph in ALL_GRAPHS:
            assert kernel(descriptors, graph, DEFAULT).tolist() == counted(lambda quad, g=graph: quad[0] == g)  # type: ignore[misc]
    for graph, predicate in product(ALL_GRAPHS, PREDICATES):
        expected = counted(lambda quad, g=graph, p=predicate: quad[0] == g and quad[2] == p)  # type: ignore[misc]
        assert count_edges(descriptors, graph, predicate).tolist() == expected
    for direction, vertex in product((0, 1), VERTICES):
        own = [quad for part in parts for quad in part if quad[1 if direction == 0 else 3] == vertex]
        for kernel in _both(count_vertex_edges):
            assert kernel(descriptors, -1, DEFAULT, direction, vertex, 99) == sum(is_named(quad[0]) for quad in own)
            for graph in ALL_GRAPHS:
                expected_in = sum(quad[0] == graph for quad in own)
                assert kernel(descriptors, graph, DEFAULT, direction, vertex, 99) == expected_in
        for predicate in PREDICATES:
            labelled = [quad for quad in own if quad[2] == predicate]
            for kernel in _both(count_named_degree):
                found = kernel(descriptors, DEFAULT, predicate, direction, vertex, 99)
                assert found == sum(is_named(quad[0]) for quad in labelled)
            hidden = ~GRAPHS[1]
            assert count_degree(descriptors, hidden, predicate, direction, vertex) == sum(
                quad[0] == hidden for quad in labelled
            )


def test_many_hidden_rows_before_a_jump_are_all_left_out() -> None:
    """The walk over a directory looks at eight rows one by one, and jumps then."""
    many = [*(spread(n) for n in range(40, 80)), *(~spread(n) for n in range(40, 80)), DEFAULT]
    quads = [(graph, VERTICES[0], predicate, VERTICES[1]) for graph, predicate in product(many, PREDICATES)]
    read = BatchSet.of((batch_of(quads),), disjoint=True)
    assert count_graph(read.descriptors, -1, DEFAULT).tolist() == [120, 120, 120]
    assert count_named_edges(read.descriptors, DEFAULT, PREDICATES[1]).tolist() == [40, 40, 40]


@given(st.lists(st.tuples(QUADS, QUADS), min_size=1, max_size=4))
def test_a_graph_without_what_was_inferred(steps: list[tuple[set[Quad], set[Quad]]]) -> None:
    """The first set of a step are the triples that are stated by then, the second those that are inferred."""
    arrangement, held = Arrangement("g"), set[Quad]()
    for sn, (stated, inferred) in enumerate(steps, 1):
        stated, inferred = ({(max(g, ~g), s, p, o) for g, s, p, o in some} for some in (stated, inferred))
        inferred -= stated
        wanted = stated | inferred | {(~g, s, p, o) for g, s, p, o in inferred}
        arrangement.apply(sn, columns(held - wanted), columns(wanted - held))
        held = wanted
        read = arrangement.trace.read(sn)
        for graph in GRAPHS:
            explicit = read.without_inferred(graph)
            assert explicit is read.without_inferred(graph)
            assert (explicit is read) == (not any((batch.graphs == ~graph).any() for batch in read.batches))
            found = [quad for quad in visible(explicit) if quad[0] == graph]
            assert found == sorted(quad for quad in stated if quad[0] == graph)
            assert [quad for quad in visible(explicit) if quad[0] != graph] == sorted(
                quad for quad in held if quad[0] != graph
            )
            assert explicit.has_graph(graph) == bool(found)
            assert len(explicit) == len(held) - sum(quad[0] == graph for quad in inferred)


def test_the_names_of_views() -> None:
    assert view_of("urn:x-wukongs:inferred") == View(False, "urn:x-wukongs:default")
    assert view_of("urn:x-wukongs:explicit:http://ex/g") == View(True, "http://ex/g")
    assert view_of("urn:x-wukongs:inferred:urn:x-wukongs:default") == view_of("urn:x-wukongs:inferred")
    assert view_of("urn:x-wukongs:inferredly") is view_of("urn:x-wukongs:default") is None


def test_a_view_is_not_written() -> None:
    check_written("http://ex/g")
    with pytest.raises(DataError, match=r"^<urn:x-wukongs:inferred> cannot be written: .* Write to the default graph"):
        check_written("urn:x-wukongs:inferred")
    with pytest.raises(DataError, match=r"Write to graph <http://ex/g>, or change the rules$"):
        check_written("urn:x-wukongs:explicit:http://ex/g")


@pytest.mark.parametrize("hash_bits", [62, 2])
def test_tuples_in_a_view_are_found_among_others(hash_bits: int) -> None:
    view = "<urn:x-wukongs:inferred>"
    lines = f"<a:a> <a:p> {view} .\n<a:a> <a:p> <a:b> <a:g> .\n{view} {view} {view} <a:g> .\n"
    encoded, _ = encode_ntriples(lines.encode(), b"", hash_bits=hash_bits)
    check_graphs_written(encoded)
    encoded, _ = encode_ntriples(f"{lines}<a:a> <a:p> <a:b> {view} .\n".encode(), b"", hash_bits=hash_bits)
    with pytest.raises(DataError, match="cannot be written"):
        check_graphs_written(encoded)

"""Clients of several nodes at the same time: what each is told holds for all."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence

import pytest

import wukongs
from tests.clusters import PATIENT, PULSE_S, cluster
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.settings import Settings

EX = "http://ex/"
INCREMENT = f"DELETE {{ ?s <{EX}n> ?v }} INSERT {{ ?s <{EX}n> ?w }} WHERE {{ ?s <{EX}n> ?v BIND(?v + 1 AS ?w) }}"
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 200ms STEP 200ms] WHERE {{ ?s <{EX}p> ?o }}"""


def together(calls: Sequence[Callable[[], object]]) -> None:
    """Do things at the same time; raise the first error of one."""
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def count(node: ClusterNode, predicate: str) -> int:
    return len(node.engine.query(f"SELECT * {{ ?s <{EX}{predicate}> ?o }}"))


@pytest.mark.slow
def test_no_update_is_lost_and_no_load_and_no_push() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        engines = [node.engine for node in nodes]
        stream = engines[0].stream(EX + "s", batch_ms=100)
        engines[0].update(f"INSERT DATA {{ <{EX}a> <{EX}n> 0 }}")

        def increments(at: int) -> None:
            for _ in range(20):
                engines[at].update(INCREMENT)

        def loads(at: int, name: str) -> None:
            for number in range(3):
                lines = [f"<{EX}{name}{at}-{number}-{row}> <{EX}l> <{EX}o> .\n" for row in range(10)]
                engines[at].load(io.BytesIO("".join(lines).encode()), format="nt")

        def pushes(at: int) -> None:
            there = nodes[at].backend.declared(EX + "s")
            for number in range(5):
                there.push([(f"<{EX}{at}-{number}>", f"<{EX}p>", f"<{EX}o>", 100_000)])

        together(
            [
                lambda at=at, do=do: do(at)  # type: ignore[misc]
                for at in range(3)
                for do in (increments, lambda at: loads(at, "x"), lambda at: loads(at, "y"), pushes)
            ]
        )
        stream.close()
        engines[1].settle(30)
        for node in nodes:
            (row,) = node.engine.query(f"SELECT ?v {{ <{EX}a> <{EX}n> ?v }}")
            assert (int(row[0]), count(node, "l"), count(node, "p")) == (60, 180, 15)


def test_a_name_is_free_on_all_nodes_when_it_was_closed_or_dropped_on_one() -> None:
    with cluster(3, silence_pulses_max=PATIENT) as nodes:
        engines = [node.engine for node in nodes]
        for turn in range(6):
            time_ms = 1000 * (turn + 1)
            engines[turn % 3].stream(EX + "s", batch_ms=100)
            query = engines[(turn + 1) % 3].register(QUERY)
            stream = nodes[(turn + 2) % 3].backend.declared(EX + "s")
            stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b{turn}>", time_ms + 50)])
            stream.advance(time_ms + 1000)
            window = next(iter(query.results(timeout_s=20)))
            assert (window.end_ms, [str(row[1]) for row in window]) == (time_ms + 200, [f"{EX}b{turn}"])
            query.close()
            engines[(turn + 1) % 3].drop_stream(EX + "s")
        assert all(not node.host.node.control.queries for node in nodes)


def test_a_name_that_is_taken_is_refused_on_every_node() -> None:
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        first, second = (node.engine for node in nodes)
        first.stream(EX + "s", batch_ms=100)
        with pytest.raises(wukongs.StreamError, match="is declared already: drop_stream it first"):
            second.stream(EX + "s", batch_ms=100)
        query = first.register(QUERY)
        with pytest.raises(wukongs.StreamError, match="a query named q is registered already: close it first"):
            second.register(QUERY)
        with pytest.raises(wukongs.StreamError, match="is read by q: close these first"):
            second.drop_stream(EX + "s")
        query.close()
        second.register(QUERY)


@pytest.mark.parametrize("node_count", [2, 3])
def test_terms_whose_hashes_clash_mean_the_same_on_all_nodes(node_count: int) -> None:
    """With 16 bits, 400 terms clash; updates make new ones as well."""
    lines = "".join(f"<{EX}s{row}> <{EX}p> <{EX}o{row % 150}> .\n" for row in range(250)).encode()
    updates = [
        f'INSERT {{ ?s <{EX}q> ?t }} WHERE {{ ?s <{EX}p> ?o BIND(IRI(CONCAT(STR(?s), "/x")) AS ?t) }}',
        f"DELETE {{ ?s <{EX}p> ?o }} INSERT {{ ?o <{EX}r> ?s }} "
        f"WHERE {{ ?s <{EX}p> ?o FILTER(STRENDS(STR(?o), '7')) }}",
        f"INSERT DATA {{ <{EX}new1> <{EX}p> <{EX}new2> . GRAPH <{EX}g> {{ <{EX}new3> <{EX}p> 'new4' }} }}",
    ]
    read = "SELECT ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
    with (
        wukongs.Engine() as engine,
        cluster(node_count, settings=Settings(hash_bits=16), silence_pulses_max=PATIENT, pulse_s=PULSE_S) as nodes,
    ):
        engine.load(io.BytesIO(lines), format="nt")
        nodes[0].engine.load(io.BytesIO(lines), format="nt")
        for number, text in enumerate(updates):
            engine.update(text)
            nodes[number % node_count].engine.update(text)
        nodes[0].engine.settle(60)
        expected = sorted(map(str, engine.query(read)))
        for node in nodes:
            assert node.host.node.control.exceptions, "nothing has clashed"
            assert sorted(map(str, node.engine.query(read))) == expected
            (row,) = node.engine.query(f"SELECT ?s {{ ?s <{EX}q> <{EX}s77/x> }}")
            assert str(row[0]) == EX + "s77"

"""Streams with retractions="event_time": the newest tuple of each triple counts in the stored graph, whenever it comes.

The right values are those of DESIGN.md, section 6: any order of arrival within history_ms gives what the order of time
gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import EX, A, B, node, rows, subjects
from tests.faces import Face

OPTIONS: dict[str, Any] = {"batch_ms": 100, "on_late": "count", "retractions": "event_time"}
Signed = tuple[str, int, str]
"""A subject, a time in ms, and a sign."""


def push(stream: Any, *tuples: Signed) -> int:
    columns = {
        "subject": [node(name) for name, _, _ in tuples],
        "predicate": [node("p")] * len(tuples),
        "object": [node("o")] * len(tuples),
        "timestamp_ms": [time_ms for _, time_ms, _ in tuples],
        "op": [sign for _, _, sign in tuples],
    }
    return int(stream.push_arrow(pa.table(columns)))


def sorted_order(tuples: list[Signed]) -> list[str]:
    held: set[str] = set()
    for name, _, sign in sorted(tuples, key=lambda one: one[1]):
        (held.add if sign == "+" else held.discard)(name)
    return sorted(held)


def test_an_old_sign_that_comes_late_changes_nothing(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, **OPTIONS)
    push(stream, ("a", 500, "+"), ("b", 500, "-"))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert push(stream, ("a", 400, "-"), ("b", 400, "+"), ("c", 400, "+")) == 0
    assert subjects(engine) == ["a", "c"]
    assert push(stream, ("a", 600, "-"), ("b", 600, "+")) == 0
    assert subjects(engine) == ["b", "c"]
    assert engine.stats()["streams"][A]["late"] == 5


def test_an_insert_of_what_is_stored_is_newer_than_an_old_delete(engine: wukongs.Engine) -> None:
    engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> <{EX}o> }}")
    stream = engine.stream(A, **OPTIONS)
    push(stream, ("a", 500, "+"))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    push(stream, ("a", 400, "-"))
    assert subjects(engine) == ["a"]


def test_an_update_acts_when_it_comes_and_erases_the_event_time(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, **OPTIONS)
    push(stream, ("a", 500, "+"), ("b", 500, "+"))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    engine.update(f"DELETE DATA {{ <{EX}a> <{EX}p> <{EX}o> }}")
    engine.apply(deletes=pa.table({"subject": [node("b")], "predicate": [node("p")], "object": [node("o")]}))
    assert subjects(engine) == []
    push(stream, ("a", 400, "+"))
    push(stream, ("b", 300, "+"))
    assert subjects(engine) == ["a", "b"]
    engine.update("CLEAR DEFAULT")
    push(stream, ("a", 200, "+"))
    assert subjects(engine) == ["a"]


def test_a_load_erases_the_event_time(engine: wukongs.Engine, tmp_path: Path) -> None:
    stream = engine.stream(A, **OPTIONS)
    push(stream, ("a", 500, "-"), ("b", 500, "-"))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    (tmp_path / "a.nt").write_text(f"<{EX}a> <{EX}p> <{EX}o> .\n")
    engine.load(tmp_path / "a.nt")
    push(stream, ("a", 400, "-"), ("b", 400, "+"))
    assert subjects(engine) == []


def test_an_unknown_way_is_refused(tmp_path: Path) -> None:
    with wukongs.Engine() as engine, pytest.raises(wukongs.SettingsError, match='expected "event_time", or None'):
        engine.stream(A, retractions="arrival")  # type: ignore[arg-type]


def test_a_sign_older_than_history_ms_is_dropped_and_counted(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, **OPTIONS, history_ms=300)
    push(stream, ("a", 100, "+"))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    push(stream, ("a", 798, "-"), ("b", 798, "+"))  # the clock has passed 1099: a stream batch ends at 1100
    assert subjects(engine) == ["a"]
    push(stream, ("a", 799, "-"))
    assert subjects(engine) == []
    counts = engine.stats()["streams"][A]
    assert (counts["late"], counts["dropped"]) == (3, 2)


@pytest.mark.faces("embedded")
def test_event_times_are_bounded(face: Face) -> None:
    engine = face.open(wukongs.Settings(retraction_bytes_max=4000))
    stream = engine.stream(A, **OPTIONS)
    push(stream, *[(f"n{number}", 1, "+") for number in range(90)])
    with pytest.raises(wukongs.StreamError, match="would exceed retraction_bytes_max = 4000: raise it"):
        push(stream, *[(f"m{number}", 1, "+") for number in range(20)])
    assert push(stream, ("m", 2, "+")) == 1


@pytest.mark.slow_on("cluster-1")
@pytest.mark.faces("embedded", "cluster-1", "cluster-3")
def test_there_is_room_again_once_the_clock_has_passed_history_ms(face: Face) -> None:
    engine = face.open(wukongs.Settings(retraction_bytes_max=4000))
    stream = engine.stream(A, **OPTIONS, history_ms=1000)
    assert push(stream, *[(f"n{number}", 1, "+") for number in range(90)]) == 90
    stream.advance(200)
    engine.settle(timeout_s=60)
    with pytest.raises(wukongs.StreamError, match=r"would exceed .*retraction_bytes_max"):
        push(stream, *[(f"m{number}", 300, "+") for number in range(20)])
    with pytest.raises((wukongs.StreamError, wukongs.OutcomeUnknown), match="would exceed retraction_bytes_max"):
        push(stream, *[(f"m{number}", 100, "+") for number in range(20)])
    stream.advance(1400)
    engine.settle(timeout_s=60)
    assert push(stream, *[(f"m{number}", 1500, "+") for number in range(20)]) == 20
    stream.advance(1600)
    engine.settle(timeout_s=60)
    assert len(subjects(engine)) == 110


@pytest.mark.parametrize("late", ["drop", "open"])
def test_any_order_of_arrival_gives_what_the_order_of_time_gives(engine: wukongs.Engine, late: str) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        times = rng.sample(range(1, 3000), 60)
        tuples = [(f"s{rng.randint(0, 6)}", time_ms, rng.choice("++-")) for time_ms in times]
        names = (f"{A}{seed}", f"{B}{seed}")
        streams = [engine.stream(name, **OPTIONS, late=late, into=f"{EX}g{seed}") for name in names]
        parts = list[list[Signed]]([[], []])
        for one in tuples:
            rng.choice(parts).append(one)
        while any(parts):
            place = rng.randrange(2)
            count = rng.choice([1, 1, 3])
            if parts[place]:
                push(streams[place], *parts[place][:count])
                del parts[place][:count]
            if rng.random() < 0.2:
                streams[place].advance(rng.randint(1, 3000))
            if rng.random() < 0.2:
                engine.settle(timeout_s=60)
        for stream in streams:
            stream.close()
        engine.settle(timeout_s=60)
        found = rows(engine.query(f"SELECT ?s {{ GRAPH <{EX}g{seed}> {{ ?s ?p ?o }} }}"))
        assert [name for (name,) in found] == sorted_order(tuples), seed

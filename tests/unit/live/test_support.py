"""ContinuousQuery.why(row): the triples that a row rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.faces import FACES, Face
from wukongs import errors

EX = "http://ex/"
PREFIX = f"PREFIX : <{EX}>\n"
ALARM = f"""{PREFIX}REGISTER QUERY alarm AS SELECT ?place ?t
FROM NAMED STREAM :readings [RANGE 2s STEP 1s] FROM <urn:x-wukongs:default>
WHERE {{ GRAPH :readings {{ ?sensor :temperature ?t }} ?sensor :in ?place FILTER (?t > 30) }}"""
COUNT = f"""{PREFIX}REGISTER QUERY counted AS SELECT ?sensor (COUNT(?t) AS ?n) (?sensor AS ?s)
FROM STREAM :readings [RANGE 100s STEP 1s] WHERE {{ ?sensor :temperature ?t }} GROUP BY ?sensor"""
WITHIN = PREFIX + "RULE within: CONSTRUCT { ?x :in ?z } WHERE { ?x :in ?y . ?y :in ?z }"


def node(name: object) -> str:
    return f"<{EX}{name}>"


def reading(value: int, time_ms: int) -> tuple[str, str, int, int]:
    return node("sensor"), node("temperature"), value, time_ms


@pytest.fixture
def engine() -> Iterator[Any]:
    with wukongs.Engine() as found:
        found.update(f"{PREFIX}INSERT DATA {{ :sensor :in :room . :room :in :house }}")
        yield found


def declare(engine: Any) -> Any:
    return engine.stream(f"{EX}readings", timing=True, batch_ms=1000)


def go_on(engine: Any, stream: Any, readings: list[tuple[str, str, int, int]], to_ms: int) -> None:
    stream.push(readings)
    stream.advance(to_ms)
    engine.settle(60)


def test_a_row_rests_on_tuples_of_windows_and_stored_ones_with_what_they_follow_from(engine: Any) -> None:
    engine.add_rules(WITHIN)
    stream = declare(engine)
    alarm = engine.register(ALARM)
    with pytest.raises(errors.StreamError, match="no window yet"):
        alarm.why({"place": node("house")})
    go_on(engine, stream, [reading(35, 500), reading(20, 600)], 1000)
    assert alarm.why({"place": node("house"), "t": 35}).replace(EX, "") == (
        "the row of the window ending at 1000 ms rests on\n"
        '  <sensor> <temperature> "35"^^<http://www.w3.org/2001/XMLSchema#integer>   in the window of <readings>\n'
        "  <sensor> <in> <house>   by rule within\n"
        "    <sensor> <in> <room>   explicit\n"
        "    <room> <in> <house>   explicit"
    )
    assert alarm.why({"?place": node("room")}).endswith(f"{node('sensor')} {node('in')} {node('room')}   stored")
    assert alarm.why({"place": node("garden")}) == (
        "the window ending at 1000 ms has no such row, over what is held now"
    )
    go_on(engine, stream, [], 4000)
    assert "has no such row" in alarm.why({"place": node("house")})


def test_a_row_rests_on_what_follows_in_a_named_graph(engine: Any) -> None:
    engine.add_rules(WITHIN, into=f"{EX}places")
    engine.update(f"{PREFIX}INSERT DATA {{ GRAPH :places {{ :sensor :in :room . :room :in :house }} }}")
    stream = declare(engine)
    alarm = engine.register(
        ALARM.replace("?sensor :in ?place", "GRAPH ?g { ?sensor :in ?place }").replace(
            "FROM <urn:x-wukongs:default>", f"FROM NAMED <{EX}places>"
        )
    )
    go_on(engine, stream, [reading(35, 500)], 1000)
    told = alarm.why({"place": node("house")}).replace(EX, "")
    assert told.endswith(
        "  <sensor> <in> <house> in <places>   by rule within\n"
        "    <sensor> <in> <room> in <places>   explicit\n"
        "    <room> <in> <house> in <places>   explicit"
    )
    assert alarm.why({"place": node("room")}).replace(EX, "").endswith("<sensor> <in> <room> in <places>   stored")


def test_a_row_of_a_group_rests_on_all_of_it(engine: Any) -> None:
    stream = declare(engine)
    counted = engine.register(COUNT)
    go_on(engine, stream, [reading(value, 10 + value) for value in range(3)], 1000)
    told = counted.why({"sensor": node("sensor"), "n": 3}).splitlines()
    assert told[0] == "the row of the window ending at 1000 ms rests on, by 3 solutions of its patterns"
    assert len(told) == 4
    assert counted.why({"s": node("sensor")}).splitlines() == told
    go_on(engine, stream, [reading(value, 1010 + value) for value in range(60)], 2000)
    told = counted.why({"s": node("sensor")}).splitlines()
    assert (len(told), told[-1]) == (52, "  and more")


def test_what_is_no_term_is_refused(engine: Any) -> None:
    stream = declare(engine)
    counted = engine.register(COUNT)
    go_on(engine, stream, [reading(1, 10)], 1000)
    with pytest.raises(errors.DataError, match="sensor"):
        counted.why({"sensor": "no term"})


@pytest.mark.parametrize("name", FACES)
def test_every_face_tells_it(name: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    face = Face(name, request.node.name, tmp_path)
    with face.stack:
        engine = face.open()
        engine.update(f"{PREFIX}INSERT DATA {{ :sensor :in :room }}")
        stream = declare(engine)
        alarm = engine.register(ALARM)
        go_on(engine, stream, [reading(35, 500)], 1000)
        told = alarm.why({"place": node("room")}).splitlines()
        assert [line.rpartition("   ")[2] for line in told[1:]] == [f"in the window of <{EX}readings>", "stored"]

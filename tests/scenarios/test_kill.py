"""Engine.running and Engine.kill: a one-shot query is listed while it runs, and ends when it is killed."""

from __future__ import annotations

import io
import threading
import time
from random import Random
from typing import Any

import pytest

import wukongs
from tests.faces import Face

DOUBLED = " ".join(f"BIND(CONCAT(?x{step}, ?x{step}) AS ?x{step + 1})" for step in range(10))
LONG = "".join(Random(1).choices("ab", k=2048))
ENDLESS = f"SELECT ?s {{ ?s ?p ?o BIND('{LONG}' AS ?x0) {DOUBLED} FILTER(REGEX(?x10, '(a|b)*a(a|b){{900}}c')) }}"
"""It takes 15 s to find that this pattern is not in two million characters."""


def until(condition: Any) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_a_query_that_runs_is_listed_and_can_be_killed(face: Face) -> None:
    engine = face.open()
    engine.load(io.BytesIO(b"<http://e/s> <http://e/p> <http://e/o> .\n"), format="nt")
    assert engine.running() == []
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            engine.query(ENDLESS, timeout_s=0)
        except BaseException as error:
            raised.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    (one,) = until(engine.running)
    assert "SELECT ?s { ?s ?p ?o BIND" in one.text
    assert one.seconds >= 0
    assert one.bytes >= 0
    later = until(lambda: [query for query in engine.running() if query.seconds > one.seconds])
    assert [query.number for query in later] == [one.number]
    with pytest.raises(
        wukongs.StreamError, match=rf"query {one.number + 1} does not run here: .* Running: {one.number}"
    ):
        engine.kill(one.number + 1)
    assert len(engine.query("SELECT ?s { ?s ?p ?o }")) == 1
    assert asking.is_alive()
    engine.kill(one.number)
    asking.join(60)
    assert [type(error) for error in raised] == [wukongs.QueryKilled]
    assert "the query was killed, at last in " in str(raised[0])
    assert engine.running() == []
    with pytest.raises(wukongs.StreamError, match=r"Running: none"):
        engine.kill(one.number)
    assert len(engine.query("SELECT ?s { ?s ?p ?o }")) == 1


def test_a_query_that_fails_is_not_listed_any_more(face: Face) -> None:
    engine = face.open()
    engine.load(io.BytesIO(b"<http://e/s> <http://e/p> <http://e/o> .\n"), format="nt")
    with pytest.raises(wukongs.QueryTimeout):
        engine.query(ENDLESS, timeout_s=0.2 if face.name != "cluster-3" else 2)  # other nodes have said what they have
    assert engine.running() == []

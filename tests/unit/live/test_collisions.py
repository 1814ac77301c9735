"""An engine whose ids have 8 bits: nearly every term shares its hash with another, and nobody sees it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from wukongs import Engine, Settings, SettingsError

COUNT = 300
STREAM = "http://example.org/stream"
LINES = "".join(f"<urn:s:{i}> <urn:p> <urn:o:{i}> .\n" for i in range(COUNT)).encode()
SETTINGS = Settings(hash_bits=8)


def ask(engine: Engine, text: str) -> set[tuple[str, ...]]:
    return {tuple(str(term) for term in row) for row in engine.query(text)}


def check_constants(engine: Engine) -> None:
    for i in range(0, COUNT, 7):
        assert ask(engine, f"SELECT ?o WHERE {{ <urn:s:{i}> <urn:p> ?o }}") == {(f"urn:o:{i}",)}
    for i in range(40):
        assert ask(engine, f"SELECT ?o WHERE {{ <urn:never:{i}> ?p ?o }}") == set()
        assert ask(engine, f"SELECT ?s WHERE {{ ?s ?p <urn:never:{i}> }}") == set()


def test_constants_are_told_apart_by_their_text_also_after_a_restart(tmp_path: Path) -> None:
    with Engine(str(tmp_path / "data"), settings=SETTINGS) as engine:
        engine.load(io.BytesIO(LINES), format="nt")
        check_constants(engine)
    with Engine(str(tmp_path / "data"), settings=SETTINGS) as engine:
        check_constants(engine)
        engine.load(io.BytesIO(LINES), format="nt")
        assert len(ask(engine, "SELECT ?s ?o WHERE { ?s <urn:p> ?o }")) == COUNT


@pytest.mark.parametrize("timing", [True, False])
def test_terms_of_slices_are_told_apart_by_their_text(timing: bool) -> None:
    with Engine(settings=SETTINGS) as engine:
        engine.load(io.BytesIO(LINES), format="nt")
        stream = engine.stream(STREAM, timing=timing, batch_ms=100, history_ms=0)
        query = engine.register(
            f"REGISTER QUERY q AS SELECT ?s ?r FROM STREAM <{STREAM}> [RANGE 200ms STEP 100ms] "
            "FROM <urn:x-wukongs:default> WHERE { ?s <urn:q> ?r . ?s <urn:p> ?o }"
        )
        for k in range(4):
            stream.push(
                [(f"<urn:s:{i}>", "<urn:q>", f"<urn:reading:{k}:{i}>", 100 * k + 50) for i in range(0, COUNT, 3)]
            )
        stream.advance(400)
        engine.settle(timeout_s=60)
        found = [{tuple(map(str, row)) for row in window} for window in query.results(timeout_s=0)]
    for k, rows in enumerate(found):
        held = range(max(0, k - 1) if timing else 0, k + 1)
        assert rows == {(f"urn:s:{i}", f"urn:reading:{j}:{i}") for j in held for i in range(0, COUNT, 3)}
    assert len(found) == 4


def test_a_term_for_which_no_id_is_left_is_refused_by_name() -> None:
    """All 16 ids of 4 bits are taken by data. Terms that no data has need one all the same while a query runs."""
    with Engine(settings=Settings(hash_bits=4)) as engine:
        engine.load(io.BytesIO(LINES), format="nt")
        told = "no id is free for <urn:never>.*hash_bits is too small for so many terms"
        with pytest.raises(SettingsError, match=told):
            engine.query('SELECT ?x { BIND(IRI(CONCAT("urn:", "never")) AS ?x) }')
        prepared = engine.prepare("SELECT ?o { ?s <urn:p> ?o }")
        assert [str(o) for (o,) in prepared(s="<urn:s:1>")] == ["urn:o:1"]
        with pytest.raises(SettingsError, match=told):
            prepared.many([{"s": "<urn:s:1>"}, {"s": "<urn:never>"}])


@pytest.mark.parametrize("count", [10, 3000])
def test_few_free_ids_are_found(count: int) -> None:
    """count: terms that the query computes; with 12 bits there are 4096 ids, and few of them are the data's."""
    with Engine(settings=Settings(hash_bits=12)) as engine:
        engine.load(io.BytesIO(LINES), format="nt")
        values = " ".join(map(str, range(count)))
        rows = ask(engine, f'SELECT ?x {{ VALUES ?n {{ {values} }} BIND(IRI(CONCAT("urn:never:", STR(?n))) AS ?x) }}')
        assert rows == {(f"urn:never:{number}",) for number in range(count)}

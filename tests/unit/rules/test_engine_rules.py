"""Rules of an engine, one behaviour at a time, through its public calls."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import EX, A, at, names, node, rows
from tests.faces import Face
from wukongs import errors
from wukongs.durable.delivery import Delivery
from wukongs.live.update_request import UpdateRequest
from wukongs.rules.fact_search import FactSearch
from wukongs.rules.rule_plans import RulePlan

PREFIX = f"PREFIX : <{EX}>\n"
PART_OF = PREFIX + "RULE part-of: CONSTRUCT { ?x :partOf ?z } WHERE { ?x :partOf ?y . ?y :partOf ?z }"
COPY = PREFIX + "RULE copy: CONSTRUCT { ?x :q ?y } WHERE { ?x :p ?y }"
LONELY = PREFIX + "RULE lonely: CONSTRUCT { ?x a :Lonely } WHERE { ?x :p ?y FILTER NOT EXISTS { ?x :friend ?z } }"
COUNTED = (
    PREFIX
    + "RULE counted: CONSTRUCT { ?x :count ?n } WHERE { SELECT ?x (COUNT(?y) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x }"
)
GROWING = PREFIX + 'RULE growing: CONSTRUCT { ?x :name ?m } WHERE { ?x :name ?n BIND (CONCAT(?n, "x") AS ?m) }'
HIDDEN = (
    "urn:x-wukongs:inferred",
    "urn:x-wukongs:explicit",
    f"urn:x-wukongs:inferred:{EX}g",
    f"urn:x-wukongs:explicit:{EX}g",
)
SETTLE_S = 60.0


@pytest.fixture
def engine() -> Iterator[Any]:
    with wukongs.Engine() as found:
        yield found


def update(engine: Any, text: str) -> int:
    return engine.update(PREFIX + text)


def found(engine: Any, where: str = "?s ?p ?o", dataset: str = "", sn: int | None = None) -> list[str]:
    """The triples of a pattern, as words."""
    result = engine.query(f"{PREFIX}SELECT ?s ?p ?o {dataset} {{ {where} }}", at=sn)
    return [" ".join(row) for row in rows(result)]


def hold(engine: Any, sn: int) -> None:
    """Keep a snapshot from being merged away."""
    with engine._core.lock:
        engine._core.arrangement.open(sn, "a test", expires=False)


def inferred(engine: Any, sn: int | None = None) -> list[str]:
    return found(engine, dataset="FROM <urn:x-wukongs:inferred>", sn=sn)


def explicit(engine: Any, sn: int | None = None) -> list[str]:
    return found(engine, dataset="FROM <urn:x-wukongs:explicit>", sn=sn)


def newest(engine: Any) -> int:
    sn: int = engine.query("ASK {}").snapshot
    return sn


# --- how rules come and go --------------------------------------------------------------------------------------------


def test_rules_that_are_added_conclude_from_what_is_there(engine: Any) -> None:
    update(engine, "INSERT DATA { :a :partOf :b . :b :partOf :c . :c :partOf :d }")
    assert engine.add_rules(PART_OF) == ("part-of",)
    assert inferred(engine) == ["a partOf c", "a partOf d", "b partOf d"]
    assert explicit(engine) == ["a partOf b", "b partOf c", "c partOf d"]
    assert found(engine) == sorted(inferred(engine) + explicit(engine))


def test_rules_are_given_to_the_engine_as_text_as_a_file_or_several(tmp_path: Path) -> None:
    (tmp_path / "copy.rules").write_text(COPY)
    for source in (COPY, tmp_path / "copy.rules", str(tmp_path / "copy.rules"), [COPY], [PART_OF, COPY]):
        with wukongs.Engine(rules=source) as engine:
            update(engine, "INSERT DATA { :a :p :b }")
            assert inferred(engine) == ["a q b"]
            assert "copy" in [one.name for one in engine.rules()]


def test_rules_tell_about_themselves(engine: Any) -> None:
    assert engine.rules() == []
    engine.add_rules(COPY, into=EX + "g")
    [one] = engine.rules()
    assert (one.name, one.into, one.is_paused, one.error) == ("copy", EX + "g", False, None)
    assert "CONSTRUCT" in one.text


def test_dropped_rules_take_their_conclusions_away(engine: Any) -> None:
    update(engine, "INSERT DATA { :a :p :b }")
    engine.add_rules(COPY)
    engine.add_rules(PREFIX + "RULE further: CONSTRUCT { ?x :r ?y } WHERE { ?x :q ?y }")
    assert inferred(engine) == ["a q b", "a r b"]
    before = newest(engine)
    hold(engine, before)
    sn = engine.drop_rules("copy")
    assert sn > before
    assert found(engine) == ["a p b"]
    assert found(engine, sn=before) == ["a p b", "a q b", "a r b"]
    assert [one.name for one in engine.rules()] == ["further"]


def test_a_conclusion_of_two_rules_stays_while_one_of_them_does(engine: Any) -> None:
    update(engine, "INSERT DATA { :a :p :b ; :o :b }")
    engine.add_rules(COPY + "\nRULE other: CONSTRUCT { ?x :q ?y } WHERE { ?x :o ?y }")
    engine.drop_rules("copy")
    assert inferred(engine) == ["a q b"]
    engine.drop_rules("other")
    assert inferred(engine) == []


def test_rules_come_at_one_snapshot(engine: Any) -> None:
    before = update(engine, "INSERT DATA { :a :partOf :b . :b :partOf :c }")
    hold(engine, before)
    engine.add_rules(PART_OF)
    assert inferred(engine, before) == []
    assert found(engine, sn=before) == ["a partOf b", "b partOf c"]
    assert inferred(engine) == ["a partOf c"]


def test_a_rule_that_is_not_there_is_named_with_the_nearest(engine: Any) -> None:
    engine.add_rules(PART_OF)
    for call in (engine.drop_rules, engine.resume_rules):
        with pytest.raises(errors.RuleError, match=r"part-off.*part-of"):
            call("part-off")
        with pytest.raises(errors.RuleError, match="found 5"):
            call(5)
    assert [one.name for one in engine.rules()] == ["part-of"]


def test_a_name_counts_once_in_an_engine(engine: Any) -> None:
    engine.add_rules(COPY)
    with pytest.raises(errors.RuleError, match="copy"):
        engine.add_rules(COPY, into=EX + "g")
    assert len(engine.rules()) == 1


def test_of_a_file_with_a_mistake_no_rule_is_taken(engine: Any) -> None:
    with pytest.raises(errors.RuleError, match="line 3"):
        engine.add_rules(f"{COPY}\nRULE wrong: CONSTRUCT {{ ?x :q ?y }} WHERE {{ ?x :p ?z }}")
    update(engine, "INSERT DATA { :a :p :b }")
    assert engine.rules() == []
    assert found(engine) == ["a p b"]


def test_a_mistake_is_told_with_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.rules"
    file.write_text(f"# a comment\n{COPY}\n\n\nRULE wrong: CONSTRUCT {{ ?x :q ?y }} WHERE {{ ?x :p ?z }}")
    for add in (lambda: wukongs.Engine(rules=file), lambda: wukongs.Engine().add_rules(file)):
        with pytest.raises(errors.RuleError, match=r"wrong\.rules, line 6, column 31: expected variables") as caught:
            add()
        assert "6 | RULE wrong: CONSTRUCT { ?x :q ?y }" in caught.value.excerpt


def test_a_cycle_through_rules_that_are_there_already_is_refused_and_named(engine: Any) -> None:
    engine.add_rules(LONELY)
    cyclic = PREFIX + "RULE befriend: CONSTRUCT { ?x :friend :me } WHERE { ?x a :Lonely }"
    with pytest.raises(errors.RuleError, match=r"(?s)(lonely.*befriend|befriend.*lonely)"):
        engine.add_rules(cyclic)
    assert [one.name for one in engine.rules()] == ["lonely"]
    engine.drop_rules("lonely")
    assert engine.add_rules(cyclic) == ("befriend",)


def test_shipped_rules_are_chosen_by_name() -> None:
    data = """
        PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
        INSERT DATA { :Cat rdfs:subClassOf :Pet . :tom a :Cat . :feeds rdfs:range :Pet . :me :feeds :rex }"""
    for name in ("rdfs", "owl-rl"):
        with wukongs.Engine(rules=name) as engine:
            update(engine, data)
            assert names(engine.query(f"SELECT ?x {{ ?x a <{EX}Pet> }}")) == ["rex", "tom"]


def test_a_set_that_is_not_shipped_is_a_named_error() -> None:
    with pytest.raises(errors.RuleError, match=r"\brdfs\b"):
        wukongs.Engine(rules="rdfss")


# --- explicit and inferred --------------------------------------------------------------------------------------------


def test_inferences_are_there_at_the_snapshot_of_their_cause(engine: Any) -> None:
    engine.add_rules(PART_OF)
    update(engine, "INSERT DATA { :a :partOf :b }")
    before = newest(engine)
    hold(engine, before)
    sn = update(engine, "INSERT DATA { :b :partOf :c }")
    hold(engine, sn)
    gone = update(engine, "DELETE DATA { :a :partOf :b }")
    assert (found(engine, sn=before), inferred(engine, before)) == (["a partOf b"], [])
    assert inferred(engine, sn) == ["a partOf c"]
    assert found(engine, sn=sn) == ["a partOf b", "a partOf c", "b partOf c"]
    assert found(engine, sn=gone) == ["b partOf c"]
    assert newest(engine) == gone, "inferences have no snapshot of their own"


def test_deleting_an_inferred_triple_does_nothing(engine: Any) -> None:
    engine.add_rules(COPY)
    update(engine, "INSERT DATA { :a :p :b }")
    update(engine, "DELETE DATA { :a :q :b }")
    update(engine, "DELETE WHERE { ?x :q ?y }")
    engine.apply(deletes=pa.table({"subject": [node("a")], "predicate": [node("q")], "object": [node("b")]}))
    assert inferred(engine) == ["a q b"]


def test_inserting_an_inferred_triple_makes_it_explicit(engine: Any) -> None:
    engine.add_rules(COPY)
    update(engine, "INSERT DATA { :a :p :b }")
    update(engine, "INSERT DATA { :a :q :b }")
    assert inferred(engine) == []
    assert found(engine) == explicit(engine) == ["a p b", "a q b"]
    update(engine, "DELETE DATA { :a :p :b }")
    assert found(engine) == ["a q b"]


def test_an_explicit_triple_that_is_derivable_stays_as_inferred_when_deleted(engine: Any) -> None:
    update(engine, "INSERT DATA { :a :p :b ; :q :b }")
    engine.add_rules(COPY)
    assert inferred(engine) == []
    update(engine, "DELETE DATA { :a :q :b }")
    assert found(engine) == ["a p b", "a q b"]
    assert inferred(engine) == ["a q b"]


def test_each_triple_comes_once(engine: Any) -> None:
    engine.add_rules(COPY + "\nRULE too: CONSTRUCT { ?x :q ?y } WHERE { ?x :o ?y }")
    update(engine, "INSERT DATA { :a :p :b ; :o :b ; :q :b }")
    assert found(engine, "?s ?p ?o FILTER (?p = :q)") == ["a q b"]
    [[count]] = engine.query("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")
    assert int(count) == 3


def test_a_deletion_asks_only_rules_that_may_conclude_what_has_gone(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [f"RULE r{n}: CONSTRUCT {{ ?x :p{n + 1} ?y }} WHERE {{ ?x :p{n} ?y }}" for n in range(40)]
    engine.add_rules("\n".join([PREFIX, *rules, "RULE also: CONSTRUCT { ?x :p9 ?y } WHERE { ?x :other ?y }"]))
    update(engine, "INSERT DATA { :a :p0 :b ; :other :b }")
    asked: list[RulePlan] = []
    given_heads = RulePlan.given_heads

    def noted(plan: RulePlan, quads: Any) -> Any:
        asked.append(plan)
        return given_heads(plan, quads)

    monkeypatch.setattr(RulePlan, "given_heads", noted)
    update(engine, "DELETE DATA { :a :p0 :b }")
    assert inferred(engine) == sorted(f"a p{n} b" for n in range(9, 41))
    assert len(asked) <= 2 * len(rules)


def test_a_cycle_does_not_hold_itself_up(engine: Any) -> None:
    """Deleting by counting supports alone would leave the round trips there."""
    engine.add_rules(PART_OF)
    update(engine, "INSERT DATA { :a :partOf :b . :b :partOf :c . :c :partOf :a }")
    assert len(found(engine)) == 9
    update(engine, "DELETE DATA { :c :partOf :a }")
    assert found(engine) == ["a partOf b", "a partOf c", "b partOf c"]


def test_what_is_absent_is_followed(engine: Any) -> None:
    engine.add_rules(LONELY)
    update(engine, "INSERT DATA { :a :p :b }")
    assert len(inferred(engine)) == 1
    update(engine, "INSERT DATA { :a :friend :b }")
    assert inferred(engine) == []
    update(engine, "DELETE DATA { :a :friend :b }")
    assert len(inferred(engine)) == 1


def test_counts_are_followed(engine: Any) -> None:
    engine.add_rules(COUNTED)
    update(engine, "INSERT DATA { :a :p :b , :c }")
    assert inferred(engine) == ["a count 2"]
    update(engine, "DELETE DATA { :a :p :b }")
    assert inferred(engine) == ["a count 1"]
    update(engine, "DELETE DATA { :a :p :c }")
    assert inferred(engine) == []


def test_literals_are_no_subjects(engine: Any) -> None:
    engine.add_rules(PREFIX + "RULE back: CONSTRUCT { ?y :back ?x } WHERE { ?x :p ?y }")
    update(engine, 'INSERT DATA { :a :p "b" , 1 , :c }')
    assert inferred(engine) == ["c back a"]


def test_predicates_are_iris(engine: Any) -> None:
    engine.add_rules(PREFIX + "RULE named: CONSTRUCT { ?x ?y ?x } WHERE { ?x :p ?y }")
    engine.load(io.BytesIO(f'{node("a")} {node("p")} "b", _:b, {node("c")} .\n'.encode()), format="ttl")
    assert inferred(engine) == ["a c a"]


def test_loads_are_followed(engine: Any) -> None:
    engine.add_rules(PART_OF)
    lines = "".join(f"{node(f'n{i}')} {node('partOf')} {node(f'n{i + 1}')} .\n" for i in range(20))
    engine.load(io.BytesIO(lines.encode()), format="nt")
    assert len(found(engine)) == 20 * 21 // 2
    assert len(inferred(engine)) == 20 * 21 // 2 - 20


def test_clear_takes_explicit_triples_and_what_follows_from_them(engine: Any) -> None:
    engine.add_rules(COPY)
    engine.add_rules(f"{PREFIX}RULE from-g: CONSTRUCT {{ ?x :r ?y }} WHERE {{ GRAPH :g {{ ?x :p ?y }} }}")
    update(engine, "INSERT DATA { :a :p :b GRAPH :g { :c :p :d } }")
    update(engine, "CLEAR DEFAULT")
    assert found(engine) == inferred(engine) == ["c r d"]
    update(engine, "CLEAR ALL")
    assert found(engine) == []


def test_an_update_without_effect_on_rules_changes_no_inference(engine: Any) -> None:
    engine.add_rules(COPY)
    update(engine, "INSERT DATA { :a :p :b }")
    update(engine, "INSERT DATA { :a :other :b }")
    update(engine, "DELETE DATA { :a :p :c }")
    assert inferred(engine) == ["a q b"]


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_rules_of_a_graph_read_it_and_conclude_into_it(engine: Any) -> None:
    engine.add_rules(COPY, into=EX + "g")
    update(engine, "INSERT DATA { :a :p :b GRAPH :g { :c :p :d } }")
    assert found(engine) == ["a p b"]
    assert found(engine, "GRAPH :g { ?s ?p ?o }") == ["c p d", "c q d"]
    assert found(engine, dataset=f"FROM <urn:x-wukongs:inferred:{EX}g>") == ["c q d"]
    assert found(engine, dataset=f"FROM <urn:x-wukongs:explicit:{EX}g>") == ["c p d"]
    assert inferred(engine) == []


def test_a_graph_of_inferred_triples_is_never_listed(engine: Any, tmp_path: Path) -> None:
    engine.add_rules(COPY)
    engine.add_rules(COPY.replace("copy", "copy-g"), into=EX + "g")
    update(engine, "INSERT DATA { :a :p :b GRAPH :g { :c :p :d } }")
    assert list(engine.graph_names()) == [EX + "g"]
    assert names(engine.query("SELECT ?g { GRAPH ?g { ?s ?p ?o } }")) == ["g", "g"]
    assert names(engine.query("SELECT ?g { GRAPH ?g {} }")) == ["g"]
    engine.dump(tmp_path / "all.nt")
    lines = (tmp_path / "all.nt").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 2
    assert not any(iri in line for iri in HIDDEN for line in lines)


def test_inferred_and_explicit_triples_are_read_together(engine: Any) -> None:
    engine.add_rules(COPY)
    update(engine, "INSERT DATA { :a :p :b }")
    both = "FROM <urn:x-wukongs:inferred> FROM <urn:x-wukongs:explicit>"
    assert found(engine, dataset=both) == ["a p b", "a q b"]
    assert found(engine, dataset="FROM <urn:x-wukongs:inferred> FROM <urn:x-wukongs:default>") == ["a p b", "a q b"]


@pytest.mark.parametrize("iri", HIDDEN)
def test_views_are_not_written(engine: Any, iri: str) -> None:
    engine.add_rules(COPY)
    update(engine, "INSERT DATA { :a :p :b }")
    for text in (
        f"INSERT DATA {{ GRAPH <{iri}> {{ :x :p :y }} }}",
        f"DELETE DATA {{ GRAPH <{iri}> {{ :a :q :b }} }}",
        f"DELETE {{ GRAPH <{iri}> {{ ?x :q ?y }} }} WHERE {{ ?x :q ?y }}",
        f"CLEAR GRAPH <{iri}>",
        f"DROP GRAPH <{iri}>",
        f"COPY DEFAULT TO <{iri}>",
    ):
        with pytest.raises(wukongs.WukongsError, match=iri):
            update(engine, text)
    with pytest.raises(wukongs.WukongsError, match=iri):
        engine.load(io.BytesIO(b"<urn:a> <urn:b> <urn:c> .\n"), iri, format="nt")
    with pytest.raises(wukongs.WukongsError, match=iri):
        engine.load(io.BytesIO(f"<urn:a> <urn:b> <urn:c> <{iri}> .\n".encode()), format="nq")
    with pytest.raises(wukongs.WukongsError, match=iri):
        engine.stream(A, into=iri)
    with pytest.raises(wukongs.WukongsError, match=iri):
        engine.add_rules(COPY.replace("copy", "other"), into=iri)
    assert found(engine) == ["a p b", "a q b"]


# --- streams and registered queries -----------------------------------------------------------------------------------


def tick(engine: Any, stream: Any, t: int, *tuples: tuple[str, str, str, int]) -> None:
    if tuples:
        stream.push(list(tuples))
    stream.advance(t)
    engine.settle(SETTLE_S)


def test_tuples_that_join_the_graph_are_followed_at_the_same_tick(engine: Any) -> None:
    engine.add_rules(COPY)
    stream = engine.stream(A, batch_ms=100)
    tick(engine, stream, 100, at("a", 50))
    before = newest(engine)
    hold(engine, before)
    tick(engine, stream, 200, at("b", 150))
    assert inferred(engine) == ["a q o", "b q o"]
    assert inferred(engine, before) == ["a q o"]
    table = pa.table(
        {"subject": [node("a")], "predicate": [node("p")], "object": [node("o")], "timestamp_ms": [250], "op": ["-"]}
    )
    stream.push_arrow(table)
    tick(engine, stream, 300)
    assert inferred(engine) == ["b q o"]


def windows(query: Any) -> dict[int, list[tuple[str, ...]]]:
    return {window.end_ms: rows(window) for window in query.results(timeout_s=0)}


def test_a_registered_query_sees_what_rules_conclude_at_its_tick(engine: Any) -> None:
    engine.add_rules(COPY)
    stream = engine.stream(A, batch_ms=100)
    tick(engine, stream, 0)
    dataset = f"FROM STREAM <{A}> [RANGE 100ms STEP 100ms] FROM <urn:x-wukongs:default>"
    query = engine.register(f"{PREFIX}REGISTER QUERY w AS SELECT ?x ?y {dataset} WHERE {{ ?x :q ?y }}")
    tick(engine, stream, 100, at("a", 50))
    tick(engine, stream, 200)
    tick(engine, stream, 300, at("b", 250))
    update(engine, "DELETE DATA { :a :p :o }")
    tick(engine, stream, 400)
    a, b = ("a", "o"), ("b", "o")
    assert windows(query) == {100: [a], 200: [a], 300: [a, b], 400: [b]}


def test_readings_are_asked_by_what_rules_conclude(engine: Any) -> None:
    """A tuple of a window is joined with inferred triples, which change while the window slides."""
    engine.add_rules(PART_OF)
    update(engine, "INSERT DATA { :sensor :partOf :room . :room :partOf :house }")
    stream = engine.stream(A, batch_ms=100, timing=True)
    tick(engine, stream, 0)
    query = engine.register(
        f"{PREFIX}REGISTER QUERY w AS SELECT ?v ?place FROM NAMED STREAM <{A}> [RANGE 200ms STEP 100ms]"
        f" FROM <urn:x-wukongs:default> WHERE {{ GRAPH <{A}> {{ ?x :reads ?v }} ?x :partOf ?place }}"
    )
    tick(engine, stream, 100, at("sensor", 50, "reads", "warm"))
    update(engine, "DELETE DATA { :room :partOf :house }")
    tick(engine, stream, 200)
    tick(engine, stream, 300)
    assert windows(query) == {100: [("warm", "house"), ("warm", "room")], 200: [("warm", "room")], 300: []}


def test_istream_reports_what_is_newly_inferred(engine: Any) -> None:
    engine.add_rules(COPY)
    stream = engine.stream(A, batch_ms=100)
    tick(engine, stream, 0)
    dataset = f"FROM STREAM <{A}> [RANGE 100ms STEP 100ms] FROM <urn:x-wukongs:default>"
    query = engine.register(f"{PREFIX}REGISTER ISTREAM w AS SELECT ?x {dataset} WHERE {{ ?x :q ?y }}")
    tick(engine, stream, 100, at("a", 50))
    tick(engine, stream, 200, at("b", 150))
    tick(engine, stream, 300)
    reported = {end_ms: found for end_ms, found in windows(query).items() if found}
    assert reported == {100: [("a",)], 200: [("b",)]}


def test_a_prepared_query_sees_inferences(engine: Any) -> None:
    engine.add_rules(COPY)
    prepared = engine.prepare(f"{PREFIX}SELECT ?y {{ ?x :q ?y }}")
    assert names(prepared({"x": node("a")})) == []
    update(engine, "INSERT DATA { :a :p :b }")
    assert names(prepared({"x": node("a")})) == ["b"]
    update(engine, "DELETE DATA { :a :p :b }")
    assert names(prepared({"x": node("a")})) == []


def test_a_group_by_what_is_computed(engine: Any) -> None:
    engine.add_rules(
        PREFIX
        + "RULE counted: CONSTRUCT { ?k :count ?n } WHERE { SELECT ?k (COUNT(?x) AS ?n) WHERE {"
        + ' ?x :p ?y BIND (IRI(CONCAT("http://ex/k", STR(?y))) AS ?k) } GROUP BY ?k }'
    )
    update(engine, "INSERT DATA { :a :p 1 . :b :p 1 . :c :p 2 }")
    assert inferred(engine) == ["k1 count 2", "k2 count 1"]
    update(engine, "DELETE DATA { :a :p 1 . :c :p 2 }")
    assert inferred(engine) == ["k1 count 1"]
    why = engine.why((node("k1"), node("count"), 1))
    assert [part.triple[0] for part in why.parts] == [node("b")]
    update(engine, "INSERT DATA { :c :p 2 }")
    why = engine.why((node("k1"), node("count"), 1))
    assert [part.triple[0] for part in why.parts] == [node("b")]


def test_the_name_of_the_default_graph_is_that_graph(engine: Any) -> None:
    """So its rules are in one order with the others over it."""
    engine.add_rules(LONELY, into="urn:x-wukongs:default")
    engine.add_rules(PREFIX + "RULE friends: CONSTRUCT { ?x :friend ?y } WHERE { ?x :knows ?y }")
    assert [one.into for one in engine.rules()] == [None, None]
    update(engine, "INSERT DATA { :a :p :b . :a :knows :c }")
    assert inferred(engine) == ["a friend c"]


# --- rules that do not end --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rule_without_end_is_paused_and_the_engine_goes_on(engine: Any) -> None:
    engine.add_rules(GROWING)
    engine.add_rules(COPY)
    update(engine, 'INSERT DATA { :a :name "x" }')
    paused = {one.name: one for one in engine.rules() if one.is_paused}
    assert list(paused) == ["growing"]
    assert paused["growing"].error
    assert "a name x" in found(engine)
    update(engine, "INSERT DATA { :b :p :c }")
    assert "b q c" in found(engine)
    update(engine, 'DELETE DATA { :a :name "x" }')
    engine.resume_rules("growing")
    assert not any(one.is_paused for one in engine.rules())
    assert found(engine) == ["b p c", "b q c"]


@pytest.mark.parametrize("rules", [(COPY, "PAIRS"), ("PAIRS", COPY)])
def test_the_rule_that_takes_too_much_is_the_one_that_is_named(rules: tuple[str, str]) -> None:
    pairs = PREFIX + "RULE pairs: CONSTRUCT { ?x :pair ?y } WHERE { ?x :p ?a . ?y :p ?b }"
    text = "\n".join(pairs if one == "PAIRS" else one for one in rules)
    with wukongs.Engine(settings=wukongs.Settings(rows_max=5000)) as engine:
        update(engine, f"INSERT DATA {{ {' '.join(f':s{i} :p :o{i} .' for i in range(200))} }}")
        with pytest.raises(errors.RuleError, match=r"rule pairs: .* rows_max"):
            engine.add_rules(text)
        assert engine.rules() == []


def test_a_folder_opens_though_a_rule_takes_too_much_by_now(tmp_path: Path) -> None:
    """The copy of the folder is as after a crash: the log has to be replayed."""
    with wukongs.Engine(tmp_path / "data") as engine:
        update(engine, f"INSERT DATA {{ {' '.join(f':s{i} :partOf :s{i + 1} .' for i in range(20))} :a :p :b }}")
        engine.add_rules(COPY)
        engine.add_rules(PART_OF)
        copytree(tmp_path / "data", tmp_path / "crashed")
    for _ in range(2):
        with wukongs.Engine(tmp_path / "crashed", settings=wukongs.Settings(rules_rows_max=100)) as engine:
            assert [(one.name, one.is_paused) for one in engine.rules()] == [("copy", False), ("part-of", True)]
            assert inferred(engine) == ["a q b"]
            update(engine, "INSERT DATA { :a :p :b }")
    with wukongs.Engine(tmp_path / "crashed") as engine:
        assert inferred(engine) == ["a q b"]
        engine.resume_rules("part-of")
        assert len(inferred(engine)) == 1 + 20 * 19 // 2


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rules_rows_max": 10}, "11 triples are derived in one change by now, more than rules_rows_max = 10"),
        ({"rules_timeout_s": 1}, "what follows from one change took longer than rules_timeout_s = 1 in all"),
    ],
)
def test_why_a_rule_is_paused_names_the_setting(settings: dict[str, Any], reason: str) -> None:
    with wukongs.Engine(rules=GROWING, settings=wukongs.Settings(**settings)) as engine:
        update(engine, 'INSERT DATA { :a :name "x" }')
        assert [rule.error for rule in engine.rules()] == [reason]


def test_a_rule_for_which_there_is_no_memory_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise MemoryError

    with wukongs.Engine(rules=COPY) as engine:
        stream = engine.stream(A, batch_ms=100)
        monkeypatch.setattr(RulePlan, "heads_from", none_left)
        monkeypatch.setattr(RulePlan, "heads_of", none_left)
        monkeypatch.setattr(FactSearch, "new", none_left)
        stream.push([(node("a"), node("p"), node("b"), 50)])
        stream.advance(100)
        engine.settle(SETTLE_S)
        assert [rule.is_paused for rule in engine.rules()] == [True]
        assert found(engine) == ["a p b"]
        monkeypatch.undo()
        engine.resume_rules("copy")
        assert inferred(engine) == ["a q b"]


# --- folders, clients, clusters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_restart_keeps_rules_and_inferences(tmp_path: Path, checkpoints: bool) -> None:
    with wukongs.Engine(tmp_path / "data") as engine:
        engine.add_rules(PART_OF)
        engine.add_rules(COPY, into=EX + "g")
        update(engine, "INSERT DATA { :a :partOf :b . :b :partOf :c GRAPH :g { :x :p :y } }")
        if checkpoints:
            engine.checkpoint()
        update(engine, "INSERT DATA { :c :partOf :d }")
        before = found(engine), inferred(engine), [(one.name, one.into, one.text) for one in engine.rules()]
    with wukongs.Engine(tmp_path / "data") as engine:
        assert (found(engine), inferred(engine)) == before[:2]
        assert [(one.name, one.into, one.text) for one in engine.rules()] == before[2]
        assert found(engine, "GRAPH :g { ?s ?p ?o }") == ["x p y", "x q y"]
        update(engine, "DELETE DATA { :b :partOf :c }")
        assert found(engine) == ["a partOf b", "c partOf d"]
        engine.drop_rules("part-of", "copy")
    with wukongs.Engine(tmp_path / "data") as engine:
        assert engine.rules() == []
        assert found(engine, "GRAPH :g { ?s ?p ?o }") == ["x p y"]


def test_a_checkpoint_that_ends_before_rules_were_added_leaves_them_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment that begins with the record of the rules names them at its head, and could be the first one kept."""
    settings = wukongs.Settings(log_segment_bytes=1 << 10)
    with wukongs.Engine(tmp_path / "data", settings=settings) as engine:
        update(engine, f"INSERT DATA {{ {' '.join(f':s{i} :p :o{i} .' for i in range(200))} }}")
        before = newest(engine)
        hold(engine, before)
        engine.add_rules(COPY)
        assert len(inferred(engine)) == 200
        monkeypatch.setattr(Delivery, "boundary", lambda self, sn: min(sn, before))
        engine.checkpoint()
        copytree(tmp_path / "data", tmp_path / "crashed")
    with wukongs.Engine(tmp_path / "crashed", settings=settings) as engine:
        assert [one.name for one in engine.rules()] == ["copy"]
        assert len(inferred(engine)) == 200


@pytest.mark.parametrize("is_paused", [False, True])
def test_bounds_of_one_change_are_not_those_of_a_replay(tmp_path: Path, is_paused: bool) -> None:
    """What two changes have concluded within the bounds stays when the log tells of other rules behind them."""
    settings = wukongs.Settings(rules_rows_max=100)
    with wukongs.Engine(tmp_path / "data", rules=COPY, settings=settings) as engine:
        for start in (0, 60):
            update(engine, f"INSERT DATA {{ {' '.join(f':s{i} :p :o{i} .' for i in range(start, start + 60))} }}")
        engine.add_rules(PART_OF)
        if is_paused:
            update(engine, f"INSERT DATA {{ {' '.join(f':o{i} :partOf :o{i + 1} .' for i in range(60))} }}")
        before = inferred(engine), [(one.name, one.error) for one in engine.rules()]
        assert len(before[0]) == 120
        assert [one.is_paused for one in engine.rules()] == [False, is_paused]
        copytree(tmp_path / "data", tmp_path / "crashed")
    with wukongs.Engine(tmp_path / "crashed", settings=settings) as engine:
        assert (inferred(engine), [(one.name, one.error) for one in engine.rules()]) == before


def test_rules_that_an_engine_is_opened_with_again_are_the_same_ones(tmp_path: Path) -> None:
    for _ in range(2):
        with wukongs.Engine(tmp_path / "data", rules=COPY) as engine:
            assert [one.name for one in engine.rules()] == ["copy"]
            update(engine, "INSERT DATA { :a :p :b }")
            assert inferred(engine) == ["a q b"]


def test_what_follows_beside_a_clear_is_not_explicit_after_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream stores a triple, and what follows from it, when the update has read and not stored yet."""
    where, real = "FROM <urn:x-wukongs:{}:http://ex/g>", UpdateRequest.run

    def look(engine: Any) -> list[list[str]]:
        return [found(engine, dataset=where.format(kind)) for kind in ("explicit", "inferred")]

    with wukongs.Engine(tmp_path / "data") as engine:
        engine.add_rules(COPY, into=EX + "g")
        update(engine, "INSERT DATA { GRAPH :g { :old :p :o } }")
        stream = engine.stream(EX + "s", batch_ms=100, into=EX + "g")

        def run(self: UpdateRequest, place: int, operation: Any) -> None:
            real(self, place, operation)
            stream.push([(node("new"), node("p"), node("o"), 50)])
            stream.advance(1000)

        monkeypatch.setattr(UpdateRequest, "run", run)
        update(engine, "CLEAR GRAPH :g")
        assert look(engine) == [["new p o"], ["new q o"]]
        copytree(tmp_path / "data", tmp_path / "crashed")
    with wukongs.Engine(tmp_path / "crashed") as engine:
        assert look(engine) == [["new p o"], ["new q o"]]


@pytest.mark.parametrize("name", ["connect", "cluster-1", "cluster-3"])
def test_a_client_adds_and_drops_rules(tmp_path: Path, name: str) -> None:
    face = Face(name, "a client adds rules", tmp_path)
    with face.stack:
        client = face.open()
        assert client.add_rules(PART_OF) == ("part-of",)
        update(client, "INSERT DATA { :a :partOf :b . :b :partOf :c }")
        assert inferred(client) == ["a partOf c"]
        assert [(one.name, one.is_paused) for one in client.rules()] == [("part-of", False)]
        with pytest.raises(errors.RuleError, match="part-of"):
            client.drop_rules("part-off")
        client.drop_rules("part-of")
        assert found(client) == ["a partOf b", "b partOf c"]


def test_without_rules_views_are_there(engine: Any) -> None:
    update(engine, "INSERT DATA { :a :p :b }")
    assert inferred(engine) == []
    assert explicit(engine) == found(engine) == ["a p b"]

"""Rules whose bodies are no lists of patterns: followed by the operators of live views, one behaviour at a time, and
random bodies of the whole grammar beside the algebra evaluated by hand."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import EX
from tests.fuzz import SEED, scaled
from tests.oracles.rules import Closure, Program, Rule, Triple, text_of
from tests.rule_programs import fitting, random_rules, random_triple
from tests.unit.csparql.evaluator import evaluate
from tests.unit.csparql.random_queries import PREDICATES, VERTICES, random_query
from tests.unit.rules.test_engine_rules import found, inferred, update
from wukongs import errors
from wukongs.csparql.algebra import Join, Node
from wukongs.csparql.parser_rules import parse_rules
from wukongs.incremental.leaves import DeltaJoin
from wukongs.incremental.operators import Reduce
from wukongs.incremental.zset import ZSet
from wukongs.rules import followed_bodies, program, propagation
from wukongs.rules.changing_graph import NOTHING, ChangingGraph
from wukongs.rules.followed_bodies import FollowedBody
from wukongs.rules.ranks import Ranks
from wukongs.store.tombstones import Difference

PREFIX = f"PREFIX : <{EX}>\n"
KINDS = ("pattern", "pattern", "filter", "union", "graph", "group", "values", "bind", "exists", "optional", "minus")
HEAD = "<http://e/h>"


@pytest.fixture
def engine() -> Iterator[Any]:
    with wukongs.Engine() as made:
        yield made


def rule(body: str, head: str = "?x :q ?z", name: str = "r") -> str:
    return f"{PREFIX}RULE {name}: CONSTRUCT {{ {head} }} WHERE {{ {body} }}\n"


# --- one behaviour at a time ------------------------------------------------------------------------------------------


def test_optional_follows_both_sides(engine: Any) -> None:
    engine.add_rules(rule("?x :p ?y OPTIONAL { ?y :n ?o } BIND(COALESCE(?o, :none) AS ?z)"))
    update(engine, "INSERT DATA { :a :p :b }")
    assert inferred(engine) == ["a q none"]
    update(engine, "INSERT DATA { :b :n :c , :d }")
    assert inferred(engine) == ["a q c", "a q d"]
    update(engine, "DELETE DATA { :b :n :c , :d }")
    assert inferred(engine) == ["a q none"]
    update(engine, "DELETE DATA { :a :p :b }")
    assert inferred(engine) == []


def test_a_conclusion_without_a_value_of_optional_is_not_made(engine: Any) -> None:
    engine.add_rules(rule("?x :p ?y OPTIONAL { ?y :n ?z }", "?x :q ?z . ?x a :Known"))
    update(engine, "INSERT DATA { :a :p :b }")
    assert inferred(engine) == ["a http://www.w3.org/1999/02/22-rdf-syntax-ns#type Known"]


def test_minus_exists_and_nested_not_exists(engine: Any) -> None:
    engine.add_rules(
        rule("?x :p ?z MINUS { ?x :m ?y }", "?x :minus ?z", "minus")
        + rule("?x :p ?z FILTER EXISTS { ?x :m ?y }", "?x :exists ?z", "exists")
        + rule("?x :p ?z FILTER NOT EXISTS { ?x :m ?y FILTER NOT EXISTS { ?y :m ?x } }", "?x :nested ?z", "nested")
        + rule("?x :p ?z FILTER(?z = :c || EXISTS { ?x :m ?z })", "?x :either ?z", "either")
    )
    update(engine, "INSERT DATA { :a :p :b }")
    assert inferred(engine) == ["a minus b", "a nested b"]
    update(engine, "INSERT DATA { :a :m :b }")
    assert inferred(engine) == ["a either b", "a exists b"]
    update(engine, "INSERT DATA { :b :m :a }")
    assert inferred(engine) == ["a either b", "a exists b", "a nested b"]
    update(engine, "DELETE { :a :m :b } INSERT { :a :p :c } WHERE {}")
    assert inferred(engine) == ["a either c", "a minus b", "a minus c", "a nested b", "a nested c"]


def test_a_path_that_repeats(engine: Any) -> None:
    engine.add_rules(rule("?x a :Start . ?x :p+ ?z", name="far") + rule("?x a :Start . ?x :p* ?z", "?x :r ?z", "any"))
    update(engine, "INSERT DATA { :a a :Start ; :p :b . :b :p :c . :c :p :a }")
    assert inferred(engine) == ["a q a", "a q b", "a q c", "a r a", "a r b", "a r c"]
    update(engine, "DELETE DATA { :b :p :c }")
    assert inferred(engine) == ["a q b", "a r a", "a r b"]


def test_a_path_over_conclusions_of_strata_before(engine: Any) -> None:
    engine.add_rules(rule("?x :up ?z", "?z :p ?x", "down") + rule("?x :p+ ?z", name="far"))
    update(engine, "INSERT DATA { :c :up :b . :b :up :a }")
    assert [one for one in inferred(engine) if " q " in one] == ["a q b", "a q c", "b q c"]


def test_a_recursive_rule_with_optional(engine: Any) -> None:
    """Of a circle of conclusions that support only each other nothing is left."""
    engine.add_rules(
        rule("?x :p ?z", name="one") + rule("?x :q ?y . ?y :q ?z OPTIONAL { ?y :n ?o } FILTER(!BOUND(?o))", name="on")
    )
    update(engine, "INSERT DATA { :a :p :b . :b :p :c . :c :p :a }")
    assert len(inferred(engine)) == 9
    update(engine, "DELETE DATA { :c :p :a }")
    assert inferred(engine) == ["a q b", "a q c", "b q c"]
    update(engine, "INSERT DATA { :b :n 1 }")
    assert inferred(engine) == ["a q b", "b q c"]
    update(engine, "DELETE { :b :n 1 } INSERT { :c :p :d } WHERE {}")
    assert inferred(engine) == ["a q b", "a q c", "a q d", "b q c", "b q d", "c q d"]


def test_a_deleted_triple_that_follows_in_another_way_stays(engine: Any) -> None:
    engine.add_rules(rule("?x :p ?y . ?y :p ?z MINUS { ?y :n ?o }") + rule("?x :o ?z", name="other"))
    update(engine, "INSERT DATA { :a :p :b , :c ; :o :e . :b :p :d , :e . :c :p :d }")
    update(engine, "DELETE DATA { :a :p :b }")
    assert inferred(engine) == ["a q d", "a q e"]
    update(engine, "INSERT DATA { :c :n 1 }")
    assert inferred(engine) == ["a q e"]


def test_a_union_below_a_group(engine: Any) -> None:
    engine.add_rules(
        rule("SELECT ?x (COUNT(*) AS ?z) WHERE { { ?x :p ?y } UNION { ?y :p ?x } } GROUP BY ?x HAVING(COUNT(*) > 1)")
    )
    update(engine, "INSERT DATA { :a :p :b , :c . :b :p :c }")
    assert inferred(engine) == ["a q 2", "b q 2", "c q 2"]
    update(engine, "DELETE DATA { :b :p :c }")
    assert inferred(engine) == ["a q 2"]


def test_a_rule_of_a_graph_reads_it(engine: Any) -> None:
    engine.add_rules(rule("?x :p ?y OPTIONAL { ?y :n ?z } FILTER(!BOUND(?z) || ?z != ?x)", "?x :q ?y"), into=EX + "g")
    update(engine, "INSERT DATA { :z :p :b . :b :n :a GRAPH :g { :a :p :b } }")
    assert found(engine, "GRAPH :g { ?s ?p ?o }") == ["a p b", "a q b"]
    update(engine, "INSERT DATA { GRAPH :g { :b :n :a } }")
    assert found(engine, "GRAPH :g { ?s ?p ?o }") == ["a p b", "b n a"]


def test_rules_are_added_dropped_and_paused_with_what_they_keep(engine: Any) -> None:
    update(engine, "INSERT DATA { :a :p :b . :b :n 1 . :c :p :d }")
    nested = rule("?x :p ?z OPTIONAL { ?z :n ?y } OPTIONAL { ?y :m ?w } FILTER(!BOUND(?w))")
    engine.add_rules(nested)
    assert inferred(engine) == ["a q b", "c q d"]
    engine.drop_rules("r")
    update(engine, "DELETE DATA { :c :p :d }")
    engine.add_rules(nested)
    assert inferred(engine) == ["a q b"]
    update(engine, "INSERT DATA { :c :p :d }")
    assert inferred(engine) == ["a q b", "c q d"]


def test_a_data_folder_has_the_same_conclusions_again(tmp_path: Path) -> None:
    text = rule("?x :p ?y OPTIONAL { ?y :n ?o } BIND(CONCAT('l-', STR(COALESCE(?o, 0))) AS ?z)")
    with wukongs.Engine(tmp_path, rules=text) as engine:
        update(engine, "INSERT DATA { :a :p :b . :b :n 1 }")
        assert inferred(engine) == ["a q l-1"]
    with wukongs.Engine(tmp_path) as engine:
        assert inferred(engine) == ["a q l-1"]
        update(engine, "DELETE DATA { :b :n 1 }")
        assert inferred(engine) == ["a q l-0"]


def test_why_names_what_optional_and_union_have_matched(engine: Any) -> None:
    engine.add_rules(rule("?x :p ?z OPTIONAL { ?z :n ?o FILTER(?o > 1) } OPTIONAL { ?x :m ?z }"))
    update(engine, "INSERT DATA { :a :p :b ; :m :b . :b :n 1 }")
    why = engine.why((f"<{EX}a>", f"<{EX}q>", f"<{EX}b>"))
    assert [part.triple[1] for part in why.parts] == [f"<{EX}p>", f"<{EX}m>"]
    engine.add_rules(
        rule("SELECT ?x (COUNT(*) AS ?z) { { ?x :p ?y } UNION { ?x :n ?y } } GROUP BY ?x", "?x :c ?z", "c")
    )
    why = engine.why((f"<{EX}a>", f"<{EX}c>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'))
    assert [part.triple[1] for part in why.parts] == [f"<{EX}p>"]


def test_a_rule_that_takes_too_much_is_paused(engine: Any) -> None:
    settings = wukongs.Settings(rules_rows_max=50)
    with wukongs.Engine(settings=settings, rules=rule("?x :p ?y . ?w :p ?z OPTIONAL { ?x :n ?o }")) as small:
        small.update(f"{PREFIX} INSERT DATA {{ {' '.join(f':s{at} :p :o{at} .' for at in range(20))} }}")
        [one] = small.rules()
        assert one.is_paused
        assert inferred(small) == []
        update(small, "DELETE WHERE { ?s :p ?o }")
        small.resume_rules("r")
        update(small, "INSERT DATA { :a :p :b }")
        assert inferred(small) == ["a q b"]


def test_many_rounds_hold_what_one_does() -> None:
    """What is kept, and the rows of each round, count once and not for each round."""
    body = "?x :q ?y . ?y :p ?z OPTIONAL { ?y :n ?o } OPTIONAL { ?o :m ?w } FILTER(!BOUND(?w))"
    settings = wukongs.Settings(query_bytes_max=16 << 20)
    with wukongs.Engine(
        settings=settings, rules=rule("?x a :Start ; :p ?z", name="one") + rule(body, name="on")
    ) as engine:
        steps = [(f"c{at}", "p", f"c{at + 1}") for at in range(80)]
        noise = [one for at in range(5000) for one in ((f"x{at}", "q", f"y{at}"), (f"y{at}", "p", "z"))]
        lines = "".join(f"<{EX}{s}> <{EX}{p}> <{EX}{o}> .\n" for s, p, o in (*steps, *noise))
        engine.load(io.BytesIO(lines.encode()), format="nt")
        update(engine, "INSERT DATA { :c0 a :Start }")
        assert [one.error for one in engine.rules()] == [None, None]
        assert len(found(engine, ":c0 :q ?o BIND(:c0 AS ?s) BIND(:q AS ?p)")) == 80
        update(engine, "DELETE DATA { :c0 a :Start }")
        assert [one.error for one in engine.rules()] == [None, None]
        assert found(engine, ":c0 :q ?o BIND(:c0 AS ?s) BIND(:q AS ?p)") == []


def test_a_change_that_is_not_sealed_leaves_nothing_behind(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.add_rules(rule("?x :p ?y OPTIONAL { ?y :n ?o } OPTIONAL { ?o :m ?w } BIND(COALESCE(?w, :none) AS ?z)"))
    update(engine, "INSERT DATA { :a :p :b . :b :n :c }")
    outcome = propagation.Propagation._outcome

    def failing(*_: Any) -> Any:
        raise RuntimeError("before the change is sealed")

    monkeypatch.setattr(propagation.Propagation, "_outcome", failing)
    with pytest.raises(RuntimeError, match="before the change is sealed"):
        update(engine, "INSERT DATA { :c :m :d }")
    monkeypatch.setattr(propagation.Propagation, "_outcome", outcome)
    update(engine, "INSERT DATA { :e :p :f }")
    assert inferred(engine) == ["a q none", "e q none"]


def test_a_circle_through_optional_is_refused(engine: Any) -> None:
    with pytest.raises(errors.RuleError, match=r"without a circle through .* OPTIONAL.*r feeds r by OPTIONAL \{"):
        engine.add_rules(rule("?x :p ?z OPTIONAL { ?z :q ?y }"))
    assert engine.rules() == []


# --- beside plain sets ------------------------------------------------------------------------------------------------


def check_program(seed: int, steps: int) -> int:
    """Follow random rules over a graph that changes, in columns and a few triples at a time; return how many of them
    are no lists."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(propagation, "FACTS_MAX", -1)
        if seed % 3 == 0:
            patch.setattr(propagation, "SEEDS_MAX", 3)
        if seed % 5 == 0:
            patch.setattr(propagation, "RANKLESS_MIN", 0)
            patch.setattr(propagation, "RANKLESS_FACTOR", 0)
        return _check_program(seed, steps)


def _check_program(seed: int, steps: int) -> int:
    random = Random(seed)
    explicit: set[Triple] = set()
    installed: list[tuple[str, Rule]] = []
    with wukongs.Engine() as engine:
        for step in range(steps):
            if step % 5 == 0:
                come = fitting(installed, [("", one) for one in random_rules(random, f"r{step}-")])
                if come:
                    engine.add_rules(text_of(one for _, one in come))
                installed += come
            elif step % 7 == 6 and installed:
                _, gone = random.choice(installed)
                engine.drop_rules(gone.name)
                installed = [pair for pair in installed if pair[1] is not gone]
            deleted = set(random.sample(sorted(explicit), min(len(explicit), random.randrange(5))))
            inserted = {random_triple(random) for _ in range(random.randrange(6 if step else 25))}
            engine.update(f"DELETE DATA {{ {_lines(deleted)} }} ; INSERT DATA {{ {_lines(inserted)} }}")
            explicit = (explicit - deleted) | inserted
            closure: Closure = Program(tuple(installed)).closure({"": explicit})
            held = sorted(engine.query("SELECT ?s ?p ?o { ?s ?p ?o }").texts())
            assert held == sorted(closure.all()), text_of(one for _, one in installed)
    return sum(not body.is_list for _, one in installed for body in one.bodies)


def _lines(triples: set[Triple]) -> str:
    return " ".join(f"{' '.join(triple)} ." for triple in sorted(triples))


def test_random_programs_follow_a_graph_that_changes() -> None:
    first = SEED or 0
    assert sum(check_program(seed, 8) for seed in range(first, first + scaled(15))) > 3


# --- beside the algebra -----------------------------------------------------------------------------------------------


def check_body(seed: int, steps: int) -> bool:
    """Follow a rule of a random body that is no list; return whether its conclusions have changed."""
    random = Random(seed)
    while True:
        group = random_query(random, KINDS).partition("*")[2]
        if random.random() < 0.2:
            group = f"{{ SELECT ?a (COUNT(DISTINCT ?c) AS ?b) {group} GROUP BY ?a HAVING(COUNT(*) != 2) }}"
        text = f"RULE r: CONSTRUCT {{ ?a {HEAD} ?b }} WHERE {group}"
        try:
            [parsed] = parse_rules(text)
            made = program.Program.of(program.rules_of(parsed)).rules
        except errors.WukongsError:
            continue
        if any(one.where is not None for one in made):
            break
    graphs: dict[str, set[Triple]] = {name: set() for name in ("", "<http://e/g>")}
    contents = set[frozenset[Triple]]()
    with wukongs.Engine(rules=text) as engine:
        for step in range(steps):
            name = random.choice(list(graphs))
            deleted = set(random.sample(sorted(graphs[name]), min(len(graphs[name]), random.randrange(3))))
            inserted = {
                (random.choice(VERTICES), random.choice(PREDICATES), random.choice(VERTICES))
                for _ in range(random.randrange(4) if step > 1 else 7)
            }
            blocks = (f"GRAPH {name} {{ {_lines(some)} }}" if name else _lines(some) for some in (deleted, inserted))
            engine.update(
                " ; ".join(f"{word} DATA {{ {one} }}" for word, one in zip(("DELETE", "INSERT"), blocks, strict=True))
            )
            graphs[name] = (graphs[name] - deleted) | inserted
            wanted = _closure(parsed.query.pattern, {name: one for name, one in graphs.items() if one or not name})
            held = engine.query(f"SELECT ?s ?o {{ ?s {HEAD} ?o }}").texts()
            assert sorted(held) == sorted((a, b) for a, _, b in wanted), (text, graphs)
            contents.add(frozenset(wanted))
    return len(contents) > 1


def _closure(pattern: Node, graphs: dict[str, set[Triple]]) -> set[Triple]:
    """The conclusions, which patterns with a variable as their predicate read."""
    known: set[Triple] = set()
    while True:
        solutions = evaluate(pattern, {**graphs, "": graphs[""] | known})
        rows = [(row.get("a"), row.get("b")) for row in solutions]
        wanted = {(a, HEAD, b) for a, b in rows if a is not None and b is not None and not a.startswith('"')}
        if wanted == known:
            return known
        known = wanted


def test_random_bodies_of_the_whole_grammar() -> None:
    first = SEED or 0
    assert sum(check_body(seed, 6) for seed in range(first, first + scaled(150))) > 3


# --- the oracles see faults -------------------------------------------------------------------------------------------


def _deleted_are_netted(patch: pytest.MonkeyPatch) -> None:
    """Solutions that are there again after they were deleted are not gained."""

    def gained(body: FollowedBody, graph: ChangingGraph) -> Any:
        found = body._gained.plus(body._moved(graph)).consolidated()
        body._gained = ZSet.empty()
        return followed_bodies._of_sign(found, 1)

    patch.setattr(FollowedBody, "gained", gained)


def _kept_is_lost(patch: pytest.MonkeyPatch) -> None:
    """What `lost` has found to be inserted is forgotten."""
    lost = FollowedBody.lost

    def forgetting(body: FollowedBody, graph: ChangingGraph) -> Any:
        found = lost(body, graph)
        body._gained = ZSet.empty()
        return found

    patch.setattr(FollowedBody, "lost", forgetting)


def _never_installed(patch: pytest.MonkeyPatch) -> None:
    """What operators keep is not evaluated before the first change."""
    patch.setattr(followed_bodies, "install", lambda top, stored: None)


def _nothing_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowedBody, "lost", lambda body, graph: followed_bodies._of_sign(ZSet.empty(), 1))


def _marks_stand_still(patch: pytest.MonkeyPatch) -> None:
    """Each move has all changes of the propagation."""
    since = ChangingGraph.since
    patch.setattr(ChangingGraph, "since", lambda graph, mark, before: since(graph, 0, before))


def _reads_too_little(patch: pytest.MonkeyPatch) -> None:
    """What an OPTIONAL, MINUS or EXISTS reads does not count for the order of strata."""
    reads = program.reads_of
    patch.setattr(program, "reads_of", lambda rule: [one for one in reads(rule) if not one[1] or rule.where is None])


def _joined_on_the_wrong_side(patch: pytest.MonkeyPatch) -> None:
    """Given heads are joined above a filter of the body only: the body is asked for without its MINUS."""

    def joined(node: Any, known: Any, given: Any) -> Any:
        return Join(known, getattr(node, "left", node))

    patch.setattr(followed_bodies, "_joined_below", joined)


def _first_pattern_only(patch: pytest.MonkeyPatch) -> None:
    """A delta join begins with its first pattern only."""
    found = DeltaJoin.found

    def of_first(join: DeltaJoin, change: Any) -> Any:
        join._plans = join._plans[:1]
        return found(join, change)

    patch.setattr(DeltaJoin, "found", of_first)


def _deletes_are_read_after(patch: pytest.MonkeyPatch) -> None:
    """What rested on deleted triples is looked for in a graph without them."""
    changes = propagation._changes

    def of_graph(over: Any, inserted: Any = None, deleted: Any = None) -> Any:
        gone = ChangingGraph(over)
        gone.change(Difference(NOTHING.additions, deleted))
        return changes(gone.now, inserted, deleted)

    patch.setattr(propagation, "_changes", of_graph)


def _first_piece_only(patch: pytest.MonkeyPatch) -> None:
    """Of many triples only the first ones lead to heads."""
    changes = propagation._changes
    patch.setattr(propagation, "SEEDS_MAX", 3)
    patch.setattr(propagation, "_changes", lambda *args, **quads: changes(*args, **quads)[:1])


def _groups_of_inserts_only(patch: pytest.MonkeyPatch) -> None:
    """A group that has lost a row stays as it was."""
    difference = Reduce.difference

    def of_inserts(reduce: Reduce, changed: ZSet, change: Any) -> ZSet:
        return difference(reduce, changed.take(np.flatnonzero(changed.weights > 0)), change)

    patch.setattr(Reduce, "difference", of_inserts)


def _ranks_of_no_body(patch: pytest.MonkeyPatch) -> None:
    """A derivation left from any triples is enough for one to stay."""
    patch.setattr(propagation, "RANKLESS_MIN", 0)
    patch.setattr(propagation, "RANKLESS_FACTOR", 0)
    patch.setattr(Ranks, "raise_to", lambda ranks, found, quads: None)
    patch.setattr(Ranks, "of", lambda ranks, quads: np.ones(len(quads[0]), np.int64))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        _first_pattern_only,
        _deletes_are_read_after,
        _first_piece_only,
        _groups_of_inserts_only,
        _ranks_of_no_body,
        _deleted_are_netted,
        _kept_is_lost,
        _never_installed,
        _nothing_lost,
        _marks_stand_still,
        _reads_too_little,
        _joined_on_the_wrong_side,
    ],
)
def test_a_fault_is_seen(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    for seed in range(400):
        try:
            check_program(seed, 8)
            check_body(seed, 6)
        except AssertionError:
            return
    raise AssertionError("not seen")

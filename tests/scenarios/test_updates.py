"""Engine.update: a request as one snapshot, operations that see each other, templates, whole graphs."""

from __future__ import annotations

import pytest

import wukongs
from tests.engine_helpers import rows, slow_filter
from tests.faces import Face

PREFIX = "PREFIX : <http://ex/> "
ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


def update(engine: wukongs.Engine, text: str) -> int:
    return engine.update(PREFIX + text)


def quads(engine: wukongs.Engine) -> list[str]:
    """All that is stored, `g s p o` with an empty g for the default graph."""
    return [" ".join(row) for row in rows(engine.query(ALL))]


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_request_is_one_snapshot(engine: wukongs.Engine) -> None:
    first = update(engine, "INSERT DATA { :a :p 1 } ; INSERT DATA { :b :p 2 } ; DELETE DATA { :a :p 1 }")
    assert quads(engine) == [" b p 2"]
    assert rows(engine.query("SELECT ?s { ?s ?p ?o }", at=first)) == [("b",)]
    second = update(engine, "INSERT DATA { :c :p 3 }")
    assert (second, engine.query("ASK {}").snapshot) == (first + 1, second)


def test_a_request_that_changes_nothing_is_a_snapshot_too(engine: wukongs.Engine) -> None:
    first = update(engine, "INSERT DATA { :a :p 1 }")
    assert update(engine, "INSERT DATA { :a :p 1 } ; DELETE DATA { :b :p 1 }") == first + 1
    assert quads(engine) == [" a p 1"]


def test_a_request_without_operations_is_none(engine: wukongs.Engine) -> None:
    first = update(engine, "INSERT DATA { :a :p 1 }")
    assert update(engine, "# nothing") == first == engine.stats()["sn"]


def test_nothing_is_applied_if_an_operation_fails(engine: wukongs.Engine) -> None:
    first = update(engine, "INSERT DATA { :a :p 1 }")
    with pytest.raises(wukongs.UpdateError, match="cannot DROP graph <http://ex/g>: there is no such graph"):
        update(engine, "INSERT DATA { :b :p 2 } ; CLEAR DEFAULT ; DROP GRAPH :g ; INSERT DATA { :c :p 3 }")
    assert (quads(engine), engine.stats()["sn"]) == ([" a p 1"], first)
    assert not [handle for handle in engine.stats()["handles"] if "update" in handle["owner"]]
    assert update(engine, "DROP SILENT GRAPH :g") == first + 1


def test_a_request_that_takes_too_long_changes_nothing(engine: wukongs.Engine, face: Face) -> None:
    update(engine, "INSERT DATA { :a :p 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }")
    patterns = "?a ?p ?b . ?c ?q ?d . ?e ?r ?f . ?g ?s ?h . ?i ?t ?j . ?k ?u ?l"
    with pytest.raises(wukongs.QueryTimeout):
        engine.update(
            f"{PREFIX} CLEAR ALL ; INSERT DATA {{ :a :p 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }} ; "
            f"INSERT {{ ?a :q ?l }} WHERE {{ {patterns} {slow_filter('bdfhjl')} }}",
            timeout_s=0.05 if face.name != "cluster-3" else 2,  # what other nodes have is there by then
        )
    assert len(quads(engine)) == 10


@pytest.mark.faces("embedded", "durable")
def test_a_closed_engine_refuses(engine: wukongs.Engine) -> None:
    engine.close()
    with pytest.raises(wukongs.WukongsError, match="this engine is closed"):
        update(engine, "CLEAR ALL")


def test_stats_count_what_was_done(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1, 2 } ; INSERT DATA { :a :p 2, 3 }")
    update(engine, "DELETE { ?s ?p ?o } INSERT { ?s :q ?o } WHERE { ?s ?p ?o FILTER (?o > 1) }")
    assert engine.stats()["updates"] == {"requests": 2, "operations": 3, "deleted": 2, "inserted": 5}


# --- operations that see each other -----------------------------------------------------------------------------------


def test_where_sees_what_came_and_not_what_went(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1 . :b :p 2 }")
    update(
        engine,
        "INSERT DATA { :c :p 3 } ; DELETE DATA { :a :p 1 } ; INSERT { ?s :seen ?o } WHERE { ?s :p ?o } ; "
        "DELETE WHERE { ?s :p 2 } ; INSERT DATA { :a :p 1 } ; INSERT { ?s :again ?o } WHERE { ?s :p ?o }",
    )
    assert quads(engine) == [" a again 1", " a p 1", " b seen 2", " c again 3", " c p 3", " c seen 3"]


def test_what_goes_and_comes_in_one_operation_stays(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1, 2 }")
    update(engine, "DELETE { ?s ?p ?o } INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }")
    assert quads(engine) == [" a p 1", " a p 2"]
    assert engine.stats()["updates"]["deleted"] == 0


def test_templates_read_the_graph_as_it_was(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1 . :b :p 11 }")
    update(engine, "DELETE { ?s :p ?o } INSERT { ?s :p ?n } WHERE { ?s :p ?o BIND (?o + 10 AS ?n) }")
    assert quads(engine) == [" a p 11", " b p 21"]


# --- templates --------------------------------------------------------------------------------------------------------


def test_what_is_no_quad_is_left_out(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1, :b, _:x, 'text' . :a :q :p }")
    update(
        engine,
        "INSERT { ?o :subject :ok . :ok ?o :ok . :ok :object ?o . ?none :p :p . GRAPH ?o { :in :it :is } } "
        "WHERE { :a :p ?o OPTIONAL { ?o :nothing ?none } }",
    )
    made = rows(engine.query(PREFIX + "SELECT (COUNT(*) AS ?n) { ?s :subject :ok }"))
    assert made == [("2",)]  # the IRI and the blank node
    assert rows(engine.query(PREFIX + "SELECT ?p { :ok ?p :ok }")) == [("b",)]
    assert rows(engine.query(PREFIX + "SELECT (COUNT(*) AS ?n) { :ok :object ?o }")) == [("4",)]
    assert rows(engine.query(PREFIX + "SELECT ?o { ?s :p :p }")) == []
    assert len(rows(engine.query(PREFIX + "SELECT ?g { GRAPH ?g { :in :it :is } }"))) == 2


def test_data_with_a_literal_subject_is_refused(engine: wukongs.Engine) -> None:
    for data in ("'a' :p 1 .", "1 :p 1 .", "true :p 1 .", "<<( :s :p :o )>> :p 1 .", "<< 'a' :p 1 >> :q 1 ."):
        for more in ("", ":a :p 2 ; :q 'x' .\n" * 1000):
            with pytest.raises(wukongs.QuerySyntaxError, match="expected a subject that RDF can have") as caught:
                update(engine, f"INSERT DATA {{\n{more}{data} }}")
            assert caught.value.line == 2 + more.count("\n")
    assert quads(engine) == []


def test_computed_terms_stay(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1234567890123456789012345678901234567890 }")
    update(engine, "INSERT { ?s :q ?n } WHERE { ?s :p ?o BIND (?o + 1 AS ?n) }")
    assert rows(engine.query(PREFIX + "SELECT ?n { ?s :q ?n }")) == [("1234567890123456789012345678901234567891",)]
    update(engine, "DELETE { ?s :q ?n } WHERE { ?s :p ?o BIND (?o + 1 AS ?n) }")
    update(engine, "DELETE { ?s :p ?n } WHERE { ?s :p ?o BIND (?o + 7 AS ?n) }")  # which stands nowhere
    assert len(quads(engine)) == 1


def test_graph_names_from_solutions(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :in :g . :b :in :h . :c :in 'no graph' }")
    update(engine, "INSERT { GRAPH ?g { ?s :p 1 } } WHERE { ?s :in ?g }")
    assert engine.graph_names() == ["http://ex/g", "http://ex/h"]
    update(engine, "DELETE { GRAPH ?g { ?s :p 1 } } WHERE { ?s :in ?g FILTER (?g = :g) }")
    assert engine.graph_names() == ["http://ex/h"]


def test_blank_nodes_of_a_template_are_new_in_each_solution(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1 . :b :p 2 . :b :p 2 }")
    text = "INSERT { ?s :has _:n . _:n :of ?o GRAPH :g { _:n :is [] } } WHERE { ?s :p ?o }"
    update(engine, f"{text} ; {text}")
    update(engine, text)
    nodes = rows(engine.query(PREFIX + "SELECT ?n ?s ?o ?x { ?s :has ?n . ?n :of ?o GRAPH :g { ?n :is ?x } }"))
    assert len({row[0] for row in nodes}) == len({row[3] for row in nodes}) == len(nodes) == 6
    assert {row[1:3] for row in nodes} == {("a", "1"), ("b", "2")}


def test_blank_nodes_of_data_are_new(engine: wukongs.Engine) -> None:
    for _ in range(2):
        update(engine, "INSERT DATA { _:a :p _:b . GRAPH :g { _:b :q _:a } } ; INSERT DATA { _:c :r [ :r () ] }")
    assert len(rows(engine.query(PREFIX + "SELECT ?a { ?a :p ?b GRAPH :g { ?b :q ?a } }"))) == 2
    assert len({row[0] for row in rows(engine.query(PREFIX + "SELECT DISTINCT ?c { ?c :r ?x }"))}) == 4


def test_blank_nodes_are_found_by_variables_only(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { _:a :p 1 }")
    update(engine, "DELETE { ?s :p 1 } INSERT { ?s :p 2 } WHERE { ?s :p 1 }")
    assert rows(engine.query("SELECT ?p ?o { ?s ?p ?o }")) == [("p", "2")]
    update(engine, "DELETE WHERE { ?s :p 2 }")
    assert quads(engine) == []


# --- WITH, USING ------------------------------------------------------------------------------------------------------

SPREAD = "INSERT DATA { :d :p 0 GRAPH :g { :g1 :p 1 } GRAPH :h { :h1 :p 2 } }"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("INSERT { :x :q ?s } WHERE { ?s :p ?o }", [" x q d"]),
        ("WITH :g INSERT { :x :q ?s } WHERE { ?s :p ?o }", ["g x q g1"]),
        ("WITH :g INSERT { GRAPH :h { :x :q ?s } } WHERE { ?s :p ?o }", ["h x q g1"]),
        ("WITH :g INSERT { :x :q ?s } WHERE { GRAPH :h { ?s :p ?o } }", ["g x q h1"]),
        ("WITH :g INSERT { :x :q ?s } WHERE { GRAPH ?n { ?s :p ?o } }", ["g x q g1", "g x q h1"]),
        ("WITH :none INSERT { :x :q 1 } WHERE { }", ["none x q 1"]),
        ("WITH :none INSERT { :x :q 1 } WHERE { OPTIONAL { ?s :p ?o } }", ["none x q 1"]),
        ("INSERT { :x :q ?s } USING :g USING :h WHERE { ?s :p ?o }", [" x q g1", " x q h1"]),
        ("INSERT { :x :q ?s } USING :g WHERE { GRAPH ?n { ?s :p ?o } }", []),
        ("INSERT { :x :q ?s } USING NAMED :g WHERE { GRAPH ?n { ?s :p ?o } }", [" x q g1"]),
        ("INSERT { :x :q ?s } USING NAMED :g WHERE { ?s :p ?o }", []),
        ("WITH :h INSERT { :x :q ?s } USING :g WHERE { ?s :p ?o }", ["h x q g1"]),
        ("INSERT { GRAPH <urn:x-wukongs:default> { :x :q ?s } } USING :g WHERE { ?s :p ?o }", [" x q g1"]),
    ],
)
def test_with_and_using(engine: wukongs.Engine, text: str, made: list[str]) -> None:
    update(engine, SPREAD)
    before = quads(engine)
    update(engine, text)
    assert sorted(set(quads(engine)) - set(before)) == made


def test_with_deletes_from_its_graph(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :a :p 1 GRAPH :g { :a :p 1 } }")
    update(engine, "WITH :g DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }")
    assert quads(engine) == [" a p 1"]


# --- whole graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("CLEAR DEFAULT", ["g g1 p 1", "h h1 p 2"]),
        ("CLEAR NAMED", [" d p 0"]),
        ("CLEAR ALL", []),
        ("CLEAR GRAPH :g", [" d p 0", "h h1 p 2"]),
        ("CLEAR GRAPH :none", [" d p 0", "g g1 p 1", "h h1 p 2"]),
        ("DROP DEFAULT", ["g g1 p 1", "h h1 p 2"]),
        ("DROP NAMED", [" d p 0"]),
        ("DROP ALL", []),
        ("DROP GRAPH :g", [" d p 0", "h h1 p 2"]),
        ("CREATE GRAPH :new", [" d p 0", "g g1 p 1", "h h1 p 2"]),
        ("CREATE SILENT GRAPH :g", [" d p 0", "g g1 p 1", "h h1 p 2"]),
        ("CREATE GRAPH :new ; DROP GRAPH :new", [" d p 0", "g g1 p 1", "h h1 p 2"]),
        ("CREATE GRAPH :new ; COPY :new TO :g", [" d p 0", "h h1 p 2"]),
        ("DROP GRAPH :g ; CREATE GRAPH :g", [" d p 0", "h h1 p 2"]),
        ("COPY DEFAULT TO :g", [" d p 0", "g d p 0", "h h1 p 2"]),
        ("COPY :g TO DEFAULT", [" g1 p 1", "g g1 p 1", "h h1 p 2"]),
        ("ADD :g TO :h", [" d p 0", "g g1 p 1", "h g1 p 1", "h h1 p 2"]),
        ("ADD DEFAULT TO :new", [" d p 0", "g g1 p 1", "h h1 p 2", "new d p 0"]),
        ("MOVE :g TO :h", [" d p 0", "h g1 p 1"]),
        ("MOVE DEFAULT TO :g", ["g d p 0", "h h1 p 2"]),
        ("MOVE :g TO :g", [" d p 0", "g g1 p 1", "h h1 p 2"]),
        ("COPY :none TO :none", [" d p 0", "g g1 p 1", "h h1 p 2"]),
        ("COPY SILENT :none TO :g", [" d p 0", "g g1 p 1", "h h1 p 2"]),
        ("CLEAR ALL ; INSERT DATA { :d :p 0 } ; COPY DEFAULT TO :g", [" d p 0", "g d p 0"]),
        ("INSERT DATA { GRAPH :g { :d :p 0 } } ; MOVE :g TO DEFAULT ; CLEAR GRAPH :h", [" d p 0", " g1 p 1"]),
        ("CLEAR GRAPH :g ; INSERT DATA { GRAPH :g { :g1 :p 1 } } ; DELETE DATA { GRAPH :h { :h1 :p 2 } }",
         [" d p 0", "g g1 p 1"]),
    ],
)  # fmt: skip
def test_whole_graphs(engine: wukongs.Engine, text: str, left: list[str]) -> None:
    update(engine, SPREAD)
    update(engine, text)
    assert quads(engine) == left
    assert engine.stats()["stored_triples"] == len(left)
    assert engine.graph_names() == sorted({f"http://ex/{quad.split()[0]}" for quad in left if quad[0] != " "})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE GRAPH :g", "cannot CREATE graph <http://ex/g>: it is there already. With SILENT that is no error"),
        ("CREATE GRAPH :new ; CREATE GRAPH :new", "cannot CREATE graph <http://ex/new>: it is there already"),
        (
            "DROP GRAPH :none",
            "cannot DROP graph <http://ex/none>: there is no such graph. With SILENT that is no error",
        ),
        ("DROP GRAPH :g ; DROP GRAPH :g", "cannot DROP graph <http://ex/g>: there is no such graph"),
        ("CREATE GRAPH :new ; DROP ALL ; DROP GRAPH :new", "cannot DROP graph <http://ex/new>: there is no"),
        ("COPY :none TO :g", "cannot COPY graph <http://ex/none>: there is no such graph"),
        ("MOVE :none TO DEFAULT", "cannot MOVE graph <http://ex/none>: there is no such graph"),
        ("MOVE :g TO :h ; ADD :g TO :h", "cannot ADD graph <http://ex/g>: there is no such graph"),
    ],
)
def test_graphs_that_are_not_there_or_there_already(engine: wukongs.Engine, text: str, message: str) -> None:
    update(engine, SPREAD)
    with pytest.raises(wukongs.UpdateError) as caught:
        update(engine, text)
    assert str(caught.value).startswith(message)
    assert len(quads(engine)) == 3


def test_an_empty_graph_is_forgotten_after_its_request(engine: wukongs.Engine) -> None:
    """Update, 3.2: a store need not record them. So CREATE of a graph that was made before, or emptied, succeeds."""
    update(engine, "INSERT DATA { GRAPH :g { :g1 :p 1 } }")
    for text in ("CREATE GRAPH :new", "CREATE GRAPH :new", "DROP SILENT GRAPH :new", "CLEAR GRAPH :new"):
        update(engine, text)
        assert engine.graph_names() == ["http://ex/g"]
    for text in ("CREATE GRAPH :g", "DROP GRAPH :new", "ADD :new TO :g"):
        with pytest.raises(wukongs.UpdateError, match="With SILENT that is no error"):
            update(engine, text)
    for text in ("CREATE SILENT GRAPH :g", "CLEAR SILENT GRAPH :new", "ADD SILENT :new TO :g"):
        update(engine, text)
    assert quads(engine) == ["g g1 p 1"]
    update(engine, "DELETE WHERE { GRAPH :g { ?s ?p ?o } }")
    update(engine, "CREATE GRAPH :g")
    with pytest.raises(wukongs.UpdateError, match="cannot DROP graph <http://ex/g>: there is no such graph"):
        update(engine, "DROP GRAPH :g")


# --- much data --------------------------------------------------------------------------------------------------------


@pytest.mark.slow_on("durable", "cluster-1", "cluster-3")
def test_much_data_is_stored_and_deleted_as_little_is(face: Face) -> None:
    """Data that are read past the tokenizer: prefixes, base, blank nodes, graphs, what is no plain quad."""
    lines = [
        f":s{i} a :T ; :p {i}, \"x{i}\"@EN ; <q> _:b{i % 7} . GRAPH :g{i % 3} {{ _:b{i % 7} :p 'i' }}"
        for i in range(200)
    ]
    engine, small = face.open(), face.open()
    odd = ":list :is (1 2) . :s0 :p true . :s0 :p 0 . "
    engine.update(f"BASE <http://ex/> {PREFIX} INSERT DATA {{ {' '.join(lines)} {odd} }}")
    found = quads(engine)
    assert len(found) == 200 * 4 + 21 + 5 + 1
    for line in [*lines, odd]:
        small.update(f"BASE <http://ex/> {PREFIX} INSERT DATA {{ {line} }}")
    blank = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } FILTER(!isBlank(?s) && !isBlank(?o)) }"
    assert rows(engine.query(blank)) == rows(small.query(blank))
    ground = "".join(f':s{i} a :T ; :p {i}, "x{i}"@en, {i}.0 . ' for i in range(200))
    update(engine, f"DELETE DATA {{ {ground} GRAPH :g0 {{ :s1 a :T }} }}")
    assert len(quads(engine)) == len(found) - 200 * 3


def test_an_error_in_much_data_stores_nothing(engine: wukongs.Engine) -> None:
    text = "".join(f":s{i} :p {i} .\n" for i in range(1000))
    with pytest.raises(wukongs.QuerySyntaxError, match=r"update, line 1002, column 1: expected a prefix that"):
        update(engine, f"INSERT DATA {{\n{text}none:x :p 1 . }}")
    assert quads(engine) == []

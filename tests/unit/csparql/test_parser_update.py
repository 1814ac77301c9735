"""Updates: what each operation parses to, and what is wrong, by its place."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import DEFAULT, Bgp, DatasetClause, Filter, GraphRef, Project, TriplePattern
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.terms import Term, Variable, iri, literal
from wukongs.csparql.updates import Clear, Create, DeleteData, InsertData, Load, Modify, Operation, Transfer, Update
from wukongs.errors import QuerySyntaxError

S, P, OBJ, G = iri("s"), iri("p"), iri("o"), iri("g")
X, Y, Z = Variable("x"), Variable("y"), Variable("z")
B1, B2 = Variable(".blank1"), Variable(".blank2")


def only(text: str) -> Operation:
    (operation,) = parse_update(text).operations
    return operation


def quad(*parts: Term | Variable, graph: GraphRef = DEFAULT) -> TriplePattern:
    subject, predicate, object_ = parts
    return TriplePattern(subject, predicate, object_, graph)


# --- data and templates -----------------------------------------------------------------------------------------------


def test_data() -> None:
    assert only("INSERT DATA { <s> <p> <o> }") == InsertData((quad(S, P, OBJ),))
    assert only("delete data { <s> <p> <o> . }") == DeleteData((quad(S, P, OBJ),))
    assert only("INSERT DATA { }") == InsertData(())


def test_quads_of_several_graphs() -> None:
    found = only("INSERT DATA { <s> <p> 'a' GRAPH <g> { <s> <p> <o> . } . <s> <p> <o>, _:b GRAPH <s> { } }")
    in_g = quad(S, P, OBJ, graph=G)
    assert found == InsertData((quad(S, P, literal("a")), in_g, quad(S, P, OBJ), quad(S, P, B1)))


def test_a_label_is_one_node_in_all_graphs_of_the_operation() -> None:
    found = only("INSERT DATA { _:a <p> _:b GRAPH <g> { _:b <p> _:a } }")
    assert found == InsertData((quad(B1, P, B2), quad(B2, P, B1, graph=G)))


def test_delete_and_insert() -> None:
    found = only("DELETE { ?x <p> ?y } INSERT { GRAPH ?z { ?x <p> [] } } WHERE { ?x <p> ?y, ?z FILTER (?y > 1) }")
    assert isinstance(found, Modify)
    assert found.delete == (quad(X, P, Y),)
    assert found.insert == (quad(X, P, B1, graph=Z),)
    assert found.where.variables == ("x", "y", "z")
    assert found.where.dataset == DatasetClause()
    assert isinstance(found.where.pattern, Project)
    assert isinstance(found.where.pattern.pattern, Filter)
    assert found.default_graph is None


def test_only_what_the_templates_need_is_projected() -> None:
    found = only("INSERT { <s> <p> ?z } WHERE { ?x <p> ?y, ?z }")
    assert isinstance(found, Modify)
    assert (found.delete, found.where.variables) == ((), ("z",))


def test_delete_where() -> None:
    found = only("DELETE WHERE { ?x <p> <o> GRAPH ?z { ?x ?y <o> } }")
    assert isinstance(found, Modify)
    expected = (quad(X, P, OBJ), quad(X, Y, OBJ, graph=Z))
    assert (found.delete, found.insert) == (expected, ())
    assert found.where.pattern == Project(Bgp(expected), (X, Y, Z))


def test_with_names_the_graph_of_what_names_none() -> None:
    found = only("WITH <g> DELETE { ?x <p> <o> } INSERT { ?x <p> <s> GRAPH <o> { ?x <p> <o> } } WHERE { ?x <p> <o> }")
    assert isinstance(found, Modify)
    assert found.delete == (quad(X, P, OBJ, graph=G),)
    assert found.insert == (quad(X, P, S, graph=G), quad(X, P, OBJ, graph=OBJ))
    assert found.default_graph == G
    assert found.where.pattern == Project(Bgp((quad(X, P, OBJ),)), (X,))


def test_using_takes_the_place_of_with_in_where_only() -> None:
    found = only("WITH <g> INSERT { ?x <p> <s> } USING <a> USING NAMED <b> USING <c> WHERE { ?x <p> <o> }")
    assert isinstance(found, Modify)
    assert found.insert == (quad(X, P, S, graph=G),)
    assert found.where.dataset == DatasetClause(("a", "c"), ("b",))
    assert found.default_graph is None


# --- whole graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CLEAR ALL", Clear("ALL")),
        ("CLEAR SILENT NAMED", Clear("NAMED", silent=True)),
        ("DROP DEFAULT", Clear("DEFAULT", is_drop=True)),
        ("DROP SILENT GRAPH <g>", Clear(G, silent=True, is_drop=True)),
        ("CREATE GRAPH <g>", Create(G)),
        ("CREATE SILENT GRAPH <g>", Create(G, silent=True)),
        ("COPY <g> TO <o>", Transfer("COPY", G, OBJ)),
        ("MOVE SILENT GRAPH <g> TO DEFAULT", Transfer("MOVE", G, None, silent=True)),
        ("ADD DEFAULT TO GRAPH <g>", Transfer("ADD", None, G)),
        ("LOAD <d>", Load("d", None)),
        ("LOAD SILENT <d> INTO GRAPH <g>", Load("d", G, silent=True)),
        ("PREFIX e: <http://e/> LOAD e:d INTO GRAPH e:g", Load("http://e/d", iri("http://e/g"))),
    ],
)
def test_whole_graphs(text: str, expected: Operation) -> None:
    assert only(text) == expected


# --- requests ---------------------------------------------------------------------------------------------------------


def test_operations_with_prologues_between() -> None:
    found = parse_update("PREFIX : <http://a/> CLEAR GRAPH :g ; PREFIX : <http://b/> CLEAR GRAPH :g ; BASE <http://c/>")
    assert found == Update((Clear(iri("http://a/g")), Clear(iri("http://b/g"))))


def test_nothing_is_a_request() -> None:
    assert parse_update("") == parse_update("PREFIX : <http://a/> # nothing") == Update(())


def test_base() -> None:
    assert parse_update("LOAD <d.ttl>", "file:///x/y.ru") == Update((Load("file:///x/d.ttl", None),))


def test_a_template_may_use_the_labels_of_others() -> None:
    update = parse_update(
        "INSERT { _:a <p> <o> } WHERE { _:a <p> <o> } ; INSERT { _:a <p> <o> } WHERE { ?x <p> <o> } ; "
        "INSERT DATA { _:a <p> <o> }"
    )
    assert len(update.operations) == 3


DATA = "terms only in DATA (DELETE or INSERT ... WHERE takes variables)"
BLANK = "no blank node in what is deleted, as it would be a new one (in WHERE, a variable finds them)"
BETWEEN = "';' before the next operation, or the end of the update"
FIRST = "INSERT, DELETE, WITH, LOAD, CLEAR, DROP, CREATE, COPY, MOVE or ADD (or PREFIX or BASE before it)"


@pytest.mark.parametrize(
    ("text", "column", "expected", "found"),
    [
        ("INSERT DATA { ?x <p> <o> }", 15, DATA, "'?x'"),
        ("DELETE DATA { GRAPH ?x { <s> <p> <o> } }", 21, DATA, "'?x'"),
        ("DELETE DATA { <s> <p> _:b }", 23, BLANK, "'_:b'"),
        ("DELETE WHERE { [] <p> <o> }", 16, BLANK, "'['"),
        ("DELETE { ?x <p> (1 2) } WHERE { ?x <p> <o> }", 17, BLANK, "'('"),
        ("WITH <g> DELETE { GRAPH <o> { ?x <p> _:b } } WHERE {}", 38, BLANK, "'_:b'"),
        (
            "INSERT DATA { GRAPH <g> { GRAPH <o> { } } }",
            27,
            "triples only, then '}': a GRAPH block cannot stand in another one",
            "'GRAPH'",
        ),
        ("INSERT DATA { FILTER(1) }", 15, "triples, GRAPH or '}'", "'FILTER'"),
        ("INSERT DATA { GRAPH <g> <s> }", 25, "'{' after the graph", "'<s>'"),
        ("INSERT DATA <s>", 13, "the quads { ... } after INSERT DATA", "'<s>'"),
        ("DELETE DATA <s>", 13, "the quads { ... } after DELETE DATA", "'<s>'"),
        ("DELETE WHERE <s>", 14, "the quads { ... } after DELETE WHERE", "'<s>'"),
        ("INSERT <s>", 8, "the template { ... } or DATA after INSERT", "'<s>'"),
        ("DELETE <s>", 8, "the template { ... }, DATA or WHERE after DELETE", "'<s>'"),
        ("DELETE {} INSERT WHERE", 18, "the template { ... } after INSERT", "'WHERE'"),
        ("DELETE {} <s>", 11, "INSERT, USING or WHERE", "'<s>'"),
        ("INSERT {} DELETE {} WHERE {}", 11, "USING or WHERE", "'DELETE'"),
        ("INSERT {} USING <g> {}", 21, "USING or WHERE after USING", "'{'"),
        ("INSERT {} USING NAMED ?x WHERE {}", 23, "the IRI of a graph after USING", "'?x'"),
        ("WITH ?g INSERT {} WHERE {}", 6, "the IRI of a graph after WITH", "'?g'"),
        ("WITH <g> CLEAR ALL", 10, "DELETE or INSERT after WITH and its graph", "'CLEAR'"),
        ("LOAD ;", 6, "the IRI of a document after LOAD", "';'"),
        ("LOAD <d> INTO <g>", 15, "GRAPH and an IRI after INTO", "'<g>'"),
        ("LOAD <d> INTO GRAPH DEFAULT", 21, "the IRI of a graph after INTO GRAPH", "'DEFAULT'"),
        ("CLEAR <g>", 7, "GRAPH and an IRI, DEFAULT, NAMED or ALL after CLEAR", "'<g>'"),
        ("DROP", 5, "GRAPH and an IRI, DEFAULT, NAMED or ALL after DROP", "the end of the query"),
        ("CLEAR GRAPH ALL", 13, "the IRI of a graph after GRAPH", "'ALL'"),
        ("CREATE <g>", 8, "GRAPH and an IRI after CREATE", "'<g>'"),
        ("CREATE GRAPH 'g'", 14, "the IRI of a graph after CREATE GRAPH", "''g''"),
        ("COPY ALL TO <g>", 6, "the IRI of a graph, or DEFAULT, after COPY", "'ALL'"),
        ("COPY <g> <o>", 10, "TO and a graph", "'<o>'"),
        ("MOVE <g> TO NAMED", 13, "the IRI of a graph, or DEFAULT, after TO", "'NAMED'"),
        ("CLEAR ALL CLEAR ALL", 11, BETWEEN, "'CLEAR'"),
        ("CLEAR ALL ;; CLEAR ALL", 12, FIRST, "';'"),
        ("SERVE", 1, FIRST, "'SERVE'"),
        (
            "INSERT DATA { _:a <p> 1 } ; INSERT DATA { _:a <p> 2 }",
            43,
            "a blank node label that no INSERT DATA before has",
            "'_:a', which would not be the same node",
        ),
        (
            "INSERT {} WHERE { _:a <p> 1 } ; INSERT {} WHERE { _:a <p> 2 }",
            51,
            "a blank node label that is new to this basic graph pattern",
            "'_:a', which is used in another one; a variable can be shared",
        ),
    ],
)
def test_errors(text: str, column: int, expected: str, found: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_update(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert (caught.value.expected, caught.value.found) == (expected, found)
    assert str(caught.value).startswith("update, line 1, column ")


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("SELECT * { ?s ?p ?o }", "query"),
        ("PREFIX : <x> CLEAR ALL ; ASK {}", "query"),
        ("CONSTRUCT WHERE { ?s ?p ?o }", "query"),
        ("DESCRIBE <x>", "query"),
        ("REGISTER QUERY q AS ASK {}", "register"),
    ],
)
def test_a_query_is_told_where_it_belongs(text: str, method: str) -> None:
    with pytest.raises(QuerySyntaxError, match=rf"; a query is given to Engine\.{method} or parse_query, found"):
        parse_update(text)


@pytest.mark.parametrize("text", ["INSERT DATA { <s> <p> <o> }", "PREFIX : <x> DELETE WHERE { ?s ?p ?o }", "CLEAR ALL"])
def test_an_update_is_told_where_it_belongs(text: str) -> None:
    with pytest.raises(QuerySyntaxError, match=r"; an update is given to Engine\.update or parse_update, found"):
        parse_query(text)


def test_deep_nesting_is_an_error() -> None:
    deep = "{" * 5000
    with pytest.raises(QuerySyntaxError, match="nested less deeply"):
        parse_update(f"INSERT {{}} WHERE {deep}")


def test_prefixes_and_the_base_hold_until_they_are_declared_anew() -> None:
    data = "INSERT DATA { e:x e:x <r> }"
    text = f"BASE <http://a/> PREFIX e: <http://a/#> {data} ; PREFIX e: <b#> {data} ; BASE <http://c/> {data}"
    found = [(quad.subject, quad.predicate, quad.object) for op in parse_update(text).operations for quad in op.quads]  # type: ignore[union-attr]
    assert found == [
        (iri("http://a/#x"), iri("http://a/#x"), iri("http://a/r")),
        (iri("http://a/b#x"), iri("http://a/b#x"), iri("http://a/r")),
        (iri("http://a/b#x"), iri("http://a/b#x"), iri("http://c/r")),
    ]

"""What SPARQL knows and we do not support is refused by name and place."""

from __future__ import annotations

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.rules import rewrite
from wukongs.csparql.updates import Modify
from wukongs.errors import UnsupportedFeatureError

SHORT_FORM = "a blank node inside of a triple term in the short form of CONSTRUCT"


@pytest.mark.parametrize(
    ("text", "feature", "column"),
    [
        ("ASK { FILTER <f>(DISTINCT ?x) }", "DISTINCT in a call of <f>", 18),
        ("CONSTRUCT WHERE { ?s ?p <<( _:b ?q ?r )>> }", SHORT_FORM, 25),
    ],
)
def test_refused_by_name_and_place(text: str, feature: str, column: int) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_query(text)
    assert (caught.value.feature, caught.value.line, caught.value.column) == (feature, 1, column)
    assert str(caught.value).startswith(f"query, line 1, column {column}: {feature} is not supported yet")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("ASK { SERVICE <s> { ?s ?p ?o } }", 7),
        ("ASK { SERVICE SILENT ?s { ?s ?p ?o FILTER EXISTS { SERVICE <t> {} } } SERVICE <u> {} }", 7),
        ("SELECT * { { SELECT ?s { GRAPH ?g { OPTIONAL { SERVICE <s> { ?s ?p ?o } } } } } }", 48),
        ("ASK { FILTER EXISTS { SERVICE <s> {} } }", 23),
    ],
)
def test_service_is_grammar_and_no_plan(text: str, column: int) -> None:
    query = parse_query(text)
    with pytest.raises(UnsupportedFeatureError) as caught:
        rewrite(query)
    assert (caught.value.feature, caught.value.line, caught.value.column) == ("SERVICE", 1, column)


def test_service_brings_its_variables_into_scope() -> None:
    assert parse_query("SELECT * { SERVICE ?s { ?a ?b ?c } ?d ?e ?f }").variables == tuple("sabcdef")


def test_service_in_an_update() -> None:
    (operation,) = parse_update("INSERT { ?s ?p ?o } WHERE { SERVICE <s> { ?s ?p ?o } }").operations
    assert isinstance(operation, Modify)
    with pytest.raises(UnsupportedFeatureError, match="SERVICE"):
        rewrite(operation.where)

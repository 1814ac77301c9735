"""What SPARQL knows and we do not support is refused by name and place."""

from __future__ import annotations

import pytest

from csparql.functions import UNSUPPORTED_FUNCTIONS
from csparql.parser import parse_query
from wukongs.errors import UnsupportedFeatureError


@pytest.mark.parametrize(
    ("text", "feature", "column"),
    [
        ("ASK { SERVICE <s> { ?s ?p ?o } }", "SERVICE", 7),
        ("ASK { FILTER isTriple(?x) }", "the function ISTRIPLE", 14),
        ("ASK { FILTER <f>(DISTINCT ?x) }", "DISTINCT in a call of <f>", 18),
        ("ASK { << ?s ?p ?o >> ?q ?r }", "the triple terms and annotations of SPARQL 1.2", 7),
        ("ASK { ?s ?p ?o {| ?q ?r |} }", "the triple terms and annotations of SPARQL 1.2", 16),
        ("ASK { ?s ?p 'a'@ar--rtl }", "the base direction of a language tag (SPARQL 1.2)", 16),
    ],
)
def test_refused_by_name_and_place(text: str, feature: str, column: int) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_query(text)
    assert (caught.value.feature, caught.value.line, caught.value.column) == (feature, 1, column)
    assert str(caught.value).startswith(f"query, line 1, column {column}: {feature} is not supported yet")


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_FUNCTIONS))
def test_every_other_builtin(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"the function {name} is not supported yet"):
        parse_query(f"ASK {{ FILTER ({name.lower()}(?x)) }}")

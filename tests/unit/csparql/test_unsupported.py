"""What SPARQL knows and we do not support is refused by name and place."""

from __future__ import annotations

import pytest

from csparql.parser import parse_query
from wukongs.errors import UnsupportedFeatureError

SHORT_FORM = "a blank node inside of a triple term in the short form of CONSTRUCT"


@pytest.mark.parametrize(
    ("text", "feature", "column"),
    [
        ("ASK { SERVICE <s> { ?s ?p ?o } }", "SERVICE", 7),
        ("ASK { FILTER <f>(DISTINCT ?x) }", "DISTINCT in a call of <f>", 18),
        ("CONSTRUCT WHERE { ?s ?p <<( _:b ?q ?r )>> }", SHORT_FORM, 25),
    ],
)
def test_refused_by_name_and_place(text: str, feature: str, column: int) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_query(text)
    assert (caught.value.feature, caught.value.line, caught.value.column) == (feature, 1, column)
    assert str(caught.value).startswith(f"query, line 1, column {column}: {feature} is not supported yet")

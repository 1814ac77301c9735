"""The W3C's own query texts: what is right parses or is refused by name, what is wrong is an error."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from csparql.parser import parse_query
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError

SUITE = Path(__file__).resolve().parents[4] / "shared" / "w3c"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(
        not (SUITE / "tests.json").is_file(), reason=f"the W3C tests are not beside the project ({SUITE})"
    ),
]


@cache
def query_tests() -> list[dict[str, Any]]:
    """The suite's tests whose text is a query."""
    tests = json.loads((SUITE / "tests.json").read_text(encoding="utf-8"))
    return [test for test in tests if test["text"].endswith(".rq")]


def text_of(test: dict[str, Any]) -> str:
    return Path(SUITE, test["text"]).read_bytes().decode("utf-8")


def test_right_queries_parse_or_are_refused_by_name() -> None:
    right = [test for test in query_tests() if "Negative" not in test["kind"]]
    refused = []
    for test in right:
        try:
            parse_query(text_of(test), "http://example.org/", test["text"])
        except UnsupportedFeatureError as error:
            refused.append(str(error))
        except QuerySyntaxError as error:
            pytest.fail(str(error))
    assert len(right) > 400
    assert len(right) - len(refused) >= 259, "fewer queries parse than once did"


def test_wrong_queries_are_errors() -> None:
    wrong = [test for test in query_tests() if "Negative" in test["kind"]]
    assert len(wrong) > 90
    for test in wrong:
        with pytest.raises((QuerySyntaxError, UnsupportedFeatureError)):
            parse_query(text_of(test), "http://example.org/", test["text"])


def test_wrong_sparql_1_0_queries_are_syntax_errors() -> None:
    """Nothing of SPARQL 1.0 is beyond us, so there the error must be about syntax."""
    for test in query_tests():
        if "Negative" in test["kind"] and test["suite"] == "10":
            with pytest.raises(QuerySyntaxError):
                parse_query(text_of(test), "http://example.org/", test["text"])

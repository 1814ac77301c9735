"""Evaluates one expression that is written in SPARQL."""

from __future__ import annotations

from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Extend, Project
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import XSD
from wukongs.query.expressions.expressions import evaluate

PREFIXES = f"PREFIX xsd: <{XSD}> PREFIX : <http://e/> "


def result(expression: str, base: str | None = None, **row: str) -> str | None:
    """Return the value of an expression as canonical text, None if it is an error; xsd: stands for its long form."""
    return column(expression, list(row), [tuple(row.values())], base)[0]


def column(
    expression: str,
    names: list[str],
    rows: list[tuple[str, ...]] | list[tuple[str | None, ...]],
    base: str | None = None,
    space: ListTermSpace | None = None,
) -> list[str | None]:
    """Return the values of an expression over the rows of a table."""
    pattern = parse_query(f"{PREFIXES} SELECT ({expression} AS ?result) {{}}", base).pattern
    assert isinstance(pattern, Project)
    assert isinstance(pattern.pattern, Extend)
    space = space or ListTermSpace()
    found = space.column(evaluate(pattern.pattern.expression, space.table(names, rows), space))
    return [None if text is None else text.replace(f"^^<{XSD}", "^^<xsd:") for text in found]

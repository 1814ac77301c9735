"""The functions of the language by name: how many arguments each takes, and which give other values at other times.

Functions named by an IRI are not listed: whether one exists shows at evaluation, where an unknown one is an error
(SPARQL 1.1, 17.6). BOUND, which takes a variable, TIMESTAMP of C-SPARQL and the operators are the parser's own.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from wukongs.csparql.algebra import Aggregate, Call, Expression
from wukongs.csparql.terms import Term, Variable

FUNCTIONS: dict[str, tuple[int, int | None]] = {  # name: fewest and most arguments; None: any number
    **dict.fromkeys(("RAND", "NOW", "UUID", "STRUUID"), (0, 0)),
    "BNODE": (0, 1),
    **dict.fromkeys(("STR", "LANG", "DATATYPE", "IRI", "URI", "ISIRI", "ISURI", "ISBLANK", "ISLITERAL"), (1, 1)),
    **dict.fromkeys(("SUBJECT", "PREDICATE", "OBJECT", "ISTRIPLE", "LANGDIR", "HASLANGDIR"), (1, 1)),
    **dict.fromkeys(("TRIPLE", "STRLANGDIR"), (3, 3)),
    **dict.fromkeys(("ISNUMERIC", "HASLANG", "ABS", "CEIL", "FLOOR", "ROUND"), (1, 1)),
    **dict.fromkeys(("STRLEN", "UCASE", "LCASE", "ENCODE_FOR_URI"), (1, 1)),
    **dict.fromkeys(("YEAR", "MONTH", "DAY", "HOURS", "MINUTES", "SECONDS", "TIMEZONE", "TZ"), (1, 1)),
    **dict.fromkeys(("MD5", "SHA1", "SHA256", "SHA384", "SHA512"), (1, 1)),
    **dict.fromkeys(("SAMETERM", "LANGMATCHES", "STRDT", "STRLANG"), (2, 2)),
    **dict.fromkeys(("CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER"), (2, 2)),
    **dict.fromkeys(("SUBSTR", "REGEX"), (2, 3)),
    "REPLACE": (3, 4),
    "IF": (3, 3),
    **dict.fromkeys(("COALESCE", "CONCAT"), (0, None)),
}
ALIASES = {"URI": "IRI", "ISURI": "ISIRI"}
AGGREGATES = frozenset(("COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"))
PER_ROW = frozenset(("RAND", "UUID", "STRUUID", "BNODE"))
"""Functions that give each row a value of its own."""
OF_MOMENT = PER_ROW | {"NOW"}
"""Functions whose values are others at another time."""


def arity_text(name: str) -> str:
    """Say how many arguments a function takes, for an error message."""
    fewest, most = FUNCTIONS[name]
    if most is None:
        return f"{fewest} arguments or more"
    count = f"{fewest}" if fewest == most else f"{fewest} or {most}"
    return f"{count} argument" if most == 1 else f"{count} arguments"


def calls_any(expression: Expression, names: frozenset[str]) -> bool:
    """Whether one of these functions is called somewhere in an expression."""
    if isinstance(expression, Call):
        return expression.op in names or any(calls_any(argument, names) for argument in expression.arguments)
    if isinstance(expression, Aggregate):
        return expression.argument is not None and calls_any(expression.argument, names)
    return False


def depends_on_moment(part: object) -> bool:
    """Whether a part of the algebra calls a function that gives other values at other times."""
    return calls_within(part, OF_MOMENT)


def calls_within(part: object, names: frozenset[str]) -> bool:
    """Whether one of these functions is called somewhere in a part of the algebra."""
    if isinstance(part, Call) and part.op in names:
        return True
    if isinstance(part, tuple):
        return any(calls_within(one, names) for one in part)
    if is_dataclass(part) and not isinstance(part, type | Term | Variable):
        return any(calls_within(getattr(part, field.name), names) for field in fields(part))
    return False

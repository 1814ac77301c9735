"""Functions that take terms apart and make them (SPARQL 1.1, 17.4.2)."""

from __future__ import annotations

import re
from collections.abc import Callable

from csparql.iris import resolve
from csparql.terms import RDF, literal
from wukongs.functions.strings import simple
from wukongs.value_operators import from_truth, same_term
from wukongs.values import Kind, Value, iri, string, tagged, value_of

KIND_TESTS: dict[str, Callable[[Value], bool]] = {
    "ISIRI": lambda value: value.kind == Kind.IRI,
    "ISBLANK": lambda value: value.kind == Kind.BLANK,
    "ISLITERAL": lambda value: value.is_literal,
    "ISNUMERIC": lambda value: value.is_numeric,
    "HASLANG": lambda value: value.kind == Kind.LANG_STRING,
}

_IRI = re.compile(r"""[^<>"{}|^`\\\x00-\x20]*""")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")


def _kind_test(test: Callable[[Value], bool]) -> Callable[[Value], Value | None]:
    return lambda value: from_truth(test(value))


def _str(value: Value) -> Value | None:
    return None if value.kind == Kind.BLANK else string(value.lexical)


def _lang(value: Value) -> Value | None:
    return string(value.language) if value.is_literal else None


def _datatype(value: Value) -> Value | None:
    return iri(value.datatype) if value.is_literal else None


def _iri(value: Value, base: Value | None = None) -> Value | None:
    """Make an IRI of a simple string, resolved against the base; characters that no IRI may hold are an error."""
    if value.kind == Kind.IRI:
        return value
    reference = simple(value)
    if reference is None or _IRI.fullmatch(reference) is None:
        return None
    return iri(resolve(None if base is None else str(base.data), reference))


def _strdt(value: Value, datatype: Value) -> Value | None:
    """Make a typed literal. An rdf:langString without a tag would be none, so it is an error."""
    lexical = simple(value)
    if lexical is None or datatype.kind != Kind.IRI or datatype.data == RDF + "langString":
        return None
    return value_of(literal(lexical, str(datatype.data)).text)


def _strlang(value: Value, tag: Value) -> Value | None:
    lexical, language = simple(value), simple(tag)
    if lexical is None or language is None or _LANGUAGE.fullmatch(language) is None:
        return None
    return tagged(lexical, language)


FUNCTIONS: dict[str, Callable[..., Value | None]] = {
    "SAMETERM": lambda left, right: from_truth(same_term(left, right)),
    "STR": _str,
    "LANG": _lang,
    "DATATYPE": _datatype,
    "IRI": _iri,
    "STRDT": _strdt,
    "STRLANG": _strlang,
    **{name: _kind_test(test) for name, test in KIND_TESTS.items()},
}

"""Functions that take terms apart and make them (SPARQL 1.1, 17.4.2; SPARQL 1.2 for triple terms, base directions)."""

from __future__ import annotations

import re
from collections.abc import Callable

from wukongs.csparql.iris import resolve
from wukongs.csparql.terms import RDF, literal, triple_term
from wukongs.query.functions.strings import simple
from wukongs.query.terms.value_operators import from_truth, same_term
from wukongs.query.terms.values import Kind, Value, iri, string, tagged, text_of, value_of
from wukongs.store.canonical import shown_tag, triple_parts

KIND_TESTS: dict[str, Callable[[Value], bool]] = {
    "ISIRI": lambda value: value.kind == Kind.IRI,
    "ISBLANK": lambda value: value.kind == Kind.BLANK,
    "ISLITERAL": lambda value: value.is_literal,
    "ISNUMERIC": lambda value: value.is_numeric,
    "HASLANG": lambda value: value.kind == Kind.LANG_STRING,
    "HASLANGDIR": lambda value: "--" in value.language,
    "ISTRIPLE": lambda value: value.kind == Kind.TRIPLE,
}

_IRI = re.compile(r"""[^<>"{}|^`\\\x00-\x20]*""")
_TAGGED = (RDF + "langString", RDF + "dirLangString")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")


def _kind_test(test: Callable[[Value], bool]) -> Callable[[Value], Value | None]:
    return lambda value: from_truth(test(value))


def _str(value: Value) -> Value | None:
    return None if value.kind in (Kind.BLANK, Kind.TRIPLE) else string(value.lexical)


def _lang(value: Value) -> Value | None:
    return string(shown_tag(value.language).partition("--")[0]) if value.is_literal else None


def _langdir(value: Value) -> Value | None:
    return string(value.language.partition("--")[2]) if value.is_literal else None


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
    """Make a typed literal. An rdf:langString or rdf:dirLangString without a tag would be none, so it is an error."""
    lexical = simple(value)
    if lexical is None or datatype.kind != Kind.IRI or datatype.data in _TAGGED:
        return None
    return value_of(literal(lexical, str(datatype.data)).text)


def _strlang(value: Value, tag: Value) -> Value | None:
    lexical, language = simple(value), simple(tag)
    if lexical is None or language is None or _LANGUAGE.fullmatch(language) is None:
        return None
    return tagged(lexical, language)


def _strlangdir(value: Value, tag: Value, direction: Value) -> Value | None:
    made = _strlang(value, tag)
    if made is None or simple(direction) not in ("ltr", "rtl"):
        return None
    return tagged(str(made.data), f"{made.language}--{direction.data}")


def _triple(subject: Value, predicate: Value, object_: Value) -> Value | None:
    """Make a triple term; parts that make no triple of RDF are an error."""
    if subject.kind not in (Kind.IRI, Kind.BLANK) or predicate.kind != Kind.IRI:
        return None
    return value_of(triple_term(text_of(subject), text_of(predicate), text_of(object_)).text)


def _part(place: int) -> Callable[[Value], Value | None]:
    return lambda value: value_of(triple_parts(str(value.data))[place]) if value.kind == Kind.TRIPLE else None


FUNCTIONS: dict[str, Callable[..., Value | None]] = {
    "SAMETERM": lambda left, right: from_truth(same_term(left, right)),
    "STR": _str,
    "LANG": _lang,
    "LANGDIR": _langdir,
    "DATATYPE": _datatype,
    "IRI": _iri,
    "STRDT": _strdt,
    "STRLANG": _strlang,
    "STRLANGDIR": _strlangdir,
    "TRIPLE": _triple,
    "SUBJECT": _part(0),
    "PREDICATE": _part(1),
    "OBJECT": _part(2),
    **{name: _kind_test(test) for name, test in KIND_TESTS.items()},
}

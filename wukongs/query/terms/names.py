"""Checks of the names that a caller gives: graphs, streams, terms and lengths of time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from wukongs.csparql.terms import Term, iri, is_reported
from wukongs.errors import DataError, SettingsError
from wukongs.query.terms.python_terms import from_library
from wukongs.query.terms.rdf_terms import from_python
from wukongs.store.encoder import canonical_term
from wukongs.store.hidden_graphs import check_written

_PLAIN_IRI = re.compile(r'<[^\x00-\x20<>"{}|^`\\\ud800-\udfff]+>')
"""An IRI without escapes: it is its own canonical form."""
_NOT_IN_IRI = re.compile(r"[\x00-\x20<>\"{}|\\^`\ud800-\udfff]")


def graph_term(name: str) -> Term:
    """Return the term of a graph's, stream's or predicate's name: an IRI, with or without angle brackets; or of a graph
    whose name is a blank node, the label that `graph_names` and answers have.

    A relative one stays as it is, as in a query without BASE. Raises DataError (a character that no IRI can hold).
    """
    if not isinstance(name, str) and from_library(name) is None:
        raise DataError(f"expected an IRI as a str, found {name!r:.100} of type {type(name).__name__}")
    value = str(name).removeprefix("<").removesuffix(">")
    if not value or _NOT_IN_IRI.search(value):
        raise DataError(f"expected an IRI, without spaces, quotes or any of < > {{ }} | \\ ^ `, found {name!r}")
    return iri(value)


def written_graph(name: str) -> Term:
    """Do the same as graph_term, for a graph that is to be written. Raises DataError also for one that is only read."""
    term = graph_term(name)
    check_written(term.name)
    return term


def plain_iri(name: str) -> str:
    """Return the name of a graph, stream or predicate without angle brackets. Raises as graph_term."""
    return graph_term(name).name


def canonical(value: Any) -> str:
    """Return the canonical form of what stands for a term. Raises DataError.

    A blank node means the one that a result has reported under this very label.
    """
    if type(value) is str and _PLAIN_IRI.fullmatch(value):
        return value
    text = from_python(value)
    if is_reported(text):
        return text
    try:
        return canonical_term(text, b"bindings")
    except DataError as error:
        raise DataError(str(error).removeprefix("row 0, column 'object', ")) from None


def triple_texts(triple: Sequence[Any]) -> list[str]:
    """Return the canonical texts of a subject, a predicate and an object. Raises DataError (no triple, no term)."""
    if isinstance(triple, str) or not isinstance(triple, Sequence) or len(triple) != 3:
        raise DataError(f"triple: expected subject, predicate and object, found {triple!r:.100}")
    return list(given_terms(dict(zip(("subject", "predicate", "object"), triple, strict=True))).values())


def given_terms(bindings: Mapping[str, Any], read: Callable[[Any], str] = canonical) -> dict[str, str]:
    """Return terms by the names of their variables, which may begin with ? or $. read: makes a text of a term.

    Raises SettingsError (a name twice), DataError (naming the variable)."""
    if not isinstance(bindings, Mapping):
        raise SettingsError(f"bindings: expected a dictionary: variable -> term, found {type(bindings).__name__}")
    found: dict[str, str] = {}
    for given, term in bindings.items():
        name = str(given).lstrip("?$")
        if name in found:
            raise SettingsError(f"?{name} is given twice")
        try:
            found[name] = read(term)
        except DataError as error:
            raise DataError(f"?{name}: {error}") from None
    return found


def graph_names(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return IRIs that are given as a list. Raises SettingsError (no list), DataError (a name that is no IRI)."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise SettingsError(f"{option} = {names!r:.100}: expected a list of IRIs")
    return tuple(plain_iri(name) for name in names)


def name_text(option: str, name: object) -> str:
    """Return a name that UTF-8 can hold. Raises SettingsError."""
    try:
        if isinstance(name, str) and name.encode() is not None:
            return name
    except UnicodeError:
        pass
    raise SettingsError(f"{option} = {name!a:.100}: expected a name as a str")


def path_text(option: str, path: object) -> str:
    """Return a path as a text that a file can have. Raises SettingsError."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
        os.fsencode(text)
    except (TypeError, UnicodeError):
        text = ""
    if not text or "\0" in text:
        raise SettingsError(f"{option} = {path!r:.100}: expected the path of a file or folder")
    return text


def positive(name: str, value: int, low: int, unit: str = "milliseconds", high: int = (1 << 63) - 1) -> int:
    """Return an option that is an integer from `low` to `high`. Raises SettingsError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise SettingsError(f"{name} = {value!r:.100}: expected an integer of at least {low}, in {unit}")
    if value > high:
        raise SettingsError(f"{name} = {value!r:.100}: expected an integer of at most {high}, in {unit}")
    return value

"""RML-Core over JSON, in plain Python: one iteration at a time, one combination at a time.

A triples map is described by plain values, from which both the oracle and the text of a mapping are made. A path is a
tuple of keys, with "*" for every element. Sources: RML-Core, "The Output Dataset", "Template", "Datatypes of Literals";
RML-IO-Registry, "Natural RDF mapping of JSON values"; XML Schema 1.1 part 2, E.1 for the canonical form of doubles.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

XSD = "http://www.w3.org/2001/XMLSchema#"
DEFAULT_GRAPH = "http://w3id.org/rml/defaultGraph"
Path = tuple[str, ...]


class BadRecord(Exception):
    """The record makes no triple, and is reported."""


@dataclass(frozen=True)
class Term:
    """kind: of the term; parts: texts and paths of a template, or one path that is a reference; datatype, language: the
    parts of their templates."""

    kind: Literal["iri", "literal", "blank"]
    form: Literal["template", "reference"]
    parts: tuple[str | Path, ...]
    datatype: tuple[str | Path, ...] = ()
    language: tuple[str | Path, ...] = ()


@dataclass(frozen=True)
class Parent:
    """The object of a join: the subject of other records, and the paths that have to be equal, ours and theirs."""

    subject: Term
    iterator: Path
    pairs: tuple[tuple[Path, Path], ...]


@dataclass(frozen=True)
class TriplesMap:
    """iterator: of its iterations; pairs: predicates (IRIs) and objects; graphs: IRIs."""

    iterator: Path
    subject: Term
    pairs: tuple[tuple[str, Term | Parent], ...]
    graphs: tuple[str, ...] = ()


def lines(maps: list[TriplesMap], record: Any, others: list[Any]) -> set[str]:
    """Return the N-Quads lines of one record. others: the records of the file that joins name. Raises: BadRecord."""
    found: set[str] = set()
    for one in maps:
        for node in nodes(record, one.iterator):
            subjects = None
            for predicate, object_ in one.pairs:
                if isinstance(object_, Parent):
                    objects = set(joined(object_, node, others))
                elif any(not values_at(node, path) for path in paths_in(object_)):
                    continue
                elif any(not values_at(node, path) for path in paths_in(one.subject)):
                    continue  # no triple, so nothing of it is checked
                else:
                    objects = set(terms(object_, node))
                if objects and subjects is None:
                    subjects = list(terms(one.subject, node))
                for subject, text in itertools.product(subjects or [], objects):
                    for graph in one.graphs or (DEFAULT_GRAPH,):
                        name = "" if graph == DEFAULT_GRAPH else f" <{graph}>"
                        found.add(f"{subject} <{predicate}> {text}{name} .")
    return found


def joined(parent: Parent, node: Any, others: list[Any]) -> Iterator[str]:
    for other in others:
        for theirs in nodes(other, parent.iterator):
            if all(
                {written(one) for one in values_at(node, ours)} & {written(one) for one in values_at(theirs, path)}
                for ours, path in parent.pairs
            ):
                yield from terms(parent.subject, theirs)


def nodes(value: Any, path: Path) -> list[Any]:
    """Return the nodes that a path selects."""
    found = [value]
    for step in path:
        if step == "*":
            found = [
                child
                for one in found
                for child in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else [])
            ]
        else:
            found = [one[step] for one in found if isinstance(one, dict) and step in one]
    return found


def values_at(value: Any, path: Path) -> list[Any]:
    """Return the values there: an array is its elements; null and the empty text are no values."""
    found = []
    for node in nodes(value, path):
        for one in node if isinstance(node, list) else [node]:
            if isinstance(one, dict | list):
                raise BadRecord
            if one is not None and one != "":
                found.append(one)
    return found


def paths_in(term: Term) -> list[Path]:
    return [part for part in (*term.parts, *term.datatype, *term.language) if isinstance(part, tuple)]


def terms(term: Term, node: Any) -> Iterator[str]:
    """Yield each combination of the values of a term's cells."""
    for value, texts in combinations(term.parts, node):
        for _, datatype in combinations(term.datatype, node):
            for _, language in combinations(term.language, node):
                parts = zip(term.datatype, datatype, strict=True)
                iri_ = "".join(text if isinstance(part, str) else encoded(text) for part, text in parts)
                yield written_term(term, value, texts, iri_, "".join(language))


def combinations(parts: tuple[str | Path, ...], node: Any) -> Iterator[tuple[Any, list[str]]]:
    """Yield the last value and the texts of all parts, for each choice of values; one path has one value at a time."""
    paths = list(dict.fromkeys(part for part in parts if isinstance(part, tuple)))
    for chosen in itertools.product(*(values_at(node, path) for path in paths)):
        of = dict(zip(paths, chosen, strict=True))
        yield (
            chosen[-1] if chosen else None,
            [part if isinstance(part, str) else written(of[part]) for part in parts],
        )


def written_term(term: Term, value: Any, texts: list[str], datatype: str, language: str) -> str:
    if term.kind == "literal":
        return literal(term, value, "".join(texts), datatype, language)
    if term.kind == "blank":
        return "_:" + "".join(label(text) for text in texts)
    if term.form == "template":
        texts = [text if isinstance(part, str) else encoded(text) for part, text in zip(term.parts, texts, strict=True)]
    return f"<{iri(''.join(texts))}>"


def encoded(text: str) -> str:
    """Percent-encode all but RFC 3987's iunreserved, of which the tests have é."""
    return "".join(
        sign if sign == "é" or (sign.isascii() and (sign.isalnum() or sign in "-._~")) else f"%{ord(sign):02X}"
        for sign in text
    )


def iri(text: str) -> str:
    found = text if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) else "http://b/" + text
    if re.search(r'[\x00-\x20<>"{}|\\^`]', found):
        raise BadRecord
    return found


def literal(term: Term, value: Any, text: str, datatype: str, language: str) -> str:
    if language:
        if not re.fullmatch(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{2,8})*", language):
            raise BadRecord
        return f'"{escaped(text)}"@{language}'
    if datatype == XSD + "integer":
        text = text.strip()
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise BadRecord
    if datatype:
        return f'"{escaped(text)}"^^<{iri(datatype)}>'
    if term.form == "reference":
        if isinstance(value, bool):
            return f'"{text}"^^<{XSD}boolean>'
        if isinstance(value, int):
            return f'"{value}"^^<{XSD}integer>'
        if isinstance(value, float):
            return f'"{canonical(value)}"^^<{XSD}double>'
    return f'"{escaped(text)}"'


def canonical(value: float) -> str:
    """Return the shortest text with one digit before the point that is read as this double."""
    for digits in range(1, 18):
        text = f"{value:.{digits}E}"
        if float(text) == value:
            break
    mantissa, _, exponent = text.partition("E")
    whole, _, fraction = mantissa.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}E{int(exponent)}"


def written(value: Any) -> str:
    """Return a value as it stands in the JSON that Python writes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def escaped(text: str) -> str:
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(sign, escape)
    return text


def label(text: str) -> str:
    return "".join(
        sign if sign.isascii() and sign.isalnum() else "".join(f"_{byte:02X}" for byte in sign.encode())
        for sign in text
    )


def turtle(maps: list[TriplesMap], file: str, other: str) -> str:
    """Return the text of the mapping."""
    text = "@prefix rml: <http://w3id.org/rml/> .\n"
    for number, one in enumerate(maps):
        text += f"<#M{number}> {_source(file, one.iterator)} ; rml:subjectMap [ {_term(one.subject)} "
        text += "".join(f"; rml:graph <{graph}> " for graph in one.graphs) + "]"
        for at, (predicate, object_) in enumerate(one.pairs):
            if isinstance(object_, Parent):
                object_text = f"rml:parentTriplesMap <#M{number}P{at}> " + "".join(
                    f'; rml:joinCondition [ rml:child "{_path(ours)}" ; rml:parent "{_path(theirs)}" ] '
                    for ours, theirs in object_.pairs
                )
            else:
                object_text = _term(object_)
            text += f" ; rml:predicateObjectMap [ rml:predicate <{predicate}> ; rml:objectMap [ {object_text} ] ]"
        text += " .\n"
        for at, (_, object_) in enumerate(one.pairs):
            if isinstance(object_, Parent):
                text += f"<#M{number}P{at}> {_source(other, object_.iterator)} ; "
                text += f"rml:subjectMap [ {_term(object_.subject)} ] .\n"
    return text


def _source(file: str, iterator: Path) -> str:
    where = f'rml:source "{file}" ; rml:referenceFormulation rml:JSONPath ; rml:iterator "{_path(iterator)}"'
    return f"rml:logicalSource [ {where} ]"


def _path(path: Path) -> str:
    return "$" + "".join("[*]" if step == "*" else f".{step}" for step in path)


def _template(parts: tuple[str | Path, ...]) -> str:
    return "".join(part if isinstance(part, str) else "{" + _path(part) + "}" for part in parts)


def _term(term: Term) -> str:
    kind = {"iri": "IRI", "literal": "Literal", "blank": "BlankNode"}[term.kind]
    text = f'rml:{term.form} "{_template(term.parts)}" ; rml:termType rml:{kind} '
    if term.form == "reference":
        (path,) = term.parts
        assert isinstance(path, tuple), term
        text = f'rml:reference "{_path(path)}" ; rml:termType rml:{kind} '
    if term.datatype:
        text += f'; rml:datatypeMap [ rml:template "{_template(term.datatype)}" ] '
    if term.language:
        text += f'; rml:languageMap [ rml:template "{_template(term.language)}" ] '
    return text

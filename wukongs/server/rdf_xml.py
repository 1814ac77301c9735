"""A writer of RDF/XML that every parser of XML reads. It names the triples that the format cannot hold.

A predicate is the name of an element, so it has to end in a name of XML. Some terms of the RDF vocabulary are syntax
and no predicates (RDF/XML 1.1, 5.1). A text may hold the characters of XML 1.0 only. An error names each misfit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyoxigraph

from wukongs.store.canonical import shown_tag

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_ITS = "http://www.w3.org/2005/11/its"
_NO_PREDICATES = frozenset(("RDF", "ID", "about", "parseType", "resource", "nodeID", "datatype", "Description", "li"))
_NO_PREDICATES |= {"aboutEach", "aboutEachPrefix", "bagID"}
_START = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd"
)
"""How a name may begin (Namespaces in XML, 4), without characters beyond U+FFFF, which widespread parsers refuse."""
_REST = _START + "\\-.0-9\u00b7\u0300-\u036f\u203f-\u2040"
_NAME_AT_END = re.compile(f"[{_START}][{_REST}]*\\Z")
_SPECIAL = re.compile('[&<>"\r\n\t\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]')
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;", "\n": "&#xA;", "\t": "&#x9;"}
_INSTEAD = "ask for text/turtle, application/n-triples or application/trig"


class NotWritable(Exception):
    """A triple that a format cannot hold: which, why, and which formats can."""


def write_rdf_xml(triples: Iterable[pyoxigraph.Triple]) -> Iterator[str]:
    """Yield a document, in pieces. Raises NotWritable."""
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<rdf:RDF xmlns:rdf="{RDF}" xmlns:its="{_ITS}">\n'
    subject: object = None
    for triple in triples:
        if triple.subject != subject:
            yield "" if subject is None else "</rdf:Description>\n"
            yield f"<rdf:Description{_node(triple.subject, 'about')}>\n"
            subject = triple.subject
        yield _property(triple)
    yield ("" if subject is None else "</rdf:Description>\n") + "</rdf:RDF>\n"


def _property(triple: pyoxigraph.Triple) -> str:
    """Return the element of a predicate and an object."""
    predicate, value = triple.predicate.value, triple.object
    found = _NAME_AT_END.search(predicate)
    if found is None or found.start() == 0:
        raise NotWritable(
            f"RDF/XML cannot hold the predicate <{predicate}>: it does not end in a name of XML, such as "
            f"http://ex.org/name. Instead {_INSTEAD}"
        )
    name, namespace = found[0], predicate[: found.start()]
    if namespace == RDF and name in _NO_PREDICATES:
        raise NotWritable(
            f"RDF/XML cannot hold the predicate <{predicate}>: rdf:{name} is syntax there (RDF/XML 1.1, 5.1). "
            f"Instead {_INSTEAD}"
        )
    tag, begin = (f"rdf:{name}", f"<rdf:{name}") if namespace == RDF else (name, f'<{name} xmlns="{_text(namespace)}"')
    if isinstance(value, pyoxigraph.Triple):
        inner = f"<rdf:Description{_node(value.subject, 'about')}>\n{_property(value)}</rdf:Description>\n"
        return f'{begin} rdf:version="1.2" rdf:parseType="Triple">\n{inner}</{tag}>\n'
    if not isinstance(value, pyoxigraph.Literal):
        return f"{begin}{_node(value, 'resource')}/>\n"
    if value.language is not None:
        begin += f' xml:lang="{shown_tag(value.language)}"'
        if value.direction is not None:
            begin += f' rdf:version="1.2-basic" its:version="2.0" its:dir="{value.direction.value}"'
    elif value.datatype.value != "http://www.w3.org/2001/XMLSchema#string":
        begin += f' rdf:datatype="{_text(value.datatype.value)}"'
    return f"{begin}>{_text(value.value)}</{tag}>\n"


def _node(term: object, attribute: str) -> str:
    if isinstance(term, pyoxigraph.BlankNode):
        return f' rdf:nodeID="{term.value}"'
    assert isinstance(term, pyoxigraph.NamedNode), term
    return f' rdf:{attribute}="{_text(term.value)}"'


def _text(text: str) -> str:
    """Return a text as XML has it, between tags or between quotes. Raises NotWritable."""

    def escaped(match: re.Match[str]) -> str:
        found = _ESCAPES.get(match[0])
        if found is None:
            raise NotWritable(f"RDF/XML cannot hold the character U+{ord(match[0]):04X} of a text. Instead {_INSTEAD}")
        return found

    return _SPECIAL.sub(escaped, text)

"""Turtle, TriG, N3, RDF/XML and JSON-LD as N-Quads, by pyoxigraph: the one place that calls its parser for files.

RDF/XML and JSON-LD are rewritten on the way where the library reads them otherwise than the standards have it
(`store/xml_terms.py`, `store/json_ld_text.py`).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import islice
from typing import IO, cast

import pyoxigraph

from wukongs.errors import DataError
from wukongs.store.encoded import NOT_UTF8
from wukongs.store.json_ld_text import Contexts, JsonLdText
from wukongs.store.xml_terms import RdfXmlText

NO_CONTEXTS = Contexts()
_FORMATS = {
    "nt": pyoxigraph.RdfFormat.N_TRIPLES,
    "nq": pyoxigraph.RdfFormat.N_QUADS,
    "ttl": pyoxigraph.RdfFormat.TURTLE,
    "trig": pyoxigraph.RdfFormat.TRIG,
    "n3": pyoxigraph.RdfFormat.N3,
    "rdf": pyoxigraph.RdfFormat.RDF_XML,
    "jsonld": pyoxigraph.RdfFormat.JSON_LD,
}


class Utf8File:
    """Reads another file. Raises DataError, with the line, at the first byte that is not UTF-8."""

    def __init__(self, source: IO[bytes], name: str) -> None:
        self._source, self._name, self._line = source, name, 1
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._line + error.object.count(b"\n", 0, error.start)
            reason = f"{NOT_UTF8}: byte 0x{error.object[error.start]:02X}"
            raise DataError(reason, self._name, line) from None
        self._line += data.count(b"\n")
        return data


def parse_to_nquads(
    file: IO[bytes],
    format: str,
    base: str | None,
    contexts: Contexts = NO_CONTEXTS,
    *,
    name: str = "",
    chunk_quads: int = 1 << 17,
) -> Iterator[bytes]:
    """Return the quads of a file as lines of N-Quads, at most chunk_quads of them at a time.

    format: a name of rdf_files.FORMATS; base: of relative IRIs; contexts: files for contexts of JSON-LD; name: of the
    file, in errors. Raises ValueError (a base that is no IRI); while it is read SyntaxError, ValueError (no RDF),
    DataError (a context that is not at hand, a byte that is not UTF-8)."""
    file = cast("IO[bytes]", Utf8File(file, name))
    source = _source(file, format, base, contexts, name)
    quads = pyoxigraph.parse(cast("IO[bytes]", source or file), format=_FORMATS[format], base_iri=base)

    def pieces() -> Iterator[bytes]:
        while data := pyoxigraph.serialize(islice(quads, chunk_quads), format=pyoxigraph.RdfFormat.N_QUADS):
            yield data if source is None else source.restored(data)

    return pieces()


def parse_quads(
    file: IO[bytes], format: str, base: str | None, contexts: Contexts = NO_CONTEXTS, *, name: str = ""
) -> list[pyoxigraph.Quad]:
    """Return the quads of a small document. The parameters and errors are those of parse_to_nquads."""
    source = _source(file, format, base, contexts, name)
    quads = list(pyoxigraph.parse(cast("IO[bytes]", source or file), format=_FORMATS[format], base_iri=base))
    if source is not None and source.has_stand_ins:
        lines = source.restored(pyoxigraph.serialize(quads, format=pyoxigraph.RdfFormat.N_QUADS) or b"")
        quads = list(pyoxigraph.parse(lines, format=pyoxigraph.RdfFormat.N_QUADS))
    return quads


def _source(
    file: IO[bytes], format: str, base: str | None, contexts: Contexts, name: str
) -> RdfXmlText | JsonLdText | None:
    """Return the file as the library may read it; None: as it is."""
    if format == "rdf":
        return RdfXmlText(file, base, resolve)
    return JsonLdText(file, name, base, contexts, resolve) if format == "jsonld" else None


def resolve(base: str, reference: str) -> str | None:
    """Return the absolute IRI of a reference (RFC 3986, 5.2), None if it has none."""
    text = "".join(one if one > " " and one not in '<>"{}|^`\\' else f"\\u{ord(one):04X}" for one in reference)
    try:
        (quad,) = pyoxigraph.parse(f"<{text}> <urn:p> <urn:o> .", pyoxigraph.RdfFormat.TURTLE, base_iri=base)
    except (SyntaxError, ValueError):
        return None
    return str(quad.subject.value)

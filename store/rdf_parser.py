"""Turtle, TriG, N3, RDF/XML and JSON-LD as N-Quads, by pyoxigraph: the one place that calls its parser for files.

RDF/XML and JSON-LD are rewritten on the way where the library reads them otherwise than the standards have it
(`store/xml_terms.py`, `store/json_ld_text.py`). The text that the library reads is bounded (`store/token_scan.py`).
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any, cast

import pyoxigraph

from wukongs.errors import DataError
from wukongs.store.encoded import NOT_UTF8
from wukongs.store.json_ld_text import Contexts, JsonLdText
from wukongs.store.token_scan import ScannedFile
from wukongs.store.xml_terms import RdfXmlText

NO_CONTEXTS = Contexts()
PIECE_BYTES = 32 << 20
"""A piece of N-Quads is not much longer, whatever its terms are."""
WRITTEN_BYTES, WRITTEN_FACTOR = 64 << 20, 1_000
"""N-Quads may take as many bytes as the first says, or as the document has times the second."""
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
        self.read_bytes = self.written_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.read_bytes += len(data)
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._line + error.object.count(b"\n", 0, error.start)
            reason = f"{NOT_UTF8}: byte 0x{error.object[error.start]:02X}"
            raise DataError(reason, self._name, line) from None
        self._line += data.count(b"\n")
        return data


class _Piece(io.BytesIO):
    """Lines of N-Quads, up to PIECE_BYTES or one quad more. Raises DataError once they make far more text than the file
    has: a long base or prefix that is used often."""

    def __init__(self, name: str, file: Utf8File) -> None:
        super().__init__()
        self._name, self._file = name, file

    def write(self, data: Any) -> int:
        file = self._file
        file.written_bytes += len(data)
        if file.written_bytes > max(WRITTEN_BYTES, WRITTEN_FACTOR * file.read_bytes):
            raise DataError(
                f"the IRIs written out take more than {WRITTEN_FACTOR} times as many bytes as the document so far "
                f"({file.read_bytes:,}): expected a shorter base and shorter prefixes",
                self._name,
            )
        return super().write(data)

    def up_to_full(self, quads: Iterator[pyoxigraph.Quad]) -> Iterator[pyoxigraph.Quad]:
        for quad in quads:
            yield quad
            if self.tell() >= PIECE_BYTES:
                return


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
    counted = Utf8File(file, name)
    file = cast("IO[bytes]", counted)
    source = _source(file, format, base, contexts, name)
    scanned = cast("IO[bytes]", ScannedFile(cast("IO[bytes]", source or file), name, format))
    quads = pyoxigraph.parse(scanned, format=_FORMATS[format], base_iri=base)

    def pieces() -> Iterator[bytes]:
        while True:
            piece = _Piece(name, counted)
            some = piece.up_to_full(islice(quads, chunk_quads))
            pyoxigraph.serialize(some, piece, format=pyoxigraph.RdfFormat.N_QUADS)
            data = piece.getvalue()
            if not data:
                return
            yield data if source is None else source.restored(data)

    return pieces()


def parse_quads(
    file: IO[bytes], format: str, base: str | None, contexts: Contexts = NO_CONTEXTS, *, name: str = ""
) -> list[pyoxigraph.Quad]:
    """Return the quads of a small document. The parameters and errors are those of parse_to_nquads."""
    source = _source(file, format, base, contexts, name)
    scanned = cast("IO[bytes]", ScannedFile(cast("IO[bytes]", source or file), name, format))
    quads = list(pyoxigraph.parse(scanned, format=_FORMATS[format], base_iri=base))
    if source is not None and source.has_stand_ins:
        lines = source.restored(pyoxigraph.serialize(quads, format=pyoxigraph.RdfFormat.N_QUADS) or b"")
        quads = list(pyoxigraph.parse(lines, format=pyoxigraph.RdfFormat.N_QUADS))
    return quads


def _source(
    file: IO[bytes], format: str, base: str | None, contexts: Contexts, name: str
) -> RdfXmlText | JsonLdText | None:
    """Return the file as the library may read it; None: as it is."""
    if format == "rdf":
        return RdfXmlText(file, name, base, resolve)
    return JsonLdText(file, name, base, contexts, resolve) if format == "jsonld" else None


def resolve(base: str, reference: str) -> str | None:
    """Return the absolute IRI of a reference (RFC 3986, 5.2), None if it has none."""
    text = "".join(one if one > " " and one not in '<>"{}|^`\\' else f"\\u{ord(one):04X}" for one in reference)
    try:
        (quad,) = pyoxigraph.parse(f"<{text}> <urn:p> <urn:o> .", pyoxigraph.RdfFormat.TURTLE, base_iri=base)
    except (SyntaxError, ValueError):
        return None
    return str(quad.subject.value)

"""Media types: which format a client gets by its Accept header, and in which format what it sends is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wukongs.query.output.results import Result
from wukongs.query.output.serialize import byte_chunks
from wukongs.store.canonical import shown_tag


@dataclass(frozen=True, slots=True)
class Media:
    """A format as clients name it: name, in the parameter `format` and where we speak of it; types: the media type that
    we say, then others that ask for the same; writes: the format of results that is written."""

    name: str
    types: tuple[str, ...]
    writes: str

    @property
    def content_type(self) -> str:
        is_text = self.types[0].startswith("text/")
        return f"{self.types[0]}; charset=utf-8" if is_text else self.types[0]


ARROW = Media("arrow", ("application/vnd.apache.arrow.stream",), "arrow")
ROWS = (
    Media("json", ("application/sparql-results+json", "application/json", "text/json"), "json"),
    Media("xml", ("application/sparql-results+xml", "application/xml", "text/xml"), "xml"),
    Media("csv", ("text/csv",), "csv"),
    Media("tsv", ("text/tab-separated-values",), "tsv"),
    ARROW,
    Media("table", ("text/plain",), "table"),
)
TURTLE = Media("ttl", ("text/turtle", "application/x-turtle", "application/turtle"), "ttl")
N_TRIPLES = Media("nt", ("application/n-triples", "text/plain"), "nt")
TRIG = Media("trig", ("application/trig", "application/x-trig"), "ttl")
N_QUADS = Media("nq", ("application/n-quads", "text/x-nquads"), "nt")
RDF_XML = Media("rdf", ("application/rdf+xml", "application/xml", "text/xml"), "nt")
JSON_LD = Media("jsonld", ("application/ld+json", "application/json"), "nt")
NOTATION3 = Media("n3", ("text/n3", "text/rdf+n3"), "ttl")
GRAPHS = (TURTLE, N_TRIPLES, RDF_XML, JSON_LD, TRIG, N_QUADS, ARROW)
"""A graph in Turtle is one in TriG, too, and so are N-Triples N-Quads."""
DATASETS = (TRIG, N_QUADS)
DOCUMENTS = (TURTLE, N_TRIPLES, RDF_XML, JSON_LD, NOTATION3, TRIG, N_QUADS)
"""The formats that can be loaded."""


def choose(accept: str | None, offered: Sequence[Media]) -> Media | None:
    """Return the format that an Accept header prefers; of those that it likes as much, the first. None: it takes
    none."""
    if accept is None or not accept.strip():
        return offered[0]
    ranges = list(_ranges(accept))
    rated = [(_quality(ranges, media), media) for media in offered]
    best = max(quality for quality, _ in rated)
    return next(media for quality, media in rated if quality == best) if best > 0 else None


def named(name: str, offered: Iterable[Media]) -> Media | None:
    """Return the format with a name, or with this media type."""
    return next((media for media in offered if name == media.name or name in media.types), None)


def base_type(content_type: str) -> str:
    """Return a media type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s";]+)', re.IGNORECASE)


def is_utf8(content_type: str) -> bool:
    """Whether a text of this type is in UTF-8, as far as the type says."""
    found = _CHARSET.search(content_type)
    return found is None or found[1].lower() in ("utf-8", "utf8", "us-ascii")


def _ranges(accept: str, *, slash: bool = True) -> Iterator[tuple[str, float]]:
    """Read an Accept header: names (with slash: media ranges) with their quality; what is malformed is passed over."""
    for part in accept.split(","):
        name, *parameters = (one.strip().lower() for one in part.split(";"))
        qualities = [one[2:] for one in parameters if one.startswith("q=")]
        try:
            quality = float(qualities[0]) if qualities else 1.0
        except ValueError:
            continue
        if ("/" in name or not slash) and 0 <= quality <= 1:
            yield name, quality


def _quality(ranges: Sequence[tuple[str, float]], media: Media) -> float:
    """Return how much a format is liked: the range that fits its type best decides, or one of its other names."""
    liked = 0.0
    for fitting in (media.types[0], media.types[0].partition("/")[0] + "/*", "*/*"):
        found = [quality for name, quality in ranges if name == fitting]
        if found:
            liked = max(found)
            break
    return max([liked, *(quality for name, quality in ranges if name in media.types[1:])])


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header lets an answer be packed."""
    liked = dict(_ranges(accept_encoding, slash=False))
    return liked.get("gzip", liked.get("*", 0.0)) > 0


def written(result: Result, media: Media) -> Iterator[bytes]:
    """Iterate over the bytes of a result, in chunks of rows. Raises, while they are made, NotWritable (RDF/XML and
    JSON-LD: a triple that they cannot hold; nothing is given then)."""
    chunks = map(bytes, byte_chunks(result, media.writes))
    if media not in (RDF_XML, JSON_LD):
        yield from chunks
        return
    yield converted(b"".join(chunks), media)


def converted(text: bytes, media: Media) -> bytes:
    """Return N-Triples, or Turtle, as N-Triples, RDF/XML or JSON-LD. Raises NotWritable."""
    import pyoxigraph

    from wukongs.server.rdf_xml import NotWritable, write_rdf_xml

    quads = pyoxigraph.parse(text, pyoxigraph.RdfFormat.TURTLE, lenient=True)  # our own terms
    if media is RDF_XML:
        return "".join(write_rdf_xml(quad.triple for quad in quads)).encode()

    def triples() -> Iterator[pyoxigraph.Triple]:
        for quad in quads:
            if media is JSON_LD and isinstance(quad.object, pyoxigraph.Triple):
                raise NotWritable(
                    "JSON-LD 1.1 cannot hold a triple term: ask for text/turtle, application/n-triples or "
                    "application/trig"
                )
            yield quad.triple

    format = pyoxigraph.RdfFormat.JSON_LD if media is JSON_LD else pyoxigraph.RdfFormat.N_TRIPLES
    found = pyoxigraph.serialize(triples(), format=format)
    assert found is not None, "without a destination it returns the bytes"
    return _with_shown_tags(found, media)


_TAGS = {
    "jsonld": re.compile(rb'("@language":")([^"]+)'),
}
_TAGS_OF_STRINGS = re.compile(rb'''("(?:[^"\\]|\\.)*+"@)([A-Za-z0-9-]+)|"(?:[^"\\]|\\.)*+"''')


def _with_shown_tags(text: bytes, media: Media) -> bytes:
    """Put the usual case of language tags into the text of a library, which writes them in lower case. Quotes inside of
    strings are escaped in all these formats, so each tag that is found is one."""

    def shown(found: re.Match[bytes]) -> bytes:
        return found[0] if found[1] is None else found[1] + shown_tag(found[2].decode()).encode()

    return _TAGS.get(media.name, _TAGS_OF_STRINGS).sub(shown, text)

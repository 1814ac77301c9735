"""The generator's words: the vocabulary of LSBench, invented words by number, and columns of text made of both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.store.dtypes import BoolArray, Int64Array

SIB = "http://www.ins.cwi.nl/sib/"
RDF_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_PREFIXES = {
    "foaf": "http://xmlns.com/foaf/0.1/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcterms": "http://purl.org/dc/terms/",
    "sioc": "http://rdfs.org/sioc/ns#",
    "sioct": "http://rdfs.org/sioc/type#",
    "dbp": "http://dbpedia.org/resource/",
    "dbpo": "http://dbpedia.org/ontology/",
    "dbpprop": "http://dbpedia.org/property/",
    "sib": SIB + "vocabulary/",
}
_ENTITIES = {
    "person": ("person", "p"),
    "user": ("user", "u"),
    "forum": ("forum", "fo"),
    "friendship": ("friendship", "fr"),
    "group": ("group", "g"),
    "membership": ("group/membership", "gm"),
    "post": ("post", "po"),
    "comment": ("post/comment", "co"),
    "album": ("photoalbum", "pa"),
    "photo": ("photoalbum/photo", "pho"),
    "position": ("gps", "gps"),
}
_EPOCH_MS = int(np.datetime64("2010-02-01T00:00:00", "ms").astype(np.int64))
"""Event times count from here, as in LSBench."""
BROWSERS = ("Kestrel", "Lynxlet", "Harbour", "Opal")
AGENTS = ("Slate", "Pebble", "Minnow", "Heron")
STATUSES = ("Single", "Engaged", "In a relationship", "Married")

COUNTRIES = (
    "Peoples_Republic_of_China",
    "United_States",
    "India",
    "Brazil",
    "Germany",
    "Japan",
    "Mexico",
    "Kenya",
    "Poland",
    "Peru",
    "Norway",
    "Uganda",
)

_HEADS = ("ka", "lo", "mi", "ru", "te", "sa", "no", "vi", "du", "ela", "bra", "fen", "gol", "hur", "jas", "pim")
_TAILS = ("len", "dor", "na", "rik", "mos", "tal", "vey", "sha", "bun", "lia", "rom", "net", "quin", "zel", "po", "der")

Part = str | Any
"""A text, or a column of texts (pyarrow.StringArray)."""


def _word(number: int) -> str:
    third = _TAILS[number // 256] if number >= 256 else ""
    return _HEADS[number % 16] + _TAILS[(number // 16 + number) % 16] + third


WORDS = pa.array([_word(number) for number in range(4096)])
"""Invented words, each once."""
NAMES = pa.array([(_word(number * 5 % 256) + _TAILS[number % 7]).title() for number in range(1024)])
SENTENCES = pa.array(
    [" ".join(_word((number * 31 + place * 17) % 4096) for place in range(4 + number % 8)) for number in range(4096)]
)


def term(name: str) -> str:
    """Return the IRI of a prefixed name, in angle brackets."""
    prefix, _, local = name.partition(":")
    return f"<{_PREFIXES[prefix]}{local}>"


def text(*parts: Part) -> Any:
    """Return the parts after each other, row by row. At least one of them is a column."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return pc.binary_join_element_wise(*joined, "")


def line(subject: Part, predicate: str, object_: Part, end: Part = " .\n") -> tuple[Part, ...]:
    """Return the parts of one triple. predicate: a prefixed name, or `a`; end: what stands behind it."""
    return subject, f" {RDF_TYPE if predicate == 'a' else term(predicate)} ", object_, end


def among(table: Any, numbers: Int64Array) -> Any:
    """Return those of a table at some places, over and over again."""
    return table.take(pa.array(numbers % len(table)))


def quoted(part: Part, datatype: str | None = None) -> tuple[Part, ...]:
    return '"', part, '"' if datatype is None else f'"^^<{_XSD}{datatype}>'


def entity(kind: str, numbers: Int64Array) -> Any:
    """Return the IRIs of entities, in angle brackets; kind as in LSBench's namespaces."""
    return text(entity_start(kind), decimal(numbers), ">")


def entity_start(kind: str) -> str:
    """Return what stands before the number of an entity."""
    path, letters = _ENTITIES[kind]
    return f"<{SIB}{path}/{letters}"


def decimal(numbers: Any) -> Any:
    return pc.cast(pa.array(numbers), pa.string())


def moments(times_ms: Int64Array) -> Any:
    """Return event times as dates and times: ms since 2010-02-01, as in the LSBench sample."""
    written = pc.cast(pa.array((_EPOCH_MS + times_ms) // 1000, pa.timestamp("s")), pa.string())
    return text(*quoted(text(pc.utf8_replace_slice(written, 10, 11, "T"), "Z"), "dateTime"))


def only_where(there: BoolArray, parts: Iterable[Part]) -> Any:
    """Return the parts after each other in the rows that have them, nothing in the others."""
    return chosen(there, text(*parts), "")


def of_each(subject: Any, counts: Int64Array, predicate: str, objects: Any, end: Part = " .\n") -> Any:
    """Return the triples of one predicate of each subject. counts: how many of the objects are those of each."""
    place = pa.array(np.repeat(np.arange(len(counts)), counts))
    ends = end if isinstance(end, str) else end.take(place)
    return together(counts, text(*line(subject.take(place), predicate, objects, ends)))


def together(counts: Int64Array, texts: Any) -> Any:
    """Return, for each row, some texts after each other. counts: how many are those of each row."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), texts), "")


def chosen(first: BoolArray, one: Any, other: Any) -> Any:
    """Return the one text in some rows, the other in the rest."""
    return pc.if_else(pa.array(first), one, other)

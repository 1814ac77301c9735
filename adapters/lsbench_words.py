"""The generator's words: the vocabulary of LSBench, and invented words made of syllables, by number."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

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


def iri(kind: str, number: int) -> str:
    """Return the IRI of an entity, in angle brackets; kind as in LSBench's namespaces."""
    path, letters = _ENTITIES[kind]
    return f"<{SIB}{path}/{letters}{number}>"


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


def term(name: str) -> str:
    prefix, _, local = name.partition(":")
    return f"<{_PREFIXES[prefix]}{local}>"


def typed(value: object, datatype: str) -> str:
    return f'"{value}"^^<{_XSD}{datatype}>'


def moment(time_ms: int) -> str:
    """The event time as a date and time: ms since 2010-02-01, as in the LSBench sample."""
    return typed(f"{np.datetime64('2010-02-01T00:00:00') + np.timedelta64(time_ms // 1000, 's')}Z", "dateTime")


_LOCAL_NAMES = {
    "foaf": ("Person", "firstName", "lastName", "based_near", "organization", "gender", "birthday", "knows"),
    "dbpprop": ("latd", "longd"),
    "dbpo": ("location",),
    "dc": ("created", "date"),
    "dcterms": ("title",),
    "sioct": ("ImageGallery",),
    "sioc": (
        "email",
        "ip_address",
        "user",
        "account_of",
        "moderator_of",
        "subscriber_of",
        "Usergroup",
        "Forum",
        "name",
        "has_member",
        "creator_of",
        "Post",
        "Item",
        "content",
        "container_of",
        "reply_of",
    ),
    "sib": (
        "User",
        "Group",
        "browser",
        "status",
        "interest",
        "class_year",
        "workAt",
        "workFrom",
        "memb",
        "initiator",
        "requested",
        "approved",
        "tag",
        "member_of_membership",
        "group_of_membership",
        "added",
        "Post",
        "Comment",
        "Photo",
        "hashtag",
        "agent",
        "like",
        "usertag",
        "trackedAt",
        "trackedTime",
        "trackedLocation",
    ),
}
T = {f"{prefix}:{name}": term(f"{prefix}:{name}") for prefix, names in _LOCAL_NAMES.items() for name in names}
"""The vocabulary: prefixed name -> IRI in angle brackets."""
BROWSERS = ("Kestrel", "Lynxlet", "Harbour", "Opal")
AGENTS = ("Slate", "Pebble", "Minnow", "Heron")

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


@lru_cache(maxsize=4096)
def word_of(number: int) -> str:
    """Return the word of a number: the first 256 are distinct."""
    return _HEADS[number % 16] + _TAILS[(number // 16 + number) % 16]


@lru_cache(maxsize=4096)
def name_of(number: int) -> str:
    """Return the name of a number."""
    return (word_of(number * 5 + 3) + _TAILS[number % 7]).title()


def sentence_of(number: int, word_count: int) -> str:
    """Return a sentence of words, by number."""
    words = [word_of((number * 31 + place * 17 + number // (place + 1)) % 256) for place in range(word_count)]
    return " ".join(words).capitalize()

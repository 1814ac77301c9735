"""A network of any size as N-Triples files, and the answers that queries must find in it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from wukongs.adapters.lsbench_words import COUNTRIES, RDF_TYPE, WORDS, entity_start, term
from wukongs.bench.scale import answer_kernels as rules
from wukongs.bench.scale import network_kernels as kernels
from wukongs.store.dtypes import Int64Array, UInt8Array

BUFFER_BYTES = 32 << 20
TRIPLES_PER_USER = 920
"""About, and with all the friends that fit; the exact count is Network.triple_count."""
_XSD = "http://www.w3.org/2001/XMLSchema#"
_ENTITIES = ("user", "person", "post", "comment", "photo", "album", "forum", "group", "friendship", "membership")
_TYPES = [
    "sib:User",
    "sioc:user",
    "foaf:Person",
    "sib:Post",
    "sioc:Post",
    "sib:Comment",
    "sioc:Item",
    "sib:Photo",
    "sioct:ImageGallery",
    "sib:Group",
    "sioc:Usergroup",
]
_LINKS = [
    "sioc:account_of",
    "sioc:moderator_of",
    "sioc:subscriber_of",
    "foaf:knows",
    "sib:memb",
    "sib:initiator",
    "sioc:creator_of",
    "sioc:container_of",
    "sioc:reply_of",
    "sib:like",
    "sib:usertag",
    "sioc:has_member",
    "sib:member_of_membership",
    "sib:group_of_membership",
]


def _fragments() -> list[str]:
    """The pieces of text that the kernels put together, in the order of their X_ constants."""
    strings = ["foaf:firstName", "foaf:lastName", "sioc:email", "foaf:organization"]
    resource = term("dbp:x")[:-2]
    return [
        *(entity_start(kind) for kind in _ENTITIES),
        "> .\n",
        '" .\n',
        f'Z"^^<{_XSD}dateTime> .\n',
        f'"^^<{_XSD}date> .\n',
        f'"^^<{_XSD}double> .\n',
        *(f"> {RDF_TYPE} {term(name)} .\n" for name in _TYPES),
        f'> {term("dcterms:title")} "null" .\n',
        f'> {term("foaf:gender")} "female" .\n',
        f'> {term("foaf:gender")} "male" .\n',
        *(f'> {term(name)} "' for name in strings),
        f"> {term('foaf:based_near')} {resource}",
        f'> {term("foaf:based_near")} "',
        *(f'> {term(name)} "' for name in ("dbpprop:latd", "dbpprop:longd", "sib:browser", "sioc:ip_address")),
        f'> {term("foaf:birthday")} "19',
        *(f'> {term(name)} "2010-02-' for name in ("dc:date", "dc:created")),
        *(f'> {term(name)} "' for name in ("sioc:content", "sib:hashtag", "sioc:name", "sib:tag", "dbpo:location")),
        *(f'> {term(name)} "2010-02-' for name in ("sib:requested", "sib:approved", "sib:added")),
        *(f"> {term(name)} " for name in _LINKS),
        '@mail.example" .\n',
    ]


def _pool(texts: list[str]) -> tuple[UInt8Array, Int64Array]:
    parts = [text.encode() for text in texts]
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return np.frombuffer(b"".join(parts), np.uint8), starts


class Network:
    """users: how many; triple_count, line_count, like_count: what the text of all of them holds.

    The same number of users gives the same bytes."""

    def __init__(self, users: int) -> None:
        self.users = users
        offsets = [1 + j * j for j in range(kernels.OFFSETS_MAX) if 2 * (1 + j * j) < users]
        self._offsets = np.array(offsets, np.int64)
        self._texts = (*_pool(_fragments()), *_pool(WORDS[:256].to_pylist()), *_pool(list(COUNTRIES)))
        assert len(self._texts[1]) == kernels.X_END_EMAIL + 2, "the fragments and their numbers differ"
        with np.errstate(over="ignore"):
            counts = rules.count_users_triples(self._offsets, users, 0, users)
        self.triple_count, self.like_count = int(counts[0]), int(counts[1])
        self.line_count = self.triple_count + users

    @staticmethod
    def of_triples(count: int) -> Network:
        """Return the network with about, but not less than, this many distinct triples."""
        users = max(2, count // TRIPLES_PER_USER)
        found = Network(users)
        while found.triple_count < count:
            users = max(users + 1, int(users * 1.0005 * count / found.triple_count))
            found = Network(users)
        return found

    def text(self, first: int = 0, last: int | None = None) -> Iterator[memoryview]:
        """Yield the N-Triples of users [first, last), in pieces of whole lines that are valid until the next."""
        last = self.users if last is None else last
        out = np.empty(
            min(BUFFER_BYTES, (last - first + 1) * kernels.USER_LINES_MAX * kernels.LINE_BYTES_MAX), np.uint8
        )
        while first < last:
            with np.errstate(over="ignore"):
                size, first = kernels.write_users(out, *self._texts, self._offsets, self.users, first, last)
            yield memoryview(out.data)[:size]

    def write(self, folder: Path, parts: int, threads: int = 2) -> list[Path]:
        """Write the text to files part-000.nt, part-001.nt, ... of about equal size; return their paths."""
        bounds = [self.users * part // parts for part in range(parts + 1)]
        paths = [folder / f"part-{part:03}.nt" for part in range(parts)]

        def write_part(part: int) -> None:
            with paths[part].open("wb") as file:
                for piece in self.text(bounds[part], bounds[part + 1]):
                    file.write(piece)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write_part, range(parts)))
        return paths

    def answers(self, user: int, group: int) -> dict[str, int]:
        """Return how many rows S1 to S6 have, asked for a user, the person with her number, and a group."""
        with np.errstate(over="ignore"):
            rows = rules.count_answers(user, group, self._offsets, self.users)
            crossings = rules.count_crossings(0, 1, self._offsets, self.users)
        return {**{f"S{n + 1}": int(count) for n, count in enumerate(rows)}, "S6": int(crossings)}

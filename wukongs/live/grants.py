"""Grant: what the holder of a token or a key may do, and which graphs there are for it.

A grant is made where a request is let in (an HTTP token, a ZeroMQ token or key) and goes with it to the engine. Roles
are checked by the name of the call (`ROLES`). The graphs become the dataset of all that the call reads, and the bound
of all that it writes (`Engine._seeing`, query.plans.dataset.restricted).

A line of a file has a token or key. Behind it may stand a role, and behind that graphs and streams by their IRIs, and
`default` for the default graph. Without a role it is `admin`; without a graph all are seen. A word that begins with #
begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from wukongs.errors import AccessError, SettingsError

DEFAULT_WORD = "default"
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|\\^`]*")


class Role(IntEnum):
    """Each may do what those before it may. READ: queries, and the windows of registered queries; WRITE: also updates,
    loads, and pushes to streams; ADMIN: everything."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


_WORDS = {role.word: role for role in Role}
_READS = (
    "query query_many explain warnings graph_names dump why rules streams queries stats settle attach "
    "metrics describe ingest_addresses graph_shares graph_share hold_snapshot stream query.explain query.stats "
    "query.why query.warnings query.unread query.leave query.windows query.changes query.content"
)
_WRITES = "update apply load ingest push_many stream.push stream.advance stream.close"
_ADMINS = (
    "register declare drop_stream add_rules drop_rules resume_rules running kill checkpoint backup restore drain "
    "add_node remove_node query.replace query.pause query.resume query.bind query.unbind query.close"
)
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(_READS.split(), Role.READ),
    **dict.fromkeys(_WRITES.split(), Role.WRITE),
    **dict.fromkeys(_ADMINS.split(), Role.ADMIN),
}
"""The role that a call needs: a method of the engine, of a stream or of a query, as HTTP and ZeroMQ ask for it.
`stream` returns one that is declared already, `declare` declares another. A call that is not here needs ADMIN."""
_OF_ALL = (
    "metrics running kill checkpoint backup restore drain add_node remove_node graph_shares hold_snapshot graph_share "
    "ingest"
)
OF_ALL_GRAPHS = frozenset(_OF_ALL.split())
"""Calls that concern all graphs, whatever they name."""


@dataclass(frozen=True, slots=True)
class Grant:
    """role; graphs: the IRIs of the graphs and streams that there are for its holder (None: all)."""

    role: Role = Role.ADMIN
    graphs: frozenset[str] | None = None

    def may(self, call: str) -> bool:
        """Tell whether the role of its holder is enough for a call."""
        return self.role >= ROLES.get(call, Role.ADMIN)

    def check(self, call: str) -> None:
        """Raise AccessError if the holder may not make a call, a name of ROLES."""
        if not self.may(call):
            needed = ROLES.get(call, Role.ADMIN)
            raise AccessError(
                f"{call.replace('.', ': ')} needs the role {needed.word}, this token or key has {self.role.word}: ask "
                "for one with that role"
            )
        if self.graphs is not None and call in OF_ALL_GRAPHS:
            raise AccessError(
                f"{call} concerns all graphs, this token or key is for {len(self.graphs)} of them: ask for one without "
                "a list of graphs"
            )

    def within(self, other: Grant) -> Grant:
        """Return the grant of whoever needs both."""
        if self.graphs is None or other.graphs is None:
            graphs = self.graphs if other.graphs is None else other.graphs
        else:
            graphs = self.graphs & other.graphs
        return Grant(min(self.role, other.role), graphs)


ALL = Grant()
"""The grant of those who need no token."""


def read_grant(place: str, words: Sequence[str]) -> Grant:
    """Return the grant that the words behind a token or key give. place: file and line. Raises SettingsError."""
    told = list[str]()
    for word in words:
        if word.startswith("#"):
            break
        told.append(word)
    if not told:
        return ALL
    role, graphs = _WORDS.get(told[0]), told[1:]
    if role is None:
        raise SettingsError(
            f"{place}: expected read, write or admin behind the token or key, and then its graphs; or # before a "
            f"comment; found {told[0][:60]!r}"
        )
    return Grant(role, frozenset(_graph(place, word) for word in graphs) if graphs else None)


def _graph(place: str, word: str) -> str:
    if word == DEFAULT_WORD:
        from wukongs.store.dtypes import DEFAULT_GRAPH_IRI  # which loads numpy

        return DEFAULT_GRAPH_IRI
    name = word.removeprefix("<").removesuffix(">")
    if _IRI.fullmatch(name) is None or word.startswith("<") != word.endswith(">"):
        raise SettingsError(
            f"{place}: expected the IRI of a graph or stream, such as http://ex.org/g, or {DEFAULT_WORD}; or # before "
            f"a comment; found {word[:60]!r}"
        )
    return name


def includes(graphs: Collection[str] | None, only: Collection[str] | None) -> bool:
    """Tell whether graphs (None: all) include all those of another list."""
    return graphs is None or (only is not None and set(graphs).issuperset(only))

"""QuerySource: what a query was registered with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from wukongs.csparql.algebra import Output, Query
from wukongs.errors import StreamError

Unread: TypeAlias = Literal["drop", "end"]
UNREAD_BYTES_MAX = 64 << 20


class QuerySource(NamedTuple):
    """The text of a query, the base of its relative IRIs, and what its firings report; unread_bytes_max: what it may
    hold in windows that are not read yet; unread: whether it then drops the oldest of them, or ends; bindings: of a
    group of queries their table (query_group.bindings_text); only: the graphs and streams that it may read, those of
    who has registered it (None: all)."""

    text: str
    base: str | None = None
    output: Output | None = None
    unread_bytes_max: int = UNREAD_BYTES_MAX
    unread: Unread = "drop"
    bindings: str | None = None
    only: tuple[str, ...] | None = None

    @staticmethod
    def of(fields: Mapping[str, Any]) -> QuerySource:
        """Return the source with these fields; those that are missing have their defaults."""
        found = QuerySource(**{name: fields[name] for name in QuerySource._fields if name in fields})
        return found if found.only is None else found._replace(only=tuple(found.only))


def check_name(query: Query, name: str) -> None:
    """Raise StreamError unless a text registers this name, as the text before does."""
    assert query.registration is not None
    if query.registration.name != name:
        raise StreamError(f"query {name} cannot be replaced by {query.registration.name}: give the text the same name")


def is_over(name: str) -> StreamError:
    """Return the error of a change of a query that is closed."""
    return StreamError(f"query {name} is closed: register the text anew")

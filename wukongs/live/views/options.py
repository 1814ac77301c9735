"""The options of a live view, and which queries can be one."""

from __future__ import annotations

from typing import NamedTuple

from wukongs.csparql.algebra import Call, Query
from wukongs.csparql.functions import OF_MOMENT
from wukongs.csparql.walk import parts_of
from wukongs.errors import SettingsError, UnsupportedFeatureError
from wukongs.live.continuous import QuerySource
from wukongs.live.query_group import bindings_table, check_arguments
from wukongs.query.terms.names import positive


class ViewOptions(NamedTuple):
    """snapshot: new cursors begin with a reset that holds the whole content; else behind the SN of that moment.
    every_ms: a report holds the net change of a period; None: as the text says, or of each snapshot.
    keep: the content is kept."""

    snapshot: bool = True
    every_ms: int | None = None
    keep: bool = False

    def checked(self) -> ViewOptions:
        """Return the same options. Raises SettingsError for a wrong one."""
        for name in ("snapshot", "keep"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"{name} = {getattr(self, name)!r}: expected True or False")
        if self.every_ms is not None:
            positive("every_ms", self.every_ms, 1)
        return self

    def check_are_default(self) -> None:
        """Raise SettingsError if one was given: for queries with windows."""
        for name, default in ViewOptions._field_defaults.items():
            if getattr(self, name) != default:
                raise SettingsError(f"{name} = {getattr(self, name)!r}: only for live views, which have no window")


def check_view(query: Query, source: QuerySource, options: ViewOptions) -> None:
    """Check a query without a window. Raises UnsupportedFeatureError, SettingsError (an option)."""
    assert query.registration is not None
    registration, every_ms = query.registration, options.checked().every_ms
    if query.form == "describe":
        raise _unsupported("DESCRIBE in a live view", "write the CONSTRUCT that you mean")
    if registration.is_stream:
        raise _unsupported("REGISTER STREAM without a window", "REGISTER QUERY reports the triples of a CONSTRUCT")
    if registration.report:
        raise _unsupported("REPORT in a live view", "a view reports when its content has changed")
    if source.bindings is not None:
        check_arguments(query, bindings_table(source.bindings, is_filled=False).column_names)
    for part in parts_of(query.pattern):
        if isinstance(part, Call) and part.op in OF_MOMENT:
            advice = "its value would be another one at each evaluation; put it into a stored triple, and match that"
            raise _unsupported(f"{part.op}() in a live view", advice)
    if source.unread != "drop":
        raise SettingsError(f"unread = {source.unread!r}: a live view sums its unread reports, and drops none")
    if None not in (every_ms, registration.computed_every_ms) and every_ms != registration.computed_every_ms:
        said = f"COMPUTED EVERY {registration.computed_every_ms}ms"
        raise SettingsError(f"every_ms = {every_ms}: the query itself says {said}: leave one of them out")


def _unsupported(feature: str, advice: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(feature, 1, 1, advice)

"""The named errors: everything that a user, a file or a peer can cause. Each says what, where, and what next.

This module is the leaf that every package may import (docs/decisions/0002-one-error-module.md): it imports nothing.
"""

from __future__ import annotations

NOT_APPLIED, PARTLY_APPLIED, NOT_KNOWN = "not applied", "partly applied", "not known"


class WukongsError(Exception):
    """The root of all errors that wukongs raises on purpose.

    outcome: of the change that ends with this error. "not applied": it has no effect, now or later; "partly applied":
    the message names the streams that have their tuples; "not known": it counts, or will, or does not."""

    outcome = NOT_APPLIED


class _QueryTextError(WukongsError):
    """An error about a place in a query: line and column, both from 1; source, what the text is called (its file).

    excerpt: the line with the offending text underlined, two lines; str() is the one line without it, a traceback shows
    it as a note.
    """

    def __init__(self, message: str, line: int, column: int, source: str, excerpt: str) -> None:
        super().__init__(f"{source}, line {line}, column {column}: {message}")
        self.line = line
        self.column = column
        self.source = source
        self.excerpt = excerpt
        if excerpt:
            self.add_note(excerpt)

    def show(self) -> str:
        """Return the message and the excerpt below it."""
        return f"{self}\n{self.excerpt}" if self.excerpt else str(self)


class QuerySyntaxError(_QueryTextError):
    """A query text that does not parse: line and column (both from 1), what was expected and what was found, and what
    may help (suggestion; empty where nothing is near)."""

    def __init__(
        self,
        expected: str,
        found: str,
        line: int,
        column: int,
        source: str = "query",
        excerpt: str = "",
        suggestion: str = "",
    ) -> None:
        tail = f"; {suggestion}" if suggestion else ""
        super().__init__(f"expected {expected}, found {found}{tail}", line, column, source, excerpt)
        self.expected = expected
        self.found = found
        self.suggestion = suggestion

    def __reduce__(self) -> tuple[object, ...]:
        where = self.line, self.column, self.source
        return type(self), (self.expected, self.found, *where, self.excerpt, self.suggestion)


class UnsupportedFeatureError(_QueryTextError):
    """A part of the language that is known but not supported here: its name, its place, what to use instead."""

    def __init__(
        self, feature: str, line: int, column: int, advice: str = "", source: str = "query", excerpt: str = ""
    ) -> None:
        tail = f"; {advice}" if advice else ""
        super().__init__(f"{feature} is not supported yet{tail}", line, column, source, excerpt)
        self.feature = feature
        self.advice = advice

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.feature, self.line, self.column, self.advice, self.source, self.excerpt)


class RuleError(WukongsError):
    """A rule that cannot be installed, or a name of one that is not there: what was expected and what was found; file,
    line and column (from 1) where a text is at fault, else "" and 0; what may help (suggestion); excerpt: the
    place underlined, two lines."""

    def __init__(
        self,
        expected: str,
        found: str,
        file: str = "",
        line: int = 0,
        column: int = 0,
        excerpt: str = "",
        suggestion: str = "",
    ) -> None:
        place = f"{file or 'rules'}, line {line}, column {column}: " if line else f"{file}: " if file else ""
        tail = f"; {suggestion}" if suggestion else ""
        super().__init__(f"{place}expected {expected}, found {found}{tail}")
        self.expected = expected
        self.found = found
        self.file = file
        self.line = line
        self.column = column
        self.excerpt = excerpt
        self.suggestion = suggestion
        if excerpt:
            self.add_note(excerpt)

    def __reduce__(self) -> tuple[object, ...]:
        where = self.file, self.line, self.column
        return type(self), (self.expected, self.found, *where, self.excerpt, self.suggestion)


class DataError(WukongsError):
    """Data that cannot be read: file, line (from 1) and the text that was found there."""

    def __init__(self, message: str, file: str = "", line: int = 0) -> None:
        place = f"{file}, line {line}" if file and line else file or (f"line {line}" if line else "")
        # Some messages begin with the rest of the place.
        between = "" if not place else ", " if line and message.startswith(("column ", "between columns ")) else ": "
        super().__init__(place + between + message)
        self.message = message
        self.file = file
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.file, self.line)


class CorruptionError(DataError):
    """A file of a data folder that is not what was written: file and page (of 1 MiB, from 0; None: the whole file)."""

    def __init__(self, message: str, file: str = "", page: int | None = None) -> None:
        super().__init__(message, file)
        self.page = page

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.file, self.page)


class StorageError(WukongsError):
    """A data folder that cannot be used now: locked, full, failing, or of another format."""


class StreamError(WukongsError):
    """A stream used in a way that it cannot serve: unknown, closed, time running backwards, a window that misfits."""


class ServiceError(WukongsError):
    """An endpoint of SERVICE that is not allowed, does not answer, or answers nonsense."""


class QueryTimeout(WukongsError):
    """A query, an update or a firing that ran longer than it may."""


class QueryKilled(WukongsError):
    """A one-shot query that somebody has ended with Engine.kill."""


class BudgetExceeded(WukongsError):
    """A query that would hold more rows or bytes than its budget."""


class GapError(WukongsError):
    """Windows of a query that a reader has lost, in their place among its windows: reading goes on after it.

    query: its name; from_ms, to_ms: the ends of the first and the last lost window; count: how many they are; gone: how
    many of them were not made, because their slices were gone. The others were dropped before they were read."""

    def __init__(self, query: str, from_ms: int, to_ms: int, count: int, gone: int = 0) -> None:
        told = []
        if gone < count:
            told.append(
                f"{count - gone} were dropped before they were read: read faster, or raise unread_bytes_max or "
                "results_bytes_max"
            )
        if gone:
            told.append(
                f"{gone} were not made, as all slices of one of their streams were gone: raise slice_bytes_max or "
                "history_ms of the streams, or let them come at the same time"
            )
        super().__init__(
            f"query {query}: {count} windows, those ending from {from_ms} to {to_ms} ms, are lost. "
            f"{'; '.join(told)}. Reading goes on after them"
        )
        self.query = query
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.count = count
        self.gone = gone

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.query, self.from_ms, self.to_ms, self.count, self.gone)


class UpdateError(WukongsError):
    """An operation of an update that cannot be done, such as DROP of a graph that is not there; nothing of the update
    was applied."""


class CompactedError(WukongsError):
    """A read at a snapshot number that merging has already forgotten."""


class NodeUnavailable(WukongsError):
    """A node or socket that does not answer. is_slow: it is there, as far as is known, and the time is over."""

    is_slow = False


class OutcomeUnknown(NodeUnavailable):
    """A change that was under way when its node, the way to it or its time was lost: whether it was applied is not
    known."""

    outcome = NOT_KNOWN


class DataLost(WukongsError):
    """A node or a cluster that has begun anew, and has forgotten what this client has told it before."""

    outcome = NOT_KNOWN


class AccessError(WukongsError):
    """A call that the caller's token or key does not allow: it needs another role, or names a graph or stream that is
    not on its list."""


class ForkError(WukongsError):
    """An engine, a client or a folder that a forked process has from its parent, where it is in use."""


class SettingsError(WukongsError):
    """An option with a value that it cannot take."""

"""The options of a live view, and which queries can be one."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from wukongs.csparql.algebra import Call, Query
from wukongs.csparql.functions import OF_MOMENT
from wukongs.csparql.places import excerpt, place
from wukongs.csparql.tokens import tokenize_decoded
from wukongs.csparql.walk import parts_of
from wukongs.errors import SettingsError, StreamError, UnsupportedFeatureError
from wukongs.live.query_group import bindings_table, check_arguments
from wukongs.live.query_source import QuerySource
from wukongs.query.terms.names import positive


class ViewOptions(NamedTuple):
    """snapshot: new cursors begin with a reset that holds the whole content; else behind the SN of that moment.
    every_ms: a report holds the net change of a period; None: as the text says, or of each snapshot.
    keep: the content is kept.
    into: the IRI of the stored graph or the stream that takes the triples of a CONSTRUCT."""

    snapshot: bool = True
    every_ms: int | None = None
    keep: bool = False
    into: str | None = None

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
        raise _unsupported(source, "DESCRIBE", "DESCRIBE in a live view", "write the CONSTRUCT that you mean")
    if registration.is_stream:
        advice = "REGISTER QUERY reports triples, into= pushes them"
        raise _unsupported(source, "STREAM", "REGISTER STREAM without a window", advice)
    if registration.report:
        advice = "a view reports when its content has changed"
        raise _unsupported(source, "REPORT", "REPORT in a live view", advice)
    if source.bindings is not None:
        check_arguments(query, bindings_table(source.bindings, is_filled=False).column_names)
    for part in parts_of(query.pattern):
        if isinstance(part, Call) and part.op in OF_MOMENT:
            advice = "its value would be another one at each evaluation; put it into a stored triple, and match that"
            raise _unsupported(source, part.op, f"{part.op}() in a live view", advice, is_called=True)
    if options.into is not None:
        _check_into(query, source)
    if source.unread != "drop":
        raise SettingsError(f"unread = {source.unread!r}: a live view sums its unread reports, and drops none")
    if None not in (every_ms, registration.computed_every_ms) and every_ms != registration.computed_every_ms:
        said = f"COMPUTED EVERY {registration.computed_every_ms}ms"
        raise SettingsError(f"every_ms = {every_ms}: the query itself says {said}: leave one of them out")


def _check_into(query: Query, source: QuerySource) -> None:
    """Check a query whose triples are put somewhere. Raises UnsupportedFeatureError."""
    assert query.registration is not None
    if query.form != "construct":
        form = query.form.upper()
        raise _unsupported(source, form, f"into= of {form}", "write a CONSTRUCT: its triples are put there")
    if query.registration.has_operator:
        advice = "leave it out: a stored graph has what holds, a stream gets what was inserted"
        output = query.registration.output.upper()
        raise _unsupported(source, output, f"{output} beside into=", advice)


def is_rule(query: Query, source: QuerySource, options: ViewOptions, streams: Collection[str]) -> bool:
    """Tell whether a view puts its triples into a stored graph: then it is a rule. streams: those that are declared.
    Raises SettingsError, StreamError, UnsupportedFeatureError."""
    registration, into = query.registration, options.into
    assert registration is not None
    if into is None:
        return False
    every_ms = options.every_ms or registration.computed_every_ms
    if into in streams:
        if every_ms is None:
            advice = "say COMPUTED EVERY, or every_ms=: its tuples have the end of a period as their time"
            raise SettingsError(f"into = {into!r}: it is a stream, which takes what a period has inserted: {advice}")
        if source.output is not None:
            raise SettingsError(f"output = {source.output!r}: into= a stream pushes what was inserted: leave it out")
        return False
    if every_ms is not None:
        raise StreamError(
            f"into = {into!r}: there is no such stream, and a stored graph has no periods: declare the stream first, "
            f"Engine.stream({into!r}, batch_ms={every_ms}), or leave the period out"
        )
    for name, found, default in (
        ("snapshot", options.snapshot, True),
        ("keep", options.keep, False),
        ("output", source.output, None),
    ):
        if found != default:
            raise SettingsError(f"{name} = {found!r}: a query into a stored graph is a rule, and reports nothing")
    if query.dataset.default_graphs or query.dataset.named_graphs:
        advice = "name the graphs in the pattern: GRAPH <iri> { ... }"
        raise _unsupported(source, "FROM", "FROM in a query into a stored graph, which is a rule", advice)
    return True


def check_period(name: str, every_ms: int | None, batch_ms: int | None) -> None:
    """Raise StreamError if another text of a view that makes a stream has another period. batch_ms: of the stream."""
    if every_ms != batch_ms:
        raise StreamError(
            f"view {name}: the other text has a period of {every_ms} ms, and the stream that it makes batch_ms = "
            f"{batch_ms}, which has to be the same"
        )


def _unsupported(
    source: QuerySource, word: str, feature: str, advice: str, *, is_called: bool = False
) -> UnsupportedFeatureError:
    """Return the error about the first place of a word in a text. is_called: it stands before a parenthesis."""
    text, tokens = tokenize_decoded(source.text)
    found = (one for one, after in pairwise(tokens) if one.kind == word and (not is_called or after.kind == "("))
    token = next(found, tokens[0])
    underlined = excerpt(text, token.start, len(token.text))
    return UnsupportedFeatureError(feature, *place(text, token.start), advice, excerpt=underlined)

"""Functions on dates and times (SPARQL 1.1, 17.4.5).

SPARQL defines them for xsd:dateTime. They also take what XPath has functions for: the date parts of an xsd:date and the
time parts of an xsd:time. A part is that of the lexical form, in the zone that is written there.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from wukongs.query.terms.temporal import EXACT, DateTime
from wukongs.query.terms.values import Kind, Value, computed, duration_value, moment, string

_DATED = frozenset((Kind.DATETIME, Kind.DATE))
_TIMED = frozenset((Kind.DATETIME, Kind.TIME))


def _part(kinds: frozenset[Kind], part: Callable[[DateTime], int | None]) -> Callable[[Value], Value | None]:
    def apply(value: Value) -> Value | None:
        parts = moment(value) if value.kind in kinds else None
        number = None if parts is None else part(parts)
        return None if number is None else computed(Kind.INTEGER, number)

    return apply


def _seconds(value: Value) -> Value | None:
    parts = moment(value) if value.kind in _TIMED else None
    return None if parts is None or parts.second is None else computed(Kind.DECIMAL, EXACT.plus(parts.second))


def _timezone(value: Value) -> Value | None:
    """The zone as an xsd:dayTimeDuration; an error without one."""
    parts = moment(value)
    if parts is None or parts.zone_s is None:
        return None
    return duration_value((0, Decimal(parts.zone_s)), "dayTimeDuration")


def _tz(value: Value) -> Value | None:
    """The zone as it is written, such as Z or -05:00; an empty string without one."""
    parts = moment(value)
    if parts is None:
        return None
    if parts.zone_s is None:
        return string("")
    return string("Z" if value.lexical.endswith("Z") else value.lexical[-6:])


FUNCTIONS: dict[str, Callable[[Value], Value | None]] = {
    "YEAR": _part(_DATED, lambda parts: parts.year),
    "MONTH": _part(_DATED, lambda parts: parts.month),
    "DAY": _part(_DATED, lambda parts: parts.day),
    "HOURS": _part(_TIMED, lambda parts: parts.hour),
    "MINUTES": _part(_TIMED, lambda parts: parts.minute),
    "SECONDS": _seconds,
    "TIMEZONE": _timezone,
    "TZ": _tz,
}

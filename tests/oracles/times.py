"""Functions, casts, differences and comparisons of xsd:dateTime, xsd:date and xsd:time, written plainly from XML Schema
1.1 and XPath: with Python's dates, moved by whole 400 years to where these have them, and exact fractions.

A moment is (year, month, day, seconds of the day, zone in minutes or None as written), 24:00:00 already the next day.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from typing import NamedTuple

from tests.oracles.functions import digits, fail, is_plain, read_decimal, write_number, xsd_name
from tests.oracles.rdf import XSD, Term, literal
from tests.oracles.values import ExpressionError

CYCLE_YEARS, CYCLE_DAYS = 400, 146097


class Moment(NamedTuple):
    year: int
    month: int
    day: int
    seconds: Fraction
    zone: str

    @property
    def minutes(self) -> int | None:
        if self.zone in ("", "Z"):
            return None if self.zone == "" else 0
        minutes = int(self.zone[1:3]) * 60 + int(self.zone[4:6])
        return -minutes if self.zone[0] == "-" else minutes

    @property
    def shown_zone(self) -> str:
        return "Z" if self.minutes == 0 else self.zone


def read(term: Term, written: str, name: str) -> Moment:
    """Read a lexical form of dateTime, date or time."""
    zone = "Z" if written.endswith("Z") else ""
    if len(written) > 6 and written[-6] in "+-" and written[-3] == ":" and (name != "date" or written.count(":") == 1):
        zone = written[-6:]
        hours, minutes = zone[1:3], zone[4:6]
        if not digits(hours + minutes) or int(minutes) > 59 or int(hours) * 60 + int(minutes) > 14 * 60:
            raise fail()
    bare = written.removesuffix(zone)
    day_text, _, clock = (
        bare.partition("T") if name == "dateTime" else (bare, "", "") if name == "date" else ("", "", bare)
    )
    year, month, day = (2000, 1, 1) if name == "time" else read_day(day_text)
    seconds = Fraction(0) if name == "date" else read_clock(clock)
    if seconds == 86400:
        if name != "time":  # which has no next day
            year, month, day = next_day(year, month, day)
        seconds = Fraction(0)
    return Moment(year, month, day, seconds, zone)


def read_day(text: str) -> tuple[int, int, int]:
    sign = -1 if text.startswith("-") else 1
    parts = text.removeprefix("-").split("-")
    if len(parts) != 3 or not all(map(digits, parts)) or len(parts[0]) < 4 or len(parts[1]) != 2 or len(parts[2]) != 2:
        raise fail()
    if len(parts[0]) > 4 and parts[0][0] == "0":
        raise fail()
    year, month, day = sign * int(parts[0]), int(parts[1]), int(parts[2])
    days_before(year, month, day)
    return year, month, day


def read_clock(text: str) -> Fraction:
    parts = text.split(":")
    if len(parts) != 3 or len(parts[0]) != 2 or len(parts[1]) != 2 or not digits(parts[0] + parts[1]):
        raise fail()
    whole, dot, rest = parts[2].partition(".")
    if len(whole) != 2 or not digits(whole) or (dot and not digits(rest)):
        raise fail()
    hour, minute, second = int(parts[0]), int(parts[1]), read_decimal(parts[2])
    if hour > 24 or minute > 59 or second >= 60 or (hour == 24 and (minute or second)):
        raise fail()
    return hour * 3600 + minute * 60 + second


def days_before(year: int, month: int, day: int) -> int:
    """The days from 0001-01-01 to a day."""
    cycles = (year - 1) // CYCLE_YEARS
    try:
        return cycles * CYCLE_DAYS + date(year - cycles * CYCLE_YEARS, month, day).toordinal() - 1
    except ValueError:
        raise fail() from None


def next_day(year: int, month: int, day: int) -> tuple[int, int, int]:
    cycles = (year - 1) // CYCLE_YEARS
    later = date(year - cycles * CYCLE_YEARS, month, day) + timedelta(days=1)
    return later.year + cycles * CYCLE_YEARS, later.month, later.day


def moment(term: Term, *names: str) -> Moment:
    name = xsd_name(term)
    if name not in names:
        raise fail()
    return read(term, term.value, name)


def instant(term: Term, name: str) -> Fraction:
    """Seconds in UTC."""
    at = moment(term, name)
    return days_before(at.year, at.month, at.day) * 86400 + at.seconds - (at.minutes or 0) * 60


# --- writing ----------------------------------------------------------------------------------------------------------


def day_text(at: Moment) -> str:
    return f"{'-' if at.year < 0 else ''}{abs(at.year):04}-{at.month:02}-{at.day:02}"


def second_text(seconds: Fraction) -> str:
    return write_number("decimal", seconds).value


def clock_text(at: Moment) -> str:
    minutes, seconds = divmod(at.seconds, 60)
    shown = second_text(seconds)
    return f"{int(minutes) // 60:02}:{int(minutes) % 60:02}:{'0' if seconds < 10 else ''}{shown}"


def duration(seconds: Fraction) -> Term:
    minutes, rest = divmod(abs(seconds), 60)
    days, hours, left = int(minutes) // 1440, int(minutes) // 60 % 24, int(minutes) % 60
    clock = (f"{hours}H" if hours else "") + (f"{left}M" if left else "") + (f"{second_text(rest)}S" if rest else "")
    written = (f"{days}D" if days else "") + (f"T{clock}" if clock else "")
    return literal(("-" if seconds < 0 else "") + "P" + (written or "T0S"), XSD + "dayTimeDuration")


# --- functions --------------------------------------------------------------------------------------------------------


def _part(names: tuple[str, ...], part: Callable[[Moment], int]) -> Callable[[Term], Term]:
    return lambda term: literal(str(part(moment(term, *names))), XSD + "integer")


def timezone(term: Term) -> Term:
    minutes = moment(term, "dateTime", "date", "time").minutes
    if minutes is None:
        raise fail()
    return duration(Fraction(minutes * 60))


def cast(name: str, sources: tuple[str, ...], write: Callable[[Moment], str]) -> Callable[[Term], Term]:
    def apply(term: Term) -> Term:
        at = read(term, term.value.strip(" \t\r\n"), name) if is_plain(term) else moment(term, *sources)
        return literal(write(at) + at.shown_zone, XSD + name)

    return apply


_DATED, _TIMED = ("dateTime", "date"), ("dateTime", "time")
FUNCTIONS: dict[str, Callable[[Term], Term]] = {
    "YEAR": _part(_DATED, lambda at: at.year),
    "MONTH": _part(_DATED, lambda at: at.month),
    "DAY": _part(_DATED, lambda at: at.day),
    "HOURS": _part(_TIMED, lambda at: int(at.seconds) // 3600),
    "MINUTES": _part(_TIMED, lambda at: int(at.seconds) // 60 % 60),
    "SECONDS": lambda term: write_number("decimal", moment(term, *_TIMED).seconds % 60),
    "TIMEZONE": timezone,
    "TZ": lambda term: literal(moment(term, "dateTime", "date", "time").zone),
    "xsd:date": cast("date", _DATED, day_text),
    "xsd:time": cast("time", _TIMED, clock_text),
    "xsd:dateTime": cast("dateTime", _DATED, lambda at: f"{day_text(at)}T{clock_text(at)}"),
}


def seconds_of(term: Term) -> Fraction:
    """The seconds of a dayTimeDuration."""
    found = re.fullmatch(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", term.value)
    if xsd_name(term) != "dayTimeDuration" or found is None:
        raise fail()
    days, hours, minutes, seconds = (Fraction(part or 0) for part in found.groups()[1:])
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return -whole if found[1] else whole


def add(left: Term, right: Term, sign: int = 1) -> Term:
    """Add a dayTimeDuration to a dateTime, date or time: clocks of its zone go on by so long."""
    name = xsd_name(left)
    at, more = moment(left, "dateTime", "date", "time"), sign * seconds_of(right)
    days, seconds = divmod(at.seconds + more, 86400)
    ordinal = days_before(at.year, at.month, at.day) + int(days)
    day = date.fromordinal(ordinal % CYCLE_DAYS + 1)
    year = day.year + ordinal // CYCLE_DAYS * CYCLE_YEARS
    later = Moment(year, day.month, day.day, seconds, at.zone)
    shown = {"dateTime": f"{day_text(later)}T{clock_text(later)}", "date": day_text(later), "time": clock_text(later)}
    return literal(shown[name] + later.shown_zone, XSD + name)


def subtract(left: Term, right: Term) -> Term:
    name = xsd_name(left)
    if xsd_name(right) == "dayTimeDuration":
        return duration(seconds_of(left) - seconds_of(right)) if name == "dayTimeDuration" else add(left, right, -1)
    if name not in ("dateTime", "date", "time") or xsd_name(right) != name:
        raise fail()
    return duration(instant(left, name) - instant(right, name))


def compare(op: str, left: Term, right: Term) -> bool:
    """Compare two dateTimes, dates or times; dates of which one has no zone only if they are far enough apart."""
    name = xsd_name(left)
    if name not in ("dateTime", "date", "time") or xsd_name(right) != name:
        raise fail()
    first, second = instant(left, name), instant(right, name)
    zones = [bool(re.search(r"(Z|[+-]\d\d:\d\d)$", term.value)) for term in (left, right)]
    if name == "date" and zones[0] != zones[1] and abs(first - second) <= 14 * 3600:
        raise fail()
    signs = {"=": (0,), "!=": (-1, 1), "<": (-1,), ">": (1,), "<=": (-1, 0), ">=": (0, 1)}
    return (first > second) - (first < second) in signs[op]


def or_error(function: Callable[..., Term], *arguments: Term) -> Term | None:
    try:
        return function(*arguments)
    except ExpressionError:
        return None

"""Dates, times and durations of XML Schema: lexical form -> parts -> a number to compare by, and back.

A `DateTime` holds the parts of a lexical form of one of the eight calendar types, None for parts that its type does not
have. Its instant is the seconds from 0001-01-01T00:00:00Z to its start. Missing parts are those of 1972-12-31, the
reference of XPath's comparisons of times (1972 has a 29 February); but a month or year without a day starts on its
first day. A missing zone is UTC, our implicit time zone. The year 0 is 1 BC, as in XML Schema 1.1.

A `Duration` is (months, seconds), both of one sign. XPath compares durations by these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_FLOOR, Context, Decimal

# Enough digits for every sum and product; nothing is allocated before it is needed.
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

Duration = tuple[int, Decimal]

_YEAR = r"(?P<year>-?(?:[1-9][0-9]{3,}|0[0-9]{3}))"
_MONTH = r"(?P<month>[0-9]{2})"
_DAY = r"(?P<day>[0-9]{2})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}(?:\.[0-9]+)?)"
_ZONE = r"(?P<zone>Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))?"

_SHAPES = {
    name: re.compile(shape + _ZONE)
    for name, shape in {
        "dateTime": f"{_YEAR}-{_MONTH}-{_DAY}T{_TIME}",
        "date": f"{_YEAR}-{_MONTH}-{_DAY}",
        "time": _TIME,
        "gYear": _YEAR,
        "gYearMonth": f"{_YEAR}-{_MONTH}",
        "gMonth": f"--{_MONTH}",
        "gMonthDay": f"--{_MONTH}-{_DAY}",
        "gDay": f"---{_DAY}",
    }.items()
}
MOMENT_TYPES = frozenset(_SHAPES)

_DURATION = re.compile(
    r"(?P<sign>-?)P(?P<date>(?:([0-9]+)Y)?(?:([0-9]+)M)?)(?P<days>(?:([0-9]+)D)?"
    r"(?P<time>T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?)"
)
DURATION_TYPES = frozenset(("duration", "yearMonthDuration", "dayTimeDuration"))


@dataclass(frozen=True, slots=True)
class DateTime:
    """zone_s : seconds east of UTC, None without a zone. A time 24:00:00 is kept as it was written."""

    year: int | None
    month: int | None
    day: int | None
    hour: int | None
    minute: int | None
    second: Decimal | None
    zone_s: int | None

    def instant(self) -> Decimal | int:
        """The seconds from 0001-01-01T00:00:00Z; a Decimal if there is a time of day."""
        month = self.month or (1 if self.year is not None else 12)
        day = self.day or (31 if self.year is None and self.month is None else 1)
        days = _days(1972 if self.year is None else self.year, month, day)
        assert days is not None, self
        start = days * 86400 - (self.zone_s or 0)
        if self.second is None or self.hour is None or self.minute is None:
            return start
        end_of_day = self.hour == 24 and self.year is None  # of a time, which has no next day to be the start of
        return EXACT.add(Decimal(start + (0 if end_of_day else self.hour * 3600) + self.minute * 60), self.second)


def moment_of(lexical: str, name: str) -> DateTime | None:
    """Read the lexical form of a calendar type, such as dateTime; None if it is not one."""
    match = _SHAPES[name].fullmatch(lexical)
    if match is None:
        return None
    found = match.groupdict()
    year = None if found.get("year") is None else int_of(found["year"])
    month, day, hour, minute = (
        None if (part := found.get(key)) is None else int(part) for key in ("month", "day", "hour", "minute")
    )
    second = None if (part := found.get("second")) is None else Decimal(part)
    if _days(1972 if year is None else year, 12 if month is None else month, 1 if day is None else day) is None:
        return None
    if hour is not None and minute is not None and second is not None:
        is_end_of_day = hour == 24 and minute == 0 and second == 0
        if not is_end_of_day and (hour > 23 or minute > 59 or second >= 60):
            return None
    return DateTime(year, month, day, hour, minute, second, _zone_seconds(found["zone"]))


def moment_at(instant: Decimal | int, zone_s: int | None) -> DateTime:
    """Return the date and time that clocks of a zone show at an instant."""
    local = EXACT.add(Decimal(instant), Decimal(zone_s or 0))
    days = int(local.to_integral_value(ROUND_FLOOR)) // 86400
    rest = EXACT.subtract(local, Decimal(days * 86400))
    year, month, day = _date_of(days)
    hour, minute = int(rest // 3600), int(rest // 60) % 60
    return DateTime(year, month, day, hour, minute, EXACT.subtract(rest, Decimal(hour * 3600 + minute * 60)), zone_s)


def shifted(moment: DateTime, duration: Duration) -> DateTime | None:
    """Add a duration to a dateTime, date or time (XML Schema 1.1, E.3.3): the months first, then the seconds.

    A day that the new month does not have becomes its last day. The zone stays. A time is taken modulo a day; with
    months there is no sum, so None. Of a date the result has a time of day, too, which its type leaves out."""
    months, seconds = duration
    if moment.year is None or moment.month is None or moment.day is None:
        if months:
            return None
        whole = moment_at(EXACT.add(Decimal(moment.instant()), seconds), moment.zone_s)
        return replace(whole, year=None, month=None, day=None)
    years, month = divmod(moment.month - 1 + months, 12)
    year, day = moment.year + years, moment.day
    while _days(year, month + 1, day) is None:
        day -= 1
    start = replace(moment, year=year, month=month + 1, day=day).instant()
    return moment_at(EXACT.add(Decimal(start), seconds), moment.zone_s)


def date_time_lexical(moment: DateTime) -> str:
    """Write a DateTime with date and time canonically: 24:00:00 is the start of the next day."""
    if moment.hour == 24:
        moment = moment_at(moment.instant(), moment.zone_s)
    return f"{_date_lexical(moment)}T{_time_lexical(moment)}{zone_lexical(moment.zone_s)}"


def date_lexical(moment: DateTime) -> str:
    """Write the date of a DateTime."""
    return _date_lexical(moment) + zone_lexical(moment.zone_s)


def time_lexical(moment: DateTime) -> str:
    """Write the time of day of a DateTime."""
    return _time_lexical(moment) + zone_lexical(moment.zone_s)


MOMENT_LEXICALS = {"dateTime": date_time_lexical, "date": date_lexical, "time": time_lexical}
"""The writers of the types that have arithmetic, by the type's name."""


def _date_lexical(moment: DateTime) -> str:
    assert moment.year is not None
    sign = "-" if moment.year < 0 else ""
    return f"{sign}{Decimal(abs(moment.year)):0>4f}-{moment.month:02}-{moment.day:02}"


def _time_lexical(moment: DateTime) -> str:
    assert moment.second is not None
    whole, _, fraction = format(moment.second, "f").partition(".")
    fraction = fraction.rstrip("0")
    hour = 0 if moment.hour == 24 else moment.hour
    return f"{hour:02}:{moment.minute:02}:{whole:0>2}" + (f".{fraction}" if fraction else "")


def zone_lexical(zone_s: int | None) -> str:
    """Write a zone as XPath does: Z for UTC, nothing for none."""
    if zone_s is None or zone_s == 0:
        return "" if zone_s is None else "Z"
    minutes = abs(zone_s) // 60
    return f"{'-' if zone_s < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def duration_of(lexical: str, name: str) -> Duration | None:
    """Read the lexical form of a duration, yearMonthDuration or dayTimeDuration; None if it is not one."""
    match = _DURATION.fullmatch(lexical)
    if match is None or not (match["date"] or match["days"]):
        return None
    if (name == "yearMonthDuration" and match["days"]) or (name == "dayTimeDuration" and match["date"]):
        return None
    years, months, days, hours, minutes = (int_of(match[number] or "0") for number in (3, 4, 6, 8, 9))
    whole = days * 86400 + hours * 3600 + minutes * 60
    seconds = EXACT.add(Decimal(whole), Decimal(match[10] or 0))
    sign = -1 if match["sign"] else 1
    return sign * (years * 12 + months), EXACT.plus(EXACT.multiply(seconds, Decimal(sign)))


def duration_lexical(duration: Duration, name: str) -> str:
    """Write a duration canonically: P1Y2M, P1DT2H, -PT0.5S. Parts that the type does not have are left out."""
    months, seconds = duration
    years = f"{Decimal(abs(months) // 12):f}Y" if abs(months) >= 12 else ""
    date = years + (f"{abs(months) % 12}M" if months % 12 else "")
    left = EXACT.abs(seconds)
    days, clock = divmod(int(left), 86400)
    rest = EXACT.subtract(left, Decimal(days * 86400 + clock - clock % 60))
    parts = ((str(clock // 3600), "H"), (str(clock // 60 % 60), "M"), (_plain(rest), "S"))
    time = "".join(f"{number}{letter}" for number, letter in parts if number != "0")
    days_time = (f"{Decimal(days):f}D" if days else "") + (f"T{time}" if time else "")
    if name == "yearMonthDuration":
        text, is_negative = date or "0M", months < 0
    elif name == "dayTimeDuration":
        text, is_negative = days_time or "T0S", seconds < 0
    else:
        text, is_negative = date + days_time or "T0S", months < 0 or seconds < 0
    return f"{'-' if is_negative else ''}P{text}"


def _plain(number: Decimal) -> str:
    digits = format(number, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


# int() of a text refuses more decimal digits than this by default; Decimal knows no such limit.
_INT_DIGITS_MAX = 4000


def int_of(lexical: str) -> int:
    """Read an integer of any length."""
    return int(lexical) if len(lexical) <= _INT_DIGITS_MAX else int(Decimal(lexical))


def _days(year: int, month: int, day: int) -> int | None:
    """Days from 0001-01-01 in the proleptic Gregorian calendar (year 0 is 1 BC); None if there is no such day."""
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if is_leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        return None
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day - 1


def _date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day counted from 0001-01-01."""
    year = days * 400 // 146097 + 1
    while (_days(year, 1, 1) or 0) > days:  # the mean length of a year is off by a day or two at most
        year -= 1
    while (_days(year + 1, 1, 1) or 0) <= days:
        year += 1
    month = next(month for month in range(12, 0, -1) if (_days(year, month, 1) or 0) <= days)
    return year, month, days - (_days(year, month, 1) or 0) + 1


def _zone_seconds(zone: str | None) -> int | None:
    if zone is None or zone == "Z":
        return None if zone is None else 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return -seconds if zone[0] == "-" else seconds

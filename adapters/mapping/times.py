"""Times of cells, by columns: ISO texts, epochs, patterns of one's own; with a time zone where the text names none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.errors import DataError
from wukongs.store.dtypes import Int64Array
from wukongs.store.snapshot import EVENT_MAX_MS, EVENT_MIN_MS

NO_TIME = -(1 << 62)
Ambiguous = Literal["first", "second", "infer"]
"""infer: the first one, unless that lies before a record of the same source before it."""
UNITS = {
    "epoch_s": Fraction(1000),
    "epoch_ms": Fraction(1),
    "epoch_us": Fraction(1, 1000),
    "epoch_ns": Fraction(1, 1_000_000),
}
"""Milliseconds in one unit of an epoch format."""

_TIME_MS_MAX = 253_402_300_800_000
"""The year 10000. Later times are taken for another unit by mistake."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?", re.ASCII)
_END_OF_DAY = re.compile(r"([T ])24(?=(?::?00(?::?00(?:[.,]0+)?)?)?(?:Z|[+-][0-9:]+)?\Z)", re.ASCII)
"""The hour of a time of day that is the end of its day: 24:00:00 (XSD 1.1 part 2, 3.3.7; ISO 8601)."""
_PLAIN_ISO = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?$"
_ISO_OF_UTC = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?Z$"


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """text: "iso", one of UNITS, or a pattern of strptime; zone: of texts that name none; ambiguous: which one of two
    instants a local time is that a clock change repeats."""

    text: str = "iso"
    zone: str = "UTC"
    ambiguous: Ambiguous = "first"

    def __post_init__(self) -> None:
        """Raises: DataError (a format or zone that is not known)."""
        if self.text != "iso" and self.text not in UNITS and "%" not in self.text:
            raise DataError(
                f"expected iso, {', '.join(UNITS)} or a pattern such as %d.%m.%Y %H:%M, found {self.text!r}"
            )
        _zone(self.zone)
        if self.ambiguous not in get_args(Ambiguous):
            raise DataError(f"expected one of {', '.join(get_args(Ambiguous))}, found {self.ambiguous!r}")

    def __str__(self) -> str:
        return "a date and time" if self.text == "iso" else f"a time as {self.text}"


def times_of(
    cells: pa.Array,
    format: TimeFormat,
    floor_ms: int = NO_TIME,
    lateness_ms: int = 0,
    bounds: Int64Array | None = None,
) -> Int64Array:
    """Return ms since 1970 per cell, int64[n]; NO_TIME where a cell holds no such time.

    cells: texts, or timestamps of Arrow, of records in their order. Fractions of a millisecond are cut off. floor_ms:
    the latest time of all records before; lateness_ms: how far a record may lie behind the latest one; bounds :
    int64[n], later times are not believed, and infer nothing."""
    first = _times_of(cells, format, fold=0)
    if format.ambiguous == "first" or format.zone == "UTC" or format.text in UNITS:
        return first
    second = _times_of(cells, format, fold=1)
    twice = np.flatnonzero(second > first)  # in spring, when an hour is left out, the second one is earlier
    if format.ambiguous == "second":
        first[twice] = second[twice]
        return first
    newest, done = floor_ms, 0
    for row in twice.tolist():
        before = first[done:row] if bounds is None else first[done:row][first[done:row] <= bounds[done:row]]
        newest = max(newest, int(before.max(initial=NO_TIME)))
        done = row
        if first[row] < newest - lateness_ms:
            first[row] = second[row]
    return first


def _times_of(cells: pa.Array, format: TimeFormat, fold: int) -> Int64Array:
    """Return times as times_of does. fold: 0: a local time that a clock change repeats is the first one; 1: the
    second."""
    if pa.types.is_timestamp(cells.type):
        micros = cells.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        times = np.where(np.asarray(pc.is_valid(cells)), np.asarray(pc.fill_null(micros, 0)) // 1000, NO_TIME)
        return times if cells.type.tz else _shifted(times, format.zone, fold)
    times = np.full(len(cells), NO_TIME, np.int64)
    left = np.asarray(pc.is_valid(cells))
    if format.text == "iso":
        for pattern, zone in ((_PLAIN_ISO, format.zone), (_ISO_OF_UTC, "UTC")):
            mask = np.asarray(pc.fill_null(pc.match_substring_regex(cells, pattern), False))
            if not mask.any():
                continue
            texts = pc.utf8_rtrim(cells.filter(pa.array(mask)), "Z")
            try:
                micros = np.asarray(texts.cast(pa.timestamp("us")).cast(pa.int64()))
            except pa.ArrowInvalid:  # a 30th of February somewhere: one by one
                continue
            times[mask] = _shifted(micros // 1000, zone, fold)
            left &= ~mask
    if left.any():
        of_text = _reader(format, fold)
        unique = pc.dictionary_encode(cells.filter(pa.array(left)))
        known = np.array([of_text(text) for text in unique.dictionary.to_pylist()], np.int64)
        times[left] = known[np.asarray(unique.indices)]
    return times


def event_times_of(
    cells: pa.Array,
    format: TimeFormat,
    floor_ms: int = NO_TIME,
    lateness_ms: int = 0,
    bounds: Int64Array | None = None,
) -> Int64Array:
    """Do as times_of, with NO_TIME also for a time that no stream takes."""
    times = times_of(cells, format, floor_ms, lateness_ms, bounds)
    return np.where((times < EVENT_MIN_MS) | (times > EVENT_MAX_MS), NO_TIME, times)


def time_of(text: str, format: TimeFormat, floor_ms: int = NO_TIME, lateness_ms: int = 0) -> int | None:
    """Return the time of one text, None if it holds none. floor_ms, lateness_ms: as for times_of."""
    found = int(times_of(pa.array([text], pa.large_string()), format, floor_ms, lateness_ms)[0])
    return None if found == NO_TIME else found


def iso_texts(times: Int64Array) -> pa.Array:
    """Return times as xsd:dateTime of UTC; null for NO_TIME."""
    stamps = pa.array(np.where(times == NO_TIME, 0, times), pa.timestamp("ms"), mask=times == NO_TIME)
    return pc.strftime(stamps, "%Y-%m-%dT%H:%M:%SZ").cast(pa.large_string())


def stamp_texts(stamps: pa.Array) -> pa.Array:
    """Return Arrow timestamps as xsd:dateTime to the millisecond: of UTC if they have a zone, else without one."""
    zone = stamps.type.tz
    times = stamps.cast(pa.timestamp("ms", zone), safe=False)
    times = times.cast(pa.timestamp("ms", "UTC")) if zone else times
    return pc.strftime(times, "%Y-%m-%dT%H:%M:%S" + ("Z" if zone else "")).cast(pa.large_string())


def _reader(format: TimeFormat, fold: int) -> Callable[[str], int]:
    unit = UNITS.get(format.text, Fraction(1))
    zone = _zone(format.zone)

    def of_epoch(text: str) -> int:
        text = text.strip()
        if not _NUMBER.fullmatch(text):
            return NO_TIME
        try:
            time = int(Fraction(text.rstrip(".")) * unit // 1)
        except ValueError:  # more digits than Python reads
            return NO_TIME
        return time if abs(time) < _TIME_MS_MAX else NO_TIME

    def of_date(text: str) -> int:
        try:
            text, days = text.strip(), 0
            if format.text == "iso":
                text, days = _END_OF_DAY.subn(r"\g<1>00", text)
                moment = datetime.fromisoformat(text) + timedelta(days)
            else:
                moment = datetime.strptime(text, format.text)
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=zone, fold=fold)).astimezone(UTC)
        except (ValueError, OverflowError):  # OverflowError: in UTC it is before the year 1, or behind 9999
            return NO_TIME
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000

    return of_epoch if format.text in UNITS else of_date


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise DataError(
            f"expected a time zone such as Europe/Berlin, found {name!r}: this machine knows none of that name"
        ) from None


def _shifted(local: Int64Array, name: str, fold: int) -> Int64Array:
    """Return local times as those of UTC. Zones change at quarters of an hour, so each quarter is looked up once."""
    if name == "UTC":
        return local
    zone, quarter = _zone(name), 15 * 60 * 1000
    known = local != NO_TIME
    quarters, which = np.unique(local[known] // quarter, return_inverse=True)
    epoch = datetime(1970, 1, 1)
    offsets = [_offset_ms(epoch, int(one) * quarter, zone, fold) for one in quarters]
    result = local.copy()
    result[known] -= np.array(offsets, np.int64)[which]
    return result


def _offset_ms(epoch: datetime, local_ms: int, zone: ZoneInfo, fold: int) -> int:
    try:
        offset = (epoch + timedelta(milliseconds=local_ms)).replace(tzinfo=zone, fold=fold).utcoffset()
    except OverflowError:
        return 0
    assert offset is not None, zone
    return round(offset.total_seconds() * 1000)

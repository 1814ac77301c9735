"""A seeded city in CityBench's schema: sensors and events as stored triples, and streams of observations.

It has as many sensors, cultural and library events as Aarhus, each property with its kind, its place and its
coordinates. Each stream has one observation of each property in each second, with the triples that the benchmark's own
mapping makes of a row. Windows of 3 s so have as many rows as those of the real data. Quality figures of services are
left out: no query reads them. Values are drawn.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.bench.citybench.observations import (
    CES,
    CT,
    INTEGERS,
    SAO,
    SERVICE,
    SSN,
    WITHOUT_VALUE,
    A,
    kinds_of,
    number,
    observation,
)
from wukongs.bench.lsbench.data import StreamData

COUNTS = {"AarhusTrafficData": 449, "AarhusPollutionData": 449, "AarhusParkingData": 8}
"""Sensors of a kind, by the beginning of their names."""
SINGLE = ("AarhusWeatherData0", "UserLocationService")
EVENTS, LIBRARY_EVENTS = 99, 1548


@dataclass(frozen=True, slots=True)
class City:
    """sensors, culture, library: N-Triples; streams: by name, with times of whole seconds in ms."""

    sensors: bytes
    culture: bytes
    library: bytes
    streams: dict[str, StreamData]


def generate_city(seconds: int, streams: Sequence[str], seed: int = 1) -> City:
    """Make a city with streams of these sensors. The same arguments give the same bytes."""
    random = np.random.default_rng(seed)
    names = [*streams, *(name for name in SINGLE if name not in streams)]
    for start, count in COUNTS.items():
        others = count - sum(name.startswith(start) for name in streams)
        names += [f"{start}{300_000 + number}" for number in range(others)]
    sensors = "".join(line for name in names for line in _sensor(name, random))
    culture = "".join(line for number in range(EVENTS) for line in _event(f"event-{number}", random))
    library = "".join(line for number in range(LIBRARY_EVENTS) for line in _event(f"library-event-{number}", random))
    observed = {}
    for name in streams:
        rows = [list(_observations(name, second, random)) for second in range(seconds)]
        times = np.repeat(np.arange(seconds, dtype=np.int64) * 1000, [len(row) for row in rows])
        observed[name] = StreamData("".join(line for row in rows for line in row).encode(), times)
    return City(sensors.encode(), culture.encode(), library.encode(), observed)


def _property(name: str, kind: str) -> str:
    return f"<{SERVICE}Property-{name}-{kind}>"


def _coordinates(random: np.random.Generator) -> tuple[float, float]:
    return round(float(random.uniform(56.1, 56.3)), 6), round(float(random.uniform(10.0, 10.3)), 6)


def _sensor(name: str, random: np.random.Generator) -> Iterator[str]:
    sensor, place = f"<{SERVICE}{name}>", f"<{SERVICE}FoI-{name}>"
    latitude, longitude = _coordinates(random)
    yield f"{sensor} {A} <{CES}PrimitiveEventService> .\n"
    for kind in kinds_of(name):
        yield f"{sensor} <{SSN}observes> {_property(name, kind)} .\n"
        yield f"{_property(name, kind)} {A} <{CT}{kind}> .\n"
        yield f"{_property(name, kind)} <{SSN}isPropertyOf> {place} .\n"
    yield f"{place} {A} <{SSN}FeatureOfInterest> .\n"
    yield f"{place} <{CT}hasStartLatitude> {number(latitude)} .\n"
    yield f"{place} <{CT}hasStartLongitude> {number(longitude)} .\n"


def _event(name: str, random: np.random.Generator) -> Iterator[str]:
    event, place, node = f"<{SERVICE}{name}>", f"<{SERVICE}place-of-{name}>", f"_:node-of-{name}"
    latitude, longitude = _coordinates(random)
    yield f"{event} {A} <{SSN}Observation> .\n"
    yield f'{event} <{SAO}value> "Title: {name} Price: {random.integers(7) * 50}.00 DKK" .\n'
    yield f"{event} <{SSN}featureOfInterest> {place} .\n"
    yield f"{place} {A} <{SAO}FeatureOfInterest> .\n"
    yield f"{place} <{CT}hasFirstNode> {node} .\n"
    yield f"{node} {A} <{CT}Node> .\n"
    yield f"{node} <{CT}hasLatitude> {number(latitude, 'decimal')} .\n"
    yield f"{node} <{CT}hasLongitude> {number(longitude, 'decimal')} .\n"


def _observations(sensor: str, second: int, random: np.random.Generator) -> Iterator[str]:
    """Return the triples of one row of a sensor."""
    for kind in kinds_of(sensor):
        name = f"<{SERVICE}{sensor}-{kind}-id{uuid.uuid5(uuid.NAMESPACE_URL, f'{sensor}/{kind}/{second}')}>"
        value: float | tuple[float, float] | None = None
        if kind == "Location":
            value = _coordinates(random)
        elif kind in INTEGERS:
            value = int(random.integers(0, 300))
        elif kind != WITHOUT_VALUE:
            value = round(float(random.uniform(0, 90)), 4)
        place = f"<{SERVICE}place-of-event-0>"
        yield from observation(name, sensor, _property(sensor, kind), kind, value, second, place)

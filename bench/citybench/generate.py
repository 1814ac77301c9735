"""A seeded city in CityBench's schema: sensors and events as stored triples, and the eleven streams that C1-C11 read.

It has as many sensors and cultural events as Aarhus, each property with its kind, its place and its coordinates. Each
stream has one observation of each property in each second, with the triples that the benchmark's own mapping makes of
a row. Windows of 3 s so have as many rows as those of the real data. Quality figures of services and library events,
which no query of ours reads, are left out. Values are drawn.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np

from wukongs.bench.lsbench.data import StreamData

SERVICE = "http://www.insight-centre.org/dataset/SampleEventService#"
_SSN, _SAO = "http://purl.oclc.org/NET/ssnx/ssn#", "http://purl.oclc.org/NET/sao/"
_CT, _CES = "http://www.insight-centre.org/citytraffic#", "http://www.insight-centre.org/ces#"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_A = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_KINDS = {
    "AarhusTrafficData": ("AvgSpeed", "VehicleCount", "EstimatedTime", "CongestionLevel", "MeasureTime"),
    "AarhusPollutionData": ("API",),
    "AarhusParkingData": ("ParkingVacancy",),
    "AarhusWeatherData": ("Temperature", "Humidity", "WindSpeed"),
    "UserLocationService": ("Location",),
}
"""Sensors by the beginning of their names -> what each observes."""
_WITHOUT_VALUE = "MeasureTime"
"""The benchmark's mapping has no value for it."""
_INTEGERS = ("API", "ParkingVacancy", "Humidity")
TRAFFIC, POLLUTION = ("182955", "158505"), ("182955", "158505", "206502", "179093", "195843")
PARKING = ("KALKVAERKSVEJ", "SKOLEBAKKEN")
STREAMS = (
    *(f"AarhusTrafficData{number}" for number in TRAFFIC),
    *(f"AarhusPollutionData{number}" for number in POLLUTION),
    *(f"AarhusParkingData{garage}" for garage in PARKING),
    "AarhusWeatherData0",
    "UserLocationService",
)
_SENSORS = (
    *STREAMS,
    *(f"AarhusTrafficData{number}" for number in range(300_000, 300_447)),
    *(f"AarhusPollutionData{number}" for number in range(300_000, 300_444)),
    *(f"AarhusParkingData{number}" for number in range(6)),
)
EVENTS = 99


def generate_city(seconds: int, seed: int = 1) -> tuple[bytes, dict[str, StreamData]]:
    """Return the stored triples, and the streams by name, with times of whole seconds in ms. The same seed gives the
    same bytes."""
    random = np.random.default_rng(seed)
    stored = [line for name in _SENSORS for line in _sensor(name, random)]
    for number in range(EVENTS):
        stored += _event(number, random)
    streams = {}
    for name in STREAMS:
        rows = [list(_observations(name, second, random)) for second in range(seconds)]
        times = np.repeat(np.arange(seconds, dtype=np.int64) * 1000, [len(row) for row in rows])
        streams[name] = StreamData("".join(line for row in rows for line in row).encode(), times)
    return "".join(stored).encode(), streams


def _kinds(name: str) -> tuple[str, ...]:
    return next(kinds for start, kinds in _KINDS.items() if name.startswith(start))


def _property(name: str, kind: str) -> str:
    return f"<{SERVICE}Property-{name}-{kind}>"


def _number(value: float, datatype: str = "double") -> str:
    return f'"{value}"^^<{_XSD}{datatype}>'


def _coordinates(random: np.random.Generator) -> tuple[float, float]:
    return round(float(random.uniform(56.1, 56.3)), 6), round(float(random.uniform(10.0, 10.3)), 6)


def _sensor(name: str, random: np.random.Generator) -> Iterator[str]:
    sensor, place = f"<{SERVICE}{name}>", f"<{SERVICE}FoI-{name}>"
    latitude, longitude = _coordinates(random)
    yield f"{sensor} {_A} <{_CES}PrimitiveEventService> .\n"
    for kind in _kinds(name):
        yield f"{sensor} <{_SSN}observes> {_property(name, kind)} .\n"
        yield f"{_property(name, kind)} {_A} <{_CT}{kind}> .\n"
        yield f"{_property(name, kind)} <{_SSN}isPropertyOf> {place} .\n"
    yield f"{place} {_A} <{_SSN}FeatureOfInterest> .\n"
    yield f"{place} <{_CT}hasStartLatitude> {_number(latitude)} .\n"
    yield f"{place} <{_CT}hasStartLongitude> {_number(longitude)} .\n"


def _event(number: int, random: np.random.Generator) -> Iterator[str]:
    event, place, node = f"<{SERVICE}event-{number}>", f"<{SERVICE}event-place-{number}>", f"_:node{number}"
    latitude, longitude = _coordinates(random)
    yield f"{event} {_A} <{_SSN}Observation> .\n"
    yield f'{event} <{_SAO}value> "Title: Event {number} Price: {number % 7 * 50}.00 DKK" .\n'
    yield f"{event} <{_SSN}featureOfInterest> {place} .\n"
    yield f"{place} {_A} <{_SAO}FeatureOfInterest> .\n"
    yield f"{place} <{_CT}hasFirstNode> {node} .\n"
    yield f"{node} {_A} <{_CT}Node> .\n"
    yield f"{node} <{_CT}hasLatitude> {_number(latitude, 'decimal')} .\n"
    yield f"{node} <{_CT}hasLongitude> {_number(longitude, 'decimal')} .\n"


def _observations(name: str, second: int, random: np.random.Generator) -> Iterator[str]:
    """Return the triples of one row of a sensor."""
    for kind in _kinds(name):
        observation = f"<{SERVICE}{name}-{kind}-id{uuid.uuid5(uuid.NAMESPACE_URL, f'{name}/{kind}/{second}')}>"
        yield f"{observation} {_A} <{_SSN}Observation> .\n"
        yield f"{observation} <{_SSN}observedBy> <{SERVICE}{name}> .\n"
        yield f"{observation} <{_SSN}observedProperty> {_property(name, kind)} .\n"
        if kind == "Location":
            latitude, longitude = _coordinates(random)
            yield f"{observation} <{_SSN}featureOfInterest> <{SERVICE}event-place-0> .\n"
            yield f"{observation} <{_SAO}hasValue> _:at{second} .\n"
            yield f"_:at{second} <{_CT}hasLatitude> {_number(latitude)} .\n"
            yield f"_:at{second} <{_CT}hasLongitude> {_number(longitude)} .\n"
        elif kind in _INTEGERS:
            yield f"{observation} <{_SAO}hasValue> {_number(int(random.integers(0, 300)), 'int')} .\n"
        elif kind != _WITHOUT_VALUE:
            yield f"{observation} <{_SAO}hasValue> {_number(round(float(random.uniform(0, 90)), 4))} .\n"

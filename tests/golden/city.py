"""A small city of our own in the shape of CityBench: sensors and events to store, and observations of ten seconds.

Stored are 60 traffic sensors with five properties each, 12 of pollution, 8 garages, a weather station and a service of
the user's place, each property with its kind and its place; and 40 events. Every stream that C1-C11 name observes once
a second, half a second after each full one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.csparql.counted_triples import Triple

SERVICE = "http://www.insight-centre.org/dataset/SampleEventService#"
SSN = "http://purl.oclc.org/NET/ssnx/ssn#"
SAO = "http://purl.oclc.org/NET/sao/"
CT = "http://www.insight-centre.org/citytraffic#"
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
DOUBLE = "http://www.w3.org/2001/XMLSchema#double"
SECONDS = 10

TRAFFIC = (182955, 158505, *range(170000, 170058))
POLLUTION = (182955, 158505, 206502, 179093, 195843, *range(180000, 180007))
GARAGES = ("KALKVAERKSVEJ", "SKOLEBAKKEN", *(f"GARAGE{number}" for number in range(6)))
TRAFFIC_KINDS = ("CongestionLevel", "AvgSpeed", "EstimatedTime", "VehicleCount", "MeasureTime")
KINDS = {
    **{f"AarhusTrafficData{number}": TRAFFIC_KINDS for number in TRAFFIC},
    **{f"AarhusPollutionData{number}": ("API",) for number in POLLUTION},
    **{f"AarhusParkingData{garage}": ("ParkingVacancy",) for garage in GARAGES},
    "AarhusWeatherData0": ("Temperature", "Humidity", "WindSpeed"),
    "UserLocationService": ("Location",),
}
"""Stream -> the kinds of its properties."""


def stored_city() -> list[Triple]:
    """Return the triples of the stored graph."""
    return [triple for at, stream in enumerate(KINDS) for triple in _sensor(at, stream)] + list(_events(40))


def observed(stream: str) -> list[tuple[Triple, int]]:
    """Return the triples of a stream with their event times in ms. All but the measure time have a value."""
    found = []
    for second in range(SECONDS):
        for kind in KINDS[stream]:
            observation = _name(SERVICE, f"{stream}-{kind}-{second}")
            triples = [
                (observation, TYPE, _name(SSN, "Observation")),
                (observation, _name(SSN, "observedBy"), _name(SERVICE, stream)),
                (observation, _name(SSN, "observedProperty"), _property(stream, kind)),
            ]
            if kind == "Location":
                place = _name(SERVICE, f"place-{second}")
                triples += [
                    (observation, _name(SAO, "hasValue"), place),
                    (place, _name(CT, "hasLatitude"), _number(56 + second / 8)),
                    (place, _name(CT, "hasLongitude"), _number(10 + second / 8)),
                ]
            elif kind != "MeasureTime":
                triples.append((observation, _name(SAO, "hasValue"), _number(second % 4)))
            found += [(triple, second * 1000 + 500) for triple in triples]
    return found


def _sensor(at: int, stream: str) -> Iterator[Triple]:
    place = _name(SERVICE, f"FoI-{at}")
    yield _name(SERVICE, stream), TYPE, "<http://www.insight-centre.org/ces#PrimitiveEventService>"
    yield place, TYPE, _name(SSN, "FeatureOfInterest")
    yield place, _name(CT, "hasStartLatitude"), _number(56 + at / 128)
    yield place, _name(CT, "hasStartLongitude"), _number(10 + at / 128)
    for kind in KINDS[stream]:
        yield _name(SERVICE, stream), _name(SSN, "observes"), _property(stream, kind)
        yield _property(stream, kind), TYPE, _name(CT, kind)
        yield _property(stream, kind), _name(SSN, "isPropertyOf"), place


def _events(count: int) -> Iterator[Triple]:
    for number in range(count):
        event, place, node = (_name(SERVICE, f"{what}-{number}") for what in ("event", "context", "node"))
        yield event, TYPE, _name(SSN, "Observation")
        yield event, _name(SAO, "value"), f'"Title: event {number}"'
        yield event, _name(SSN, "featureOfInterest"), place
        yield place, TYPE, _name(SAO, "FeatureOfInterest")
        yield place, _name(CT, "hasFirstNode"), node
        yield node, _name(CT, "hasLatitude"), _number(56 + number / 64)
        yield node, _name(CT, "hasLongitude"), _number(10 + number / 64)


def _name(namespace: str, local: str) -> str:
    return f"<{namespace}{local}>"


def _property(stream: str, kind: str) -> str:
    return _name(SERVICE, f"{kind}-of-{stream}")


def _number(value: float) -> str:
    # As short as can be, since pyoxigraph does not keep how a double was written.
    return f'"{value:.10g}"^^<{DOUBLE}>'

"""Observations of CityBench's sensors: rows of its files `<stream>.stream` become the triples that it makes of them.

Source of the mapping: the benchmark's own wrappers (Ali, Gao, Mileo: CityBench, ISWC 2015). Each observation has a
type, its sensor, the property that it observes, as the sensor repository names it, and a value. Travel times and
congestion of a road need its length, from trafficMetaData.csv. IRIs of observations end in a UUID by name.
"""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from wukongs.bench.lsbench.data import StreamData

SERVICE = "http://www.insight-centre.org/dataset/SampleEventService#"
SSN, SAO = "http://purl.oclc.org/NET/ssnx/ssn#", "http://purl.oclc.org/NET/sao/"
CT, CES = "http://www.insight-centre.org/citytraffic#", "http://www.insight-centre.org/ces#"
XSD = "http://www.w3.org/2001/XMLSchema#"
A = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
KINDS = {
    "AarhusTrafficData": ("AvgSpeed", "VehicleCount", "MeasureTime", "EstimatedTime", "CongestionLevel"),
    "AarhusPollutionData": ("API",),
    "AarhusParkingData": ("ParkingVacancy",),
    "AarhusWeatherData": ("Temperature", "Humidity", "WindSpeed"),
    "UserLocationService": ("Location",),
}
"""Sensors by the beginning of their names -> what each observes."""
WITHOUT_VALUE = "MeasureTime"
"""The benchmark's mapping has no value for it."""
INTEGERS = ("API", "ParkingVacancy", "Humidity")
FIRST = "2014-08-11T11:00:00"
"""Rows before it are left out, as by the benchmark's own scripts."""
ROWS = 900
_EVENTS = "http://iot.ee.surrey.ac.uk/citypulse/datasets/aarhusculturalevents/culturalEvents_aarhus#"
_PLACE_OF_USERS = f"<{_EVENTS}context_do63jk2t8c3bjkfb119ojgkhs7>"


def kinds_of(sensor: str) -> tuple[str, ...]:
    """Return the kinds of properties that a sensor observes, in the order of its observations."""
    return next(kinds for start, kinds in KINDS.items() if sensor.startswith(start))


def number(value: float, datatype: str = "double") -> str:
    return f'"{value}"^^<{XSD}{datatype}>'


def read_observations(
    sensor: str, text: str, properties: Mapping[str, str], lengths: Mapping[str, float]
) -> StreamData:
    """Return the triples of a sensor's file, one row a second, with the times of whole seconds in ms.

    properties: kind -> the IRI of the property that the sensor observes; lengths: REPORT_ID -> metres of the road.
    Raises ValueError (the column or value that is not as expected, with its line)."""
    lines, counts = list[str](), list[int]()
    for second, (about, values) in enumerate(islice(_rows(sensor, text, lengths), ROWS)):
        before = len(lines)
        for kind in kinds_of(sensor):
            name = (
                f"{SERVICE}{_observation(sensor)}-{about}{uuid.uuid5(uuid.NAMESPACE_URL, f'{sensor}/{kind}/{second}')}"
            )
            observed = properties.get(kind)
            if observed is None:
                raise ValueError(f"the sensor repository has no property of kind {kind} that {sensor} observes")
            lines += observation(f"<{name}>", sensor, f"<{observed}>", kind, values.get(kind), second, _PLACE_OF_USERS)
        counts.append(len(lines) - before)
    return StreamData("".join(lines).encode(), np.repeat(np.arange(len(counts), dtype=np.int64) * 1000, counts))


def observation(
    name: str, sensor: str, observed: str, kind: str, value: float | tuple[float, float] | None, second: int, place: str
) -> Iterator[str]:
    """Yield the triples of one observation. value: None for a kind without; latitude and longitude of a location, which
    is at `place`."""
    yield f"{name} {A} <{SSN}Observation> .\n"
    yield f"{name} <{SSN}observedBy> <{SERVICE}{sensor}> .\n"
    yield f"{name} <{SSN}observedProperty> {observed} .\n"
    if isinstance(value, tuple):
        yield f"{name} <{SSN}featureOfInterest> {place} .\n"
        yield f"{name} <{SAO}hasValue> _:at{second} .\n"
        yield f"_:at{second} <{CT}hasLatitude> {number(value[0])} .\n"
        yield f"_:at{second} <{CT}hasLongitude> {number(value[1])} .\n"
    elif value is not None:
        yield f"{name} <{SAO}hasValue> {number(value, 'int' if kind in INTEGERS else 'double')} .\n"


def _observation(sensor: str) -> str:
    start = next(start for start in KINDS if sensor.startswith(start))
    return start.removesuffix("Data").removesuffix("Service") + "Observation"


_Row = tuple[str, Mapping[str, float | tuple[float, float]]]


def _rows(sensor: str, text: str, lengths: Mapping[str, float]) -> Iterator[_Row]:
    """Yield what each row is called, and its values by kind."""
    rows = csv.reader(text.splitlines())
    header = ["place"] if sensor.startswith("UserLocation") else next(rows, [])
    for line, cells in enumerate(rows, 2):
        row = dict(zip(header, [",".join(cells)] if header == ["place"] else cells, strict=False))
        try:
            if header != ["place"] and _time(row).replace(" ", "T")[: len(FIRST)] < FIRST:
                continue
            yield _values(sensor, row, lengths)
        except (KeyError, ValueError) as error:
            found = f"no column {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{sensor}.stream, line {line - (header == ['place'])}: {found}") from None


def _time(row: Mapping[str, str]) -> str:
    return next(row[name] for name in ("TIMESTAMP", "timestamp", "updatetime") if name in row)


def _values(sensor: str, row: Mapping[str, str], lengths: Mapping[str, float]) -> _Row:
    match _observation(sensor):
        case "AarhusTrafficObservation":
            speed, count, length = float(row["avgSpeed"]), float(row["vehicleCount"]), lengths[row["REPORT_ID"]]
            return row["_id"], {
                "AvgSpeed": speed,
                "VehicleCount": count,
                "EstimatedTime": length / speed if speed else -1.0,
                "CongestionLevel": count / length if length else -1.0,
            }
        case "AarhusWeatherObservation":
            return "0", {
                "Temperature": float(row["tempm"]),
                "Humidity": int(float(row["hum"])),
                "WindSpeed": float(row["wspdm"]),
            }
        case "AarhusParkingObservation":
            return row["_id"], {"ParkingVacancy": int(row["totalspaces"]) - int(row["vehiclecount"])}
        case "AarhusPollutionObservation":
            pollutants: Sequence[str] = list(row.values())[:5]
            return "0", {"API": max(int(value) for value in pollutants)}
        case _:
            latitude, _, longitude = row["place"].partition("|")[2].partition(",")
            return "0", {"Location": (float(latitude), float(longitude))}

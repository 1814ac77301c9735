"""CityBench's data: files as the benchmark ships them, cities that we make, and what the queries find in both."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from tests.unit.bench.test_runs import about, bench, lines_in
from wukongs.bench.citybench.data import C_QUERIES, Q_QUERIES, SENSORS, CityFiles, properties_of, streams_of
from wukongs.bench.citybench.generate import generate_city
from wukongs.bench.citybench.observations import CT, SERVICE, SSN, XSD, read_observations


@pytest.mark.rare
@pytest.mark.slow
def test_a_city_that_we_make_has_the_counts_of_the_real_one(tmp_path: Path) -> None:
    assert bench("citybench", "--report", str(tmp_path)) == 0
    lines = lines_in(tmp_path)
    assert [line for line in lines if "skipped" in line] == []
    assert {line["query"] for line in lines} == {*C_QUERIES, *Q_QUERIES}
    assert sum("counts of the data" in line["checked"] for line in lines) == 2 * 9
    rows = {line["query"]: line["rows"] for line in lines}
    assert all(rows[f"C{number}"] == rows[f"Q{number}"] for number in (3, 5)), "all that is made is near"
    assert (rows["Q8"], rows["Q11"], rows["Q12"]) == (9 * 1548, 907, 1)
    assert about(tmp_path)["data"]["source"] == "our generator"


def test_a_city_is_the_same_for_the_same_seed() -> None:
    names = streams_of(["C6", "C11", "Q12"])
    made, again = generate_city(2, names), generate_city(2, names)
    assert (made.sensors, made.culture, made.library) == (again.sensors, again.culture, again.library)
    assert [made.streams[name].lines for name in names] == [again.streams[name].lines for name in names]
    assert generate_city(2, names, seed=2).sensors != made.sensors
    assert {name: len(stream) for name, stream in made.streams.items()} == {
        "AarhusParkingDataKALKVAERKSVEJ": 8,
        "UserLocationService": 14,
        "AarhusWeatherData0": 24,
        "AarhusTrafficData186979": 38,
    }
    assert made.sensors.count(b"PrimitiveEventService> .") == 908


@pytest.mark.slow
@pytest.mark.shared
def test_citybench_has_the_counts_of_its_data(tmp_path: Path, shared_data: Path) -> None:
    data = ("--data", str(shared_data / "citybench"))
    assert bench("citybench", *data, "--queries", "C1,C9,Q4,Q8", "--report", str(tmp_path)) == 0
    lines = lines_in(tmp_path)
    assert {(line["experiment"], line["query"], line["metric"]) for line in lines} == {
        (experiment, query, metric)
        for experiment, query in (
            ("citybench", "C1"),
            ("citybench", "C9"),
            ("citybench-official", "Q4"),
            ("citybench-official", "Q8"),
        )
        for metric in ("latency", "execution")
    }
    assert {line["query"]: (line["checked"], line["rows"]) for line in lines} == {
        "C1": ("pyoxigraph and counts of the data", 9),
        "C9": ("pyoxigraph", 891),
        "Q4": ("pyoxigraph", 0),
        "Q8": ("pyoxigraph", 13932),
    }


@pytest.mark.slow
@pytest.mark.shared
def test_rows_of_citybench_become_the_triples_that_its_streams_have(shared_data: Path) -> None:
    files = CityFiles(shared_data / "citybench")
    sensors = files.triples(SENSORS)
    for name in streams_of(C_QUERIES):
        ready = files.stream(name, sensors)
        rows = read_observations(name, files.text(f"{name}.stream"), properties_of(sensors, name), files.lengths)
        assert np.array_equal(rows.times, ready.times)
        assert _without_uuids(rows.lines) == _without_uuids(ready.lines)


def _without_uuids(lines: bytes) -> bytes:
    """Leave out what names an observation, and the number of a blank node."""
    return re.sub(rb"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f-]{21}>|_:[a-z]+", b"", lines)


def test_files_of_citybench_are_found_by_name_and_told_where_they_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "dataset" / "deep").mkdir(parents=True)
    sensor, weather = f"<{SERVICE}AarhusWeatherData0>", "AarhusWeatherData0.stream"
    kinds = {"Temperature": "t", "Humidity": "h", "WindSpeed": "w"}
    observed = "".join(
        f"{sensor} <{SSN}observes> <{SERVICE}{one}> . <{SERVICE}{one}> a <{CT}{kind}> . " for kind, one in kinds.items()
    )
    (tmp_path / "dataset" / SENSORS).write_text(observed)
    files = CityFiles(tmp_path)
    sensors = files.triples(SENSORS)
    with pytest.raises(FileNotFoundError, match=rf"no file {weather} or {weather}.gz in it"):
        files.stream("AarhusWeatherData0", sensors)
    rows = "hum,tempm,wspdm,TIMESTAMP\n50,9,1,2014-08-01T00:00:00\n56,18,7.4,2014-08-11T11:00:00\n"
    path = tmp_path / "dataset" / "deep" / f"{weather}.gz"
    path.write_bytes(gzip.compress(rows.encode()))
    lines = CityFiles(tmp_path).stream("AarhusWeatherData0", sensors).lines.decode()
    values = re.findall(r'observedProperty> <[^<>]+#(.)> .\n.*hasValue> ("[^"]+"\S+#\w+)', lines)
    assert values == [
        ("t", '"18.0"^^<' + XSD + "double"),
        ("h", '"56"^^<' + XSD + "int"),
        ("w", '"7.4"^^<' + XSD + "double"),
    ]
    for wrong, told in (
        ("hum,wspdm,TIMESTAMP\n50,1,2014-08-12T00:00:00\n", "AarhusWeatherData0.stream, line 2: no column 'tempm'"),
        (
            rows + "a,1,1,2014-08-12T00:00:00\n",
            "AarhusWeatherData0.stream, line 4: could not convert string to float: 'a'",
        ),
    ):
        path.write_bytes(gzip.compress(wrong.encode()))
        with pytest.raises(ValueError, match=re.escape(told)):
            CityFiles(tmp_path).stream("AarhusWeatherData0", sensors)
    path.write_bytes(gzip.compress(rows.encode()))
    with pytest.raises(ValueError, match="no property of kind Temperature that AarhusWeatherData0 observes"):
        CityFiles(tmp_path).stream("AarhusWeatherData0", b"")

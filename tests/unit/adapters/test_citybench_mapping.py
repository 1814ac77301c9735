"""The declared CityBench mappings against the benchmark's ready-made RDF streams, row by row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.adapters.helpers import PROJECT, SCOPE, lines_of, shared, triples_of
from wukongs.adapters.run_config import CsvSource
from wukongs.adapters.sources.csv_file import prepare_csv

SERVICE = "http://www.insight-centre.org/dataset/SampleEventService#"
MAPPINGS = PROJECT / "examples" / "citybench" / "mappings"
STREAMS = {
    "AarhusTrafficData182955": "traffic",
    "AarhusTrafficData158505": "traffic",
    "AarhusPollutionData182955": "pollution",
    "AarhusPollutionData158505": "pollution",
    "AarhusPollutionData206502": "pollution",
    "AarhusPollutionData179093": "pollution",
    "AarhusPollutionData195843": "pollution",
    "AarhusParkingDataKALKVAERKSVEJ": "parking",
    "AarhusParkingDataSKOLEBAKKEN": "parking",
    "AarhusWeatherData0": "weather",
    "UserLocationService": "location",
}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?=>)")
_NODE = re.compile(r"_:(?:s[0-9a-f]{16}x)?loc(\d+)")


def _plain(term: str) -> str:
    """A term without the UUID of an observation and the scope of a blank node."""
    if "Observation-" in term:
        term, count = _UUID.subn("", term)
        assert count == 1, term
    return _NODE.sub(r"_:loc\1", term)


@pytest.mark.shared
@pytest.mark.parametrize("name", STREAMS)
def test_mapping_yields_the_benchmarks_own_rdf_stream(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [line.split("\t", 1) for line in lines_of(shared("citybench", "rdf_streams", f"{name}.tsv.gz"))]
    monkeypatch.setenv("CITYBENCH_DATA", str(shared("citybench")))
    config = CsvSource(
        path=str(shared("citybench", "streams", f"{name}.stream.gz")),
        mapping=str(MAPPINGS / f"{STREAMS[name]}.toml"),
        sensor=SERVICE + name,
    )
    source, index = prepare_csv(config, tmp_path)
    rows = source.read(index.range(0, min(900, len(index))), SCOPE, 62)

    assert not rows.malformed
    assert not rows.backwards
    assert len(rows.encoded) == len(expected)
    times = rows.encoded.timestamps.tolist()
    for row, ((time, line), triple) in enumerate(zip(expected, triples_of(rows.encoded), strict=True)):
        wanted = [_plain(term) for term in line.removesuffix(" .").split(" ", 2)]
        assert (times[row], [_plain(term) for term in triple]) == (int(time), wanted), f"triple {row}"


@pytest.mark.shared
def test_observation_iris_are_the_same_in_every_run_and_distinct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITYBENCH_DATA", str(shared("citybench")))
    name = "AarhusWeatherData0"
    config = CsvSource(
        path=str(shared("citybench", "streams", f"{name}.stream.gz")),
        mapping=str(MAPPINGS / "weather.toml"),
        sensor=SERVICE + name,
    )
    source, index = prepare_csv(config, tmp_path)
    whole = triples_of(source.read(index.range(0, 100), SCOPE, 62).encoded)
    halves = [triples_of(source.read(index.range(*part), SCOPE, 62).encoded) for part in ((0, 37), (37, 100))]
    assert whole == halves[0] + halves[1]
    assert len({triple[0] for triple in whole}) == 300

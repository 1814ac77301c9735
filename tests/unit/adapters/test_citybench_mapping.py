"""The declared CityBench mappings against the benchmark's ready-made RDF streams, row by row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.adapters.helpers import PROJECT, SCOPE, lines_of, shared, triples_of
from wukongs.adapters.mapping.mapping import load_mapping
from wukongs.adapters.run_config import RecordSource
from wukongs.adapters.source import SourceIndex
from wukongs.adapters.sources.record_file import RecordFile, prepare_records

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
_OBSERVATION = re.compile(r"(?<=Observation-)[^>]*")
_NODE = re.compile(r"_:(?:s[0-9a-f]{16}x)?loc(\d+)")


def _plain(term: str) -> str:
    """A term without what makes an observation's IRI its own (CityBench has random UUIDs), and a blank node's scope."""
    return _NODE.sub(r"_:loc\1", _OBSERVATION.sub("", term))


def _prepared(name: str, folder: Path) -> tuple[RecordFile, SourceIndex]:
    path = str(shared("citybench", "streams", f"{name}.stream.gz"))
    mapping = load_mapping(MAPPINGS / f"{STREAMS[name]}.toml")
    config = RecordSource(kind="csv", paths=(path,), mapping=mapping, constants=(("sensor", SERVICE + name),))
    return prepare_records(config, path, folder)


@pytest.mark.shared
@pytest.mark.parametrize("name", STREAMS)
def test_mapping_yields_the_benchmarks_own_rdf_stream(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [line.split("\t", 1) for line in lines_of(shared("citybench", "rdf_streams", f"{name}.tsv.gz"))]
    monkeypatch.setenv("CITYBENCH_DATA", str(shared("citybench")))
    source, index = _prepared(name, tmp_path)
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
    source, index = _prepared("AarhusWeatherData0", tmp_path)
    whole = triples_of(source.read(index.range(0, 100), SCOPE, 62).encoded)
    halves = [triples_of(source.read(index.range(*part), SCOPE, 62).encoded) for part in ((0, 37), (37, 100))]
    assert whole == halves[0] + halves[1]
    assert len({triple[0] for triple in whole}) == 300

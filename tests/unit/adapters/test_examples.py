"""The example runs: their files load, and their sources and queries give the known answer sizes (by pyoxigraph)."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.window_text import answer
from tests.unit.adapters.helpers import PROJECT, SCOPE, lines_of, shared, triples_of
from wukongs.adapters.run_config import RunConfig, load_run_config
from wukongs.adapters.source import PreparedSource
from wukongs.adapters.sources import prepare
from wukongs.query.terms.rdf_terms import to_ntriples
from wukongs.store.encoded import TermCutter

pytestmark = pytest.mark.shared
DAY_MS = 86_400_000


def _config(name: str, folder: Path) -> RunConfig:
    return load_run_config(PROJECT / "examples" / f"{name}.toml", {f"{name.upper()}_DATA": str(folder)})


def _window(source: PreparedSource, low_ms: int, high_ms: int) -> list[str]:
    """The N-Triples lines with low < t <= high, through our own sources."""
    first, end = source.index.rows_until(low_ms), source.index.rows_until(high_ms)
    rows = source.source.read(source.index.range(first, end), SCOPE, 62)
    times = rows.encoded.timestamps
    assert not len(times) or (low_ms < times.min() and times.max() <= high_ms)
    cut = TermCutter(rows.encoded).cut(np.arange(len(times)))
    return [f"{' '.join(map(to_ntriples, triple))} ." for triple in triples_of(cut)]


@lru_cache(maxsize=1)
def _lsbench(folder: Path, unpacked: Path) -> tuple[RunConfig, dict[str, list[str]], str]:
    config = _config("lsbench", folder)
    windows = {one.stream: _window(one, 10 * DAY_MS, 11 * DAY_MS) for one in prepare(config.streams, unpacked)}
    return config, windows, gzip.decompress(Path(config.stored[0].file).read_bytes()).decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "rows"),
    [("L1", 0), ("L2", 0), ("L3", 18), ("L4", 568), ("L4_distinct_posts", 28), ("L5", 1673), ("L6", 1033)],
)
def test_lsbench_day_ten(query: str, rows: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    import pyoxigraph

    config, windows, stored = _lsbench(shared("lsbench"), tmp_path_factory.getbasetemp())
    text = next(one.text for one in config.queries if one.name == query)
    wanted = {"knows", "account_of", "subscriber_of"}
    lines = [
        f"{quad.subject} {quad.predicate} {quad.object} ."
        for quad in pyoxigraph.parse(stored.encode(), format=pyoxigraph.RdfFormat.TURTLE)
        if quad.predicate.value.replace("#", "/").rpartition("/")[2] in wanted
    ]
    assert answer(text, windows, lines) == rows


@pytest.mark.parametrize(
    ("query", "rows"),
    [("C1", 9), ("C3", 9), ("C4", 297), ("C5", 297), ("C6", 9), ("C7", 9), ("C8", 9), ("C10", 243), ("C11", 9)],
)
@pytest.mark.parametrize("end_ms", [2000, 150_000])
def test_citybench(query: str, rows: int, end_ms: int, tmp_path: Path) -> None:
    folder = shared("citybench")
    config = _config("citybench", folder)
    text = next(one.text for one in config.queries if one.name == query)
    sources = prepare([one for one in config.streams if one.iri.partition("#")[2] in text], tmp_path)
    windows = {one.stream: _window(one, end_ms - 3000, end_ms) for one in sources}
    stored = [line for line in lines_of(folder / "stored" / "stored.nt.gz") if "AarhusLibraryEvents" not in line]
    stored = [line for line in stored if "libraryEvents" not in line]
    assert answer(text, windows, stored) == rows


def test_the_one_shot_questions_are_sparql_without_a_dataset_clause() -> None:
    config = _config("lsbench", shared("lsbench"))
    assert [one.name for one in config.asks] == ["S1", "S2", "S3", "S5", "S6"]
    assert not any("FROM" in one.text for one in config.asks)

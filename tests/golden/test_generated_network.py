"""A small network of our own generator through the whole path, every row of every window against pyoxigraph."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyoxigraph as ox
import pytest

from tests.golden.run_output import run_wukongs
from wukongs.adapters.demo import continuous_queries
from wukongs.adapters.lsbench_generator import STREAM_NAMES, STREAM_NAMESPACE, NetworkSettings, generate_network

WINDOW = "[RANGE 500ms STEP 250ms]"
Timed = tuple[int, ox.Triple]


def _config(folder: Path, stored: str, streams: dict[str, str], queries: dict[str, str]) -> Path:
    lines = [f'[[stored]]\nfile = "{stored}"']
    for name in STREAM_NAMES:
        timing = "true" if name == "gps" else "[]"
        lines.append(
            f'[[stream]]\niri = "{STREAM_NAMESPACE}{name}"\nbatch_ms = 50\ntiming = {timing}\n'
            f'source = {{ kind = "timestamped", path = "{streams[name]}" }}'
        )
    lines += [f"[[query]]\nname = \"{name}\"\ntext = '''{text}'''" for name, text in queries.items()]
    lines.append('[[ask]]\nname = "all"\ntext = "SELECT * WHERE { ?s ?p ?o }"')
    path = folder / "run.toml"
    path.write_text("\n\n".join(lines), "utf-8")
    return path


def _timed(path: str) -> list[Timed]:
    found = []
    for line in Path(path).read_text("utf-8").splitlines():
        statement, time_ms = line.rsplit(" ", 1)
        (quad,) = ox.parse(statement.encode(), ox.RdfFormat.N_TRIPLES)
        found.append((int(time_ms), quad.triple))
    return found


def _expected(
    query: str, end_ms: int, stored: set[ox.Triple], streams: dict[str, list[Timed]]
) -> Counter[tuple[str, ...]]:
    """Answer one window naively: a fresh dataset, an engine of somebody else."""
    store = ox.Store()
    store.extend(ox.Quad(*triple, ox.DefaultGraph()) for triple in stored)
    for name, tuples in streams.items():
        graph = ox.NamedNode(STREAM_NAMESPACE + name)
        if name != "gps":
            store.extend(ox.Quad(*triple, ox.DefaultGraph()) for t, triple in tuples if t <= end_ms)
        store.extend(ox.Quad(*triple, graph) for t, triple in tuples if end_ms - 500 < t <= end_ms)
    text = re.sub(r"REGISTER QUERY \S+ AS|FROM NAMED STREAM \S+ \[[^]]*\]|FROM <[^>]*>", "", query)
    solutions = store.query(text)
    assert isinstance(solutions, ox.QuerySolutions)
    names = [variable.value for variable in solutions.variables]
    return Counter(tuple(str(row[name]) for name in names) for row in solutions)


SMALL = NetworkSettings(users=30, duration_ms=750, friends=8, seed=3, posts_per_s=60, photos_per_s=240)
LARGER = NetworkSettings(users=60, duration_ms=1500, friends=8, seed=3, posts_per_s=60, photos_per_s=240)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [pytest.param(SMALL, id="small"), pytest.param(LARGER, id="larger", marks=pytest.mark.rare)]
)
def test_every_row_of_every_window(settings: NetworkSettings, tmp_path: Path) -> None:
    network = generate_network(tmp_path / "network", settings)
    queries = continuous_queries(network.busiest_user, WINDOW)
    found = run_wukongs(_config(tmp_path, network.stored, network.streams, queries), "--rows", "1000000")

    stored = {quad.triple for quad in ox.parse(Path(network.stored).read_bytes(), ox.RdfFormat.N_TRIPLES)}
    streams = {name: _timed(path) for name, path in network.streams.items()}
    ends = sorted({end_ms for _, end_ms in found.windows})
    assert ends == list(range(ends[0], settings.duration_ms + 1, 250))
    assert len(ends) >= settings.duration_ms // 250 - 1
    sizes = Counter[str]()
    for end_ms in ends:
        for name, text in queries.items():
            assert found.rows[name, end_ms] == _expected(text, end_ms, stored, streams), (name, end_ms)
            sizes[name] += found.windows[name, end_ms]
    assert all(sizes[name] for name in queries), f"a query without any row shows nothing: {sizes}"
    timeless = {triple for name, tuples in streams.items() if name != "gps" for _, triple in tuples}
    assert found.asked["all", "before"] == len(stored)
    assert found.asked["all", "after"] == len(stored | timeless)
    assert "WARN" not in found.errors
    assert "Exception" not in found.errors

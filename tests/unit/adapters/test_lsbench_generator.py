"""The generated network: same settings, same bytes; the shape of LSBench; answers to L1 to L6 in one second."""

from __future__ import annotations

from pathlib import Path

import pyoxigraph
import pytest

from tests.oracles.window_text import answer, split_time
from tests.unit.adapters.helpers import PROJECT, read_all
from wukongs.adapters.lsbench_generator import STREAM_NAMES, GeneratedNetwork, NetworkSettings, generate_network
from wukongs.adapters.sources.timestamped_file import prepare_timestamped
from wukongs.errors import SettingsError

SMALL = NetworkSettings(users=100, duration_ms=3000, friends=20, posts_per_s=60, photos_per_s=60, positions_per_s=20)
STREAM = "http://www.ins.cwi.nl/sib/stream/"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> GeneratedNetwork:
    return generate_network(tmp_path_factory.mktemp("network"), SMALL)


def test_the_same_settings_give_the_same_bytes_and_another_seed_others(
    network: GeneratedNetwork, tmp_path: Path
) -> None:
    again = generate_network(tmp_path / "again", SMALL)
    other = generate_network(tmp_path / "other", NetworkSettings(users=100, duration_ms=3000, friends=20, seed=2))
    for name in STREAM_NAMES:
        assert Path(again.streams[name]).read_bytes() == Path(network.streams[name]).read_bytes()
        assert Path(other.streams[name]).read_bytes() != Path(network.streams[name]).read_bytes()
    assert Path(again.stored).read_bytes() == Path(network.stored).read_bytes()


def test_every_line_is_read_by_our_sources_and_times_are_in_bounds(network: GeneratedNetwork, tmp_path: Path) -> None:
    for name in STREAM_NAMES:
        rows = read_all(*prepare_timestamped(network.streams[name], "suffix", tmp_path))
        assert len(rows.encoded) == network.stream_triples[name] > 0
        assert not rows.malformed
        assert not rows.backwards
        assert 0 < rows.encoded.timestamps.min() <= rows.encoded.timestamps.max() <= 3000
    stored = list(pyoxigraph.parse(Path(network.stored).read_bytes(), format=pyoxigraph.RdfFormat.N_TRIPLES))
    assert len(stored) == network.stored_triples


def test_likes_follow_what_they_like(network: GeneratedNetwork) -> None:
    for items, likes, predicate in (("posts", "post_likes", "Post>"), ("photos", "photo_likes", "Photo>")):
        made = {
            line.split(" ", 1)[0]: time
            for time, line in split_time(Path(network.streams[items]).read_text("utf-8"))
            if line.endswith(f"vocabulary/{predicate} .")
        }
        for time, line in split_time(Path(network.streams[likes]).read_text("utf-8")):
            assert made[line.split(" ")[2]] <= time


@pytest.mark.parametrize("query", ["L1", "L2", "L3", "L4", "L4_distinct_posts", "L5", "L6"])
def test_a_window_of_one_second_has_answers(network: GeneratedNetwork, query: str) -> None:
    text = (PROJECT / "examples" / "lsbench" / f"{query}.rq").read_text("utf-8")
    text = text.replace("u864", f"u{network.busiest_user}").replace("p864", f"p{network.busiest_user}")
    windows = {
        f"{STREAM}{name}": [
            line for time, line in split_time(Path(path).read_text("utf-8")) if query == "L1" or 1000 < time <= 2000
        ]
        for name, path in network.streams.items()
    }
    assert answer(text, windows, Path(network.stored).read_text("utf-8").splitlines()) > 0


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"users = 5.*expected at least 10 users"):
        NetworkSettings(users=5)

"""The generated network: same settings, same bytes; the shape of LSBench; answers to L1 to L6 in one second."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyoxigraph
import pytest

from tests.oracles.window_text import answer, split_time
from tests.unit.adapters.helpers import PROJECT, read_all
from wukongs.adapters.lsbench_generator import STREAM_NAMES, GeneratedNetwork, NetworkSettings, generate_network
from wukongs.adapters.sources.timestamped_file import prepare_timestamped
from wukongs.errors import SettingsError

SMALL = NetworkSettings(users=100, duration_ms=3000, friends=20, posts_per_s=60, photos_per_s=60, positions_per_s=20)
DAY_MS = 86_400_000
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


SAMPLE = NetworkSettings(
    users=1000,
    friends=50,
    duration_ms=27 * DAY_MS,
    posts_per_s=7903 / (27 * 86_400),
    comments_per_s=6701 / (27 * 86_400),
    photos_per_s=32111 / (27 * 86_400),
    positions_per_s=1 / 86_400,
    like_delay_ms=1.0,
)
"""As many users and items as the sample of LSBench's own generator has, but for positions, in as much time."""


def _facts(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield subject, predicate and object of lines with prefixed names or IRIs, each IRI by its last part."""
    for line in lines:
        if not line.startswith("@prefix"):
            subject, predicate, object_ = line.rsplit(" .", 1)[0].split(" ", 2)
            predicate = "type" if predicate in ("a", "rdf:type") else _local(predicate)
            is_iri = predicate == "type" or object_.startswith(("<", "sib"))
            yield _local(subject), predicate, _local(object_) if is_iri else object_


def _local(name: str) -> str:
    return name[max(map(name.rfind, "/#:")) + 1 :].removesuffix(">")


def _kind(name: str) -> str:
    return name.rstrip("0123456789")


class _Shape:
    """What data of the benchmark look like: triples by the kind of their subject and their predicate, and how many
    objects a subject has, or subjects an object."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.counts: Counter[str] = Counter()
        out: dict[str, Counter[str]] = defaultdict(Counter)
        for subject, predicate, object_ in _facts(lines):
            key = f"{_kind(subject)} {predicate}"
            self.counts[key + (f" {object_}" if predicate == "type" else "")] += 1
            out[key][subject] += 1
            out[f"{predicate} of {_kind(object_)}"][object_] += 1
        self.fans = {key: np.array(list(found.values())) for key, found in out.items()}


FAN_OUTS = {
    "u knows": (1000, 0.1),
    "g has_member": (39, 0.35),
    "u interest": (1000, 0.1),
    "po hashtag": (7903, 0.1),
    "like of po": (7903, 0.1),
    "pho usertag": (32111, 0.1),
    "like of pho": (32111, 0.1),
    "pa container_of": (1697, 0.15),
}
"""How many there are, and by how much the mean and the spread of their fan-outs may differ."""


@pytest.mark.slow
def test_it_is_like_the_sample_of_the_benchmarks_own_generator(shared_data: Path, tmp_path: Path) -> None:
    """Numbers, types and fan-outs of the same numbers of users and items, with the same span of event times."""
    made = generate_network(tmp_path, SAMPLE)
    texts = [Path(path).read_text("utf-8").splitlines() for path in (made.stored, *list(made.streams.values())[:4])]
    names = (
        "mr0_sibdataset",
        "rdfPostStream",
        "rdfPostLikeStream",
        "rdfPhotoStream",
        "rdfPhotoLikeStream",
    )
    files = [next((shared_data / "lsbench").glob(f"{name}1000*.nt.gz")) for name in names]
    theirs = [gzip.decompress(file.read_bytes()).decode().split("\n")[:-1] for file in files]
    ours, sample = _Shape(line for one in texts for line in one), _Shape(line for one in theirs for line in one)
    rare = {"u Engaged_with", "u In_relationship_with", "u Married_with"}
    assert set(ours.counts) == set(sample.counts)
    for key, count in sample.counts.items():
        assert ours.counts[key] == pytest.approx(count, rel=0.5 if key in rare else 0.12, abs=12), key
    for key, (count, by) in FAN_OUTS.items():
        found, expected = (
            np.pad(shape.fans[key], (0, max(0, count - len(shape.fans[key])))) for shape in (ours, sample)
        )
        assert found.mean() == pytest.approx(expected.mean(), rel=by), key
        assert found.std() == pytest.approx(expected.std(), rel=2 * by), key

"""DirectLink: a pipeline of an engine's own process gets from it what others get over a socket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipelines import EX, Pipeline
from wukongs import Engine
from wukongs.errors import StreamError
from wukongs.wire.direct_link import DirectLink
from wukongs.wire.link import IngestLink

STREAM = "http://ex/stream"
QUERY = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{STREAM}> [RANGE 200ms STEP 100ms] WHERE {{ ?s <{EX}p> ?o }}"
LINKS: list[Callable[[Engine], DirectLink | IngestLink]] = [Engine.link, lambda engine: IngestLink([engine.listen()])]


def windows(engine: Engine, link: DirectLink | IngestLink) -> list[tuple[int, list[str]]]:
    """Send three stream batches and one piece twice; return the windows with their rows."""
    engine.stream(STREAM, batch_ms=100)
    query = engine.register(QUERY)
    with link:
        pipeline = Pipeline(link, STREAM, "part")
        pipeline.push(("a", 10), ("b", 60))
        pipeline.row = 0
        pipeline.push(("a", 10), ("b", 60))
        pipeline.complete(100)
        pipeline.push(("c", 150))
        pipeline.complete(300)
        pipeline.finish()
    engine.settle(30)
    return [(one.end_ms, sorted(str(row[0]) for row in one)) for one in query.results(timeout_s=0)]


@pytest.mark.parametrize("link_of", LINKS)
def test_pieces_become_windows_and_repeats_are_dropped(link_of: Callable[[Engine], DirectLink | IngestLink]) -> None:
    with Engine() as engine:
        link = link_of(engine)
        a, b, c = (f"{EX}{name}" for name in "abc")
        assert windows(engine, link) == [(100, [a, b]), (200, [a, b, c]), (300, [c])]
        assert engine.stats()["streams"][STREAM]["tuples"] == 3
        assert (link.sent_bytes == 0) == isinstance(link, DirectLink)


def test_what_was_sent_is_safe_when_the_call_returns(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        engine.stream(STREAM, batch_ms=100)
        with engine.link() as link:
            pipeline = Pipeline(link, STREAM, "part")
            pipeline.push(("a", 10), ("b", 60))
            pipeline.complete(100)
    with Engine(tmp_path) as engine, engine.link() as link:
        opened = link.open(STREAM, "part", 2)
        assert (opened.resume_offset, len(engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}"))) == (2, 2)


def test_refusals_have_their_names() -> None:
    with Engine() as engine, engine.link() as link:
        with pytest.raises(StreamError, match="http://ex/unknown"):
            link.open("http://ex/unknown", "part", 1)
        engine.stream(STREAM, batch_ms=100)
        pipeline = Pipeline(link, STREAM, "part", epoch=2)
        with pytest.raises(StreamError, match="newer writer"):
            Pipeline(link, STREAM, "part", epoch=1)
        pipeline.row = 5
        with pytest.raises(StreamError, match="row"):
            pipeline.push(("a", 10))

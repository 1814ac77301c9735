"""Many streams: a step of the injector asks the clock a few times, however many streams there are."""

from __future__ import annotations

import pytest

from wukongs import Engine
from wukongs.live.core import Core, OwnProgress

TUPLE = ("<http://ex/a>", "<http://ex/p>", "<http://ex/b>")


@pytest.mark.parametrize("count", [3, 60])
def test_the_clock_is_asked_once_for_all_streams(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine() as engine:
        streams = [engine.stream(f"http://ex/s{number}", batch_ms=100) for number in range(count)]
        core: Core = engine._core
        with core.lock:  # the injector waits meanwhile
            for stream in streams:
                stream.push([(*TUPLE, 1000)])
            for stream in streams:
                stream.advance(2000)
            asked = []
            monkeypatch.setattr(OwnProgress, "clock_ms", lambda progress, core: asked.append(1) or 2000)
            assert core.next_end({}) == 1000
            assert core.joining_predicates(1000)
            assert len(asked) <= 4
            core.seal(1000, 2000)
            assert len(asked) <= 9
        engine.settle(60)


def test_streams_of_which_nothing_has_come_are_not_looked_at() -> None:
    with Engine() as engine:
        streams = [engine.stream(f"http://ex/s{number}", batch_ms=100) for number in range(20)]
        core: Core = engine._core
        with core.lock:
            assert core.moving == []
            streams[3].push([(*TUPLE, 1000)])
            streams[5].advance(2000)
            assert [state.iri for state in core.moving] == [streams[3].iri, streams[5].iri]
            streams[3].advance(2000)
        engine.settle(60)

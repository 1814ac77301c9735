"""Changes of a query by several threads at once: in whatever order they were made, a replay gives the same windows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, names, register_text
from tests.lives import crash_and_open

ROUNDS, SETTLE_S = 25, 60
TEXTS = [register_text(f"RANGE {width}00ms STEP {step}00ms") for width, step in ((1, 1), (2, 1), (2, 2), (4, 2))]
STORED = "FROM <urn:x-wukongs:default> WHERE"


def change_by_threads(query: Any, stream: wukongs.Stream, texts: list[str]) -> None:
    """Pause, replace and resume a query from two threads, while this one pushes."""
    failed: list[BaseException] = []

    def change(first: int) -> None:
        try:
            for turn in range(ROUNDS):
                query.pause()
                query.replace(texts[(first + turn) % len(texts)])
                query.resume()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=change, args=(first,)) for first in (0, 2)]
    for thread in threads:
        thread.start()
    last = 0
    while any(thread.is_alive() for thread in threads):
        last += 3
        stream.push([at(f"s{one}", one * 100 - 50) for one in range(last - 2, last + 1)])
        stream.advance(last * 100)
    assert not failed


@pytest.mark.parametrize("is_stored", [False, True], ids=["windows alone", "with the stored graph"])
@pytest.mark.parametrize("tries", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_a_replay_repeats_what_threads_have_done(tmp_path: Path, is_stored: bool, tries: int) -> None:
    texts = [text.replace("WHERE", STORED) if is_stored else text for text in TEXTS]
    for number in range(tries):
        folder, copy = tmp_path / f"{number}", tmp_path / f"copy{number}"
        engine = wukongs.Engine(folder)
        stream, query = engine.stream(A, batch_ms=100), engine.register(texts[0])
        change_by_threads(query, stream, texts)
        engine.settle(timeout_s=SETTLE_S)
        with crash_and_open(folder, copy)(engine) as again:
            again.settle(timeout_s=SETTLE_S)
            found = [
                {window.end_ms: names(window) for window in one.results(timeout_s=0)}
                for one in (query, *again.queries())
            ]
        assert found[0] == found[1]
        assert found[0], "some windows were reported"

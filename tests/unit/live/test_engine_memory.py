"""What an engine holds is free as soon as nobody holds the engine."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

import wukongs
from tests.engine_helpers import A


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_graph_of_an_engine_in_memory_waits_for_no_garbage_collection(is_closed: bool) -> None:
    gc.disable()
    try:
        engine = wukongs.Engine()
        engine.update("INSERT DATA { <http://a> <http://p> <http://b> }")
        if is_closed:
            engine.stream(A)
            engine.close()
        graph = weakref.ref(engine._core.arrangement)
        del engine
        deadline_s = time.monotonic() + 60
        while graph() is not None:  # a thread that merges may have it for a moment
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    finally:
        gc.enable()

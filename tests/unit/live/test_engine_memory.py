"""What an engine holds is free as soon as nobody holds the engine."""

from __future__ import annotations

import gc
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
        assert graph() is None
    finally:
        gc.enable()

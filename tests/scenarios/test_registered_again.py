"""A client that crashed registers its query anew at once and gets the windows that wait; clients that live all read."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, windows

TEXT = register_text("RANGE 100ms STEP 100ms")


@pytest.mark.faces("connect", "cluster-1", "cluster-3")
def test_a_client_that_crashed_goes_on_at_once(engine: wukongs.RemoteEngine) -> None:
    """It asks each node in turn, and never leaves: as far as the nodes know it may live."""
    stream = engine.stream(A, batch_ms=100)
    with ExitStack() as stack:

        def client(address: str) -> wukongs.RemoteEngine:
            return stack.enter_context(wukongs.connect(address))

        addresses = engine.listen().split(",")
        first = client(addresses[-1]).register(TEXT)
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(200)
        engine.settle(60)
        reading = first.results(timeout_s=60)
        assert next(reading).end_ms == 100
        expected, count = {100: ["a"], 200: ["b"]}, len(addresses)
        for place, address in enumerate(addresses):
            again = client(address).register(TEXT)
            assert again.readers == place + 2
            assert windows(again) == expected
            end_ms = 300 + 100 * place
            stream.push([at(f"c{place}", end_ms - 50)])
            stream.advance(end_ms)
            engine.settle(60)
            expected = {end_ms: [f"c{place}"]}
        assert windows(again) == expected
        assert [next(reading).end_ms for _ in range(count + 1)] == [200 + 100 * place for place in range(count + 1)]
        assert first.stats()["readers"] == count + 1
        assert first.warnings()[-1].startswith(f"{count + 1} clients have registered this query, and each gets every")
        with pytest.raises(wukongs.StreamError, match="registered already"):
            client(addresses[0]).register(register_text("RANGE 200ms STEP 100ms"))

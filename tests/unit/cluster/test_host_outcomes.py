"""Host: whoever is told that a record is in the log sees it there."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from wukongs.cluster import host as host_module
from wukongs.cluster.host import Applied, Dropped, Host
from wukongs.cluster.node_store import NodeStore
from wukongs.protocol import events as ev
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import DeclareStream
from wukongs.protocol.state import Cluster
from wukongs.settings import Settings
from wukongs.wire.sharding import ShardMap


def test_outcomes_come_after_the_node_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    store = NodeStore(Settings(), 0, ShardMap.even(1))
    store.start()
    host = Host(Cluster(1), Incarnation(0, 0, 1), store, lambda *_: None, pulse_s=0.001)
    seen: list[tuple[int, int]] = []
    dropped: list[bool] = []

    class Watched(Future[Applied]):
        def set_result(self, applied: Applied) -> None:
            seen.append((applied.index, host.node.control.index))
            super().set_result(applied)

        def set_exception(self, exception: BaseException | None) -> None:
            dropped.append("http://ex/s" in host.node.control.keys)
            super().set_exception(exception)

    monkeypatch.setattr(host_module, "Future", Watched)
    host.start()
    try:
        declared = DeclareStream("http://ex/s", (), 100, payload='{"timing": false, "into": null, "batch_ms": 100}')
        applied = host.submit(ev.Submitted(declared), 10)
        with pytest.raises(Dropped):
            host.submit(ev.Submitted(declared), 10)
    finally:
        host.close()
        store.close()
    assert [index for index, _ in seen] == [applied.index]
    assert all(index <= known for index, known in seen)
    assert dropped == [True]

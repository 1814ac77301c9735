"""NodeStore, driven by the protocol: the windows, snapshots and errors that an embedded engine would have."""

from __future__ import annotations

import io

from tests.node_cluster import Cluster
from tests.unit.wukongs.engine_helpers import A, at, register_text, subjects, windows


def test_one_node_fires_as_an_engine_does() -> None:
    with Cluster(1) as cluster:
        stream = cluster.stream(A, batch_ms=100)
        query = cluster.register(register_text("RANGE 200ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 120), at("c", 250), at("d", 420)])
        cluster.settle()
        assert windows(query) == {100: ["a"], 200: ["a", "b"], 300: ["b", "c"], 400: ["c"]}
        assert subjects(cluster) == ["a", "b", "c"]
        cluster.load(io.BytesIO(b"<http://ex/l> <http://ex/p> <http://ex/o> .\n"))
        assert subjects(cluster) == ["a", "b", "c", "l"]

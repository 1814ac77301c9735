"""The faces of an engine: the ways in which a user has one. Each gives the methods of wukongs.Engine.

embedded    wukongs.Engine() in this process
durable     wukongs.Engine(data_dir) in this process
connect     wukongs.connect() to one served engine, over a socket on loopback
cluster-1   wukongs.connect() to a cluster of one node
cluster-3   wukongs.connect() to a node of a cluster of three with two replicas, a different one from test to test
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wukongs
from tests.clusters import cluster
from tests.inside import core_of, ingest_of
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.remote.calls import InCluster
from wukongs.remote.service import Service
from wukongs.settings import Settings
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.ingesting import IngestHandler

FACES = ("embedded", "durable", "connect", "cluster-1", "cluster-3")
CLUSTERS = ("cluster-1", "cluster-3")
PULSE_S = 0.005
"""Nodes agree on their leader in a quarter of the time that they take otherwise."""
SILENCE_S = 60.0
"""No node is lost in these tests, however busy the machine is."""


@dataclass
class Face:
    """One way to have an engine, for one test."""

    name: str
    test: str
    """The test's name: the number of the node that it talks to is drawn from it."""
    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)
    _opened: int = 0

    @property
    def is_cluster(self) -> bool:
        return self.name in CLUSTERS

    def open(self, settings: Settings | None = None) -> Any:
        """Return a new engine, which ends with the test."""
        settings = settings or Settings()
        self._opened += 1
        match self.name:
            case "embedded":
                return self.stack.enter_context(wukongs.Engine(settings=settings))
            case "durable":
                folder = self.folder / f"data{self._opened}"
                return self.stack.enter_context(wukongs.Engine(folder, settings=settings))
            case "connect":
                engine = self.stack.enter_context(wukongs.Engine(settings=settings))
                return self._client(self.stack.enter_context(served(engine, settings, ingest_of(engine))))
            case "cluster-1":
                (node,) = self._nodes(1, 1, settings)
                return self._client(self.stack.enter_context(served_node(node, settings)))
            case _:
                nodes = self._nodes(3, 2, settings)
                addresses = [self.stack.enter_context(served_node(node, settings)) for node in nodes]
                for node in nodes:
                    node.backend.ingest_addresses = tuple(addresses)
                return self._client(addresses[zlib.crc32(self.test.encode()) % 3])

    def reopen(self, engine: wukongs.Engine) -> wukongs.Engine:
        """Close the durable engine that was opened last, and open its folder again with the same hash_bits."""
        assert self.name == "durable", self.name
        settings = Settings(hash_bits=core_of(engine).settings.hash_bits)
        engine.close()
        return self.stack.enter_context(wukongs.Engine(self.folder / f"data{self._opened}", settings=settings))

    def _client(self, address: str) -> wukongs.RemoteEngine:
        return self.stack.enter_context(wukongs.connect(address))

    def _nodes(self, node_count: int, replica_count: int, settings: Settings) -> list[ClusterNode]:
        pulses = round(SILENCE_S / PULSE_S)
        return self.stack.enter_context(
            cluster(node_count, replica_count, settings, silence_pulses_max=pulses, pulse_s=PULSE_S)
        )


@contextmanager
def listening(handlers: Any, ingest: IngestHandler, quick: Any = None) -> Iterator[str]:
    """Give the address on loopback at which clients' packets and pipelines' messages are taken."""
    socket = ClientSocket("tcp://127.0.0.1:0", handlers, ingest, quick=quick)
    try:
        yield socket.address
    finally:
        socket.close()


def served_node(node: ClusterNode, settings: Settings) -> AbstractContextManager[str]:
    """Serve a node of a cluster as `served` does."""
    return served(node.engine, settings, node.intake, node.backend)


@contextmanager
def served(
    engine: wukongs.Engine, settings: Settings, ingest: IngestHandler, node: InCluster | None = None
) -> Iterator[str]:
    """Serve an engine to clients and pipelines; give its address."""
    service = Service(engine, settings, node)
    try:
        with listening(service.handlers, ingest, service.quick) as address:
            yield address
    finally:
        service.close()

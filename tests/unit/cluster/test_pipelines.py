"""Pipelines feed a cluster: each opens partitions of its own, and every node gets its share of every row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from wukongs.cluster import intake
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.engine import Engine
from wukongs.errors import SettingsError, StreamError
from wukongs.live.pieces import Piece
from wukongs.store.encoder import encode_columns
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink
from wukongs.wire.sharding import ShardMap

S = "http://ex/s"
QUERY = f"""REGISTER QUERY q AS SELECT ?a ?b FROM STREAM <{S}> [RANGE 200ms STEP 100ms]
WHERE {{ ?a <http://ex/p> ?b }}"""
STORED = "SELECT ?a ?b WHERE { ?a <http://ex/p> ?b } ORDER BY ?a ?b"
SETTLE_S = 60.0


@contextmanager
def fed_cluster(node_count: int, replica_count: int = 1) -> Iterator[tuple[list[ClusterNode], list[str]]]:
    """Give the nodes of a cluster, and where pipelines find them."""
    with cluster(node_count, replica_count, silence_pulses_max=PATIENT) as nodes, ExitStack() as sockets:
        addresses = []
        for node in nodes:
            socket = ClientSocket("tcp://127.0.0.1:*", {}, node.intake)
            sockets.callback(socket.close)
            addresses.append(socket.address)
        for node in nodes:
            node.backend.ingest_addresses = tuple(addresses)
        yield nodes, addresses


class Writer:
    """A pipeline of one partition, which sends rows and closes stream batches."""

    def __init__(self, link: IngestLink, partition: str, epoch: int = 1, lateness_ms: int | None = None) -> None:
        self.link, self.partition, self.epoch, self.lateness_ms = link, partition, epoch, lateness_ms
        self.opened = link.open(S, partition, epoch)
        self.row = self.opened.resume_offset

    def send(self, batch: int, *rows: tuple[str, str]) -> None:
        """Send rows of a stream batch, one millisecond before it ends."""
        columns = [
            [f"<http://ex/{a}>" for a, _ in rows],
            ["<http://ex/p>"] * len(rows),
            [f"<http://ex/{b}>" for _, b in rows],
        ]
        encoded = encode_columns(*columns, np.full(len(rows), batch * 100 - 1), scope=S.encode())
        end = self.row + len(rows)
        timing = np.zeros(len(rows), np.bool_)
        rows = self.row, end, 0, batch, encoded, timing
        self.link.send(Piece(S, self.partition, self.epoch, *rows, lateness_ms=self.lateness_ms))
        self.row = end

    def close(self, batch: int) -> None:
        self.link.close_batches(S, self.partition, self.epoch, self.row, batch * 100)

    def finish(self) -> None:
        self.link.finish(S, self.partition, self.epoch)


def _rows(batch: int, name: str) -> list[tuple[str, str]]:
    return [(f"{name}{batch}", f"o{number}") for number in range(4)]


def _live(engine: Engine, addresses: list[str]) -> tuple[list[object], list[object]]:
    """Two pipelines, one of which comes late, and a client that pushes; return the windows and what is stored."""
    stream = engine.stream(S, batch_ms=100)
    with IngestLink(addresses) as link:
        first = Writer(link, "first")
        for batch in (1, 2, 3):
            first.send(batch, *_rows(batch, "f"))
            first.close(batch)
        engine.settle(SETTLE_S)
        query = engine.register(QUERY)
        late = Writer(link, "late")
        first.send(4, *_rows(4, "f"))
        first.close(5)
        engine.settle(SETTLE_S)
        assert len(engine.query(STORED)) == 12, "stream batch 4 waits for the late partition"
        late.send(4, *_rows(4, "l"))
        late.send(6, *_rows(6, "l"))
        late.close(6)
        stream.push([("<http://ex/pushed>", "<http://ex/p>", "<http://ex/o>", 599)])
        first.send(6, *_rows(6, "f"))
        for one in (first, late):
            one.close(8)
            one.finish()
    stream.close()
    engine.settle(SETTLE_S)
    got = [(window.end_ms, sorted(tuple(map(str, row)) for row in window)) for window in query.results(timeout_s=0)]
    return got, [tuple(map(str, row)) for row in engine.query(STORED)]


@pytest.mark.parametrize(("node_count", "replica_count"), [(2, 1), (3, 2)])
def test_pipelines_give_a_cluster_what_they_give_an_engine(node_count: int, replica_count: int) -> None:
    with wukongs.Engine() as engine:
        expected = _live(engine, [engine.listen()])
    assert len(expected[0]) > 3
    assert len(expected[1]) == 29
    with fed_cluster(node_count, replica_count) as (nodes, addresses):
        assert nodes[-1].engine.listen() == ",".join(addresses)
        assert _live(nodes[-1].engine, addresses) == expected


def test_what_comes_wrongly_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "DECLARED_S", 0.01)
    with fed_cluster(2) as (nodes, addresses):
        engine = nodes[0].engine
        with (
            IngestLink(addresses) as link,
            pytest.raises(StreamError, match=r"unknown stream http://ex/s: it has"),
        ):
            link.open(S, "p", 1)
        engine.stream(S, batch_ms=100)
        for wrong in (addresses[::-1], addresses[:1], [addresses[0], addresses[0]]):
            with IngestLink(wrong) as link, pytest.raises(SettingsError, match=r"Expected all nodes of one cluster in"):
                link.open(S, "p", 1)
        with IngestLink(addresses) as link:
            writer = Writer(link, "p")
            assert ShardMap.of(writer.opened.place).node_count == 2
            assert writer.opened.closed_ms is None
            writer.close(4)
            engine.settle(SETTLE_S)
            late = Writer(link, "late")
            assert late.opened.closed_ms == 400
            with pytest.raises(StreamError, match=r"rows 0 to 4 are of stream batch 4, which is closed. Send what is"):
                _send_and_flush(late)
            with pytest.raises(StreamError, match=r"partition 'unheard': no writer has opened it here"):
                link.close_batches(S, "unheard", 1, 0, 500)
            for one in (writer, late):
                one.finish()
            nodes[0].host.wait_until(lambda node: node.control.streams[S].last_batch is not None, SETTLE_S, "its end")
            with pytest.raises(StreamError, match=r"is closed: declare a new one|came too late to join"):
                link.open(S, "too late", 1)


def _send_and_flush(writer: Writer) -> None:
    """The refusal comes with the one or with the other."""
    writer.send(4, *_rows(4, "l"))
    writer.link.flush()


def test_what_is_pushed_comes_after_what_pipelines_have_closed() -> None:
    with fed_cluster(2) as (nodes, addresses):
        stream = nodes[0].engine.stream(S, batch_ms=100)
        with IngestLink(addresses) as link:
            Writer(link, "p").close(4)
        nodes[0].engine.settle(SETTLE_S)
        with pytest.raises(StreamError, match=r"timestamp 400 ms .* already stands at 401 ms"):
            stream.push([("<http://ex/a>", "<http://ex/p>", "<http://ex/o>", 400)])

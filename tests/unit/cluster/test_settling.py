"""Settling, in bad moments: it ends when all nodes show what is closed, or by name."""

from __future__ import annotations

import threading

import pytest

from tests.unit.cluster.wires import EX, STREAM, Fault, Wires, encoded, wired
from wukongs.cluster import settling as settling_module
from wukongs.cluster.settling import CLOSED, SETTLE
from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.live.pieces import Finish, Open, Piece, timing_mask
from wukongs.live.stream import Stream
from wukongs.protocol import node as protocol_node
from wukongs.protocol.waiting import wanted
from wukongs.wire.packets import Packet
from wukongs.wire.sharding import split_piece

SHORT_S, LONG_S = 0.05, 60.0
LATE = StreamError("SN 7 cannot be read here")


def pushed(wires: Wires) -> Stream:
    """Push a tuple and wait until all nodes show it: nothing but an answer is missing from then on."""
    stream = wires.nodes[0].engine.stream(STREAM, batch_ms=100)
    stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}o>", 50)])
    stream.advance(1000)
    wires.nodes[0].engine.settle(LONG_S)
    return stream


@pytest.mark.parametrize("kind", [CLOSED, SETTLE])
def test_a_node_that_is_away_is_named_and_one_that_comes_back_is_asked_again(kind: str) -> None:
    with wired(2) as wires:
        stream = pushed(wires)
        engine = wires.nodes[0].engine
        fault = wires.lose(kind, 1)
        with pytest.raises(StreamError, match=r"not settled within timeout_s = 0.05: node 1: the connection was lost"):
            engine.settle(SHORT_S)
        stream.push([(f"<{EX}b>", f"<{EX}p>", f"<{EX}o>", 1050)])
        stream.advance(2000)
        fault.count = 2
        engine.settle(LONG_S)
        assert fault.count == 0
        assert all(len(node.engine.query("SELECT * { ?s ?p ?o }")) == 2 for node in wires.nodes)


def test_without_a_time_it_waits_for_what_is_late_but_not_for_a_node_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does another node wait for longer than this one asks."""
    with wired(2) as wires:
        pushed(wires)
        monkeypatch.setattr(settling_module, "ASK_S", SHORT_S)
        engine = wires.nodes[0].engine
        fault = wires.refuse(SETTLE, 1, LATE, 3)
        wires.kinds()
        engine.settle(None)
        assert fault.count == 0
        asked = [packet.fields["timeout_s"] for _, _, packet in wires.asked if packet.kind == SETTLE]
        assert len(asked) == 8
        assert max(asked) <= SHORT_S
        wires.lose(SETTLE, 1, count=1 << 20)
        monkeypatch.setattr(settling_module, "TELL_S", 0.0)
        with pytest.raises(NodeUnavailable, match="node 1"):
            wires.nodes[0].backend._settling.settle(None)


def test_what_is_late_beyond_its_time_is_named() -> None:
    with wired(2) as wires:
        pushed(wires)
        wires.refuse(SETTLE, 1, LATE)
        with pytest.raises(StreamError, match="SN 7 cannot be read here"):
            wires.nodes[0].backend._settling.settle(SHORT_S)


def test_it_waits_for_the_records_of_what_a_pipeline_has_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline is told that its tuples are safe before the log says that their stream has begun."""
    settles = threading.Event()
    monkeypatch.setattr(protocol_node, "wanted", lambda node: wanted(node) if settles.is_set() else [])
    with wired(2) as wires:
        wires.nodes[0].engine.stream(STREAM, batch_ms=100)
        for node in wires.nodes:
            node.intake.open_partition(Open(STREAM, "p", 1))
        rows = encoded(("a", 50))
        piece = Piece(STREAM, "p", 1, 0, 1, 0, 1, rows, timing_mask(rows, ()))
        for node, share in split_piece(piece, wires.nodes[0].store.shard_map):
            wires.nodes[node].intake.inject(share)
        for node in wires.nodes:
            node.intake.finish_partition(Finish(STREAM, "p", 1))
        wires.before = lambda _, packet: settles.set() if packet.kind == CLOSED else None
        engine = wires.nodes[0].engine
        engine.settle(LONG_S)
        assert all(node.host.node.control.streams[STREAM].last_batch is not None for node in wires.nodes)
        assert len(engine.query("SELECT * { ?s ?p ?o }")) == 1


def test_settling_from_on_result_would_wait_for_itself() -> None:
    query = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{STREAM}> [RANGE 100ms STEP 100ms] WHERE {{ ?s <{EX}p> ?o }}"
    told: list[str] = []
    with wired(1) as wires:
        engine = wires.nodes[0].engine
        stream = engine.stream(STREAM, batch_ms=100)

        def settle(_: object) -> None:
            try:
                engine.settle(SHORT_S)
            except StreamError as error:
                told.append(str(error))

        engine.register(query, settle)
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}o>", 50)])
        stream.advance(100)
        engine.settle(LONG_S)
    assert told == ["settle() called from on_result would wait for itself: call it from another thread"]


def test_what_is_no_question_and_no_answer_is_refused() -> None:
    with wired(1) as wires:
        answer = wires.networks[0].handlers[SETTLE]
        with pytest.raises(DataError, match="settle: expected tick and minor, found"):
            answer(Packet(SETTLE, {"tick": "1", "minor": 0, "timeout_s": 1.0}))
        with pytest.raises(DataError, match="settle: timeout_s = inf: expected a number of seconds"):
            answer(Packet(SETTLE, {"tick": 1, "minor": 0, "timeout_s": float("inf")}))
        wires.faults.append(Fault(CLOSED, 0, Packet(CLOSED, {"vts": {STREAM: "1"}})))
        with pytest.raises(DataError, match="closed: expected the last stream batch of each stream"):
            wires.nodes[0].engine.settle(LONG_S)

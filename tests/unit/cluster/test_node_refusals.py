"""What a NodeStore refuses, by name: pieces, records, waits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.engine_helpers import A, B, at, node, register_text
from tests.unit.cluster.wires import wired
from tests.unit.wire.pieces import make_piece
from wukongs.cluster.times import first_tick_of
from wukongs.errors import DataError, SettingsError, StreamError, WukongsError
from wukongs.live.query_source import QuerySource
from wukongs.protocol import events as ev
from wukongs.protocol.records import Change, DeclareStream, RegisterQuery, Sn
from wukongs.settings import Settings

LINE = b"<http://ex/%s> <http://ex/p> <http://ex/o> .\n"


def payload_of(**fields: object) -> str:
    return json.dumps({**QuerySource("")._asdict(), "from_ms": None, "is_paused": False} | fields)


def test_what_waits_is_bounded() -> None:
    with wired(1, settings=Settings(queued_bytes_max=4100)) as wires:
        engine = wires.nodes[0].engine
        stream, other = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
        other.push([at("x", 10)])
        stream.push([at("a", 50)] * 60)  # of a stream batch that is not complete
        with pytest.raises(StreamError, match="60 more tuples would exceed queued_bytes_max at node 0"):
            stream.push([at("a", 60)] * 60)
        stream.advance(100)  # complete, but held back by the other stream
        with pytest.raises(StreamError, match="60 more tuples would exceed queued_bytes_max at node 0"):
            stream.push([at("a", 160)] * 60)
        other.advance(100)
        engine.settle(30)
        stream.push([at("a", 160)] * 60)
        piece = make_piece([(node("a"), node("p"), node("o"))] * 60, number=2, time=170, first=120)
        with pytest.raises(StreamError, match="would exceed queued_bytes_max = 4100"):
            wires.nodes[0].store.check(replace(piece, stream=A))


def test_pieces_that_lie_are_refused() -> None:
    with wired(1) as wires:
        wires.nodes[0].engine.stream("http://ex/s", batch_ms=1000)
        store = wires.nodes[0].store
        piece = make_piece([(node("a"), node("p"), node("o"))] * 3)
        store.check(piece)
        with pytest.raises(StreamError, match="unknown stream http://ex/t: it has to be declared first"):
            store.check(replace(piece, stream="http://ex/t"))
        with pytest.raises(StreamError, match="do not belong to stream batch 2"):
            store.check(replace(piece, batch_number=2))
        with pytest.raises(StreamError, match="3 tuples with 3 timestamps, 2 timing marks and 3 places"):
            store.check(replace(piece, timing=piece.timing[1:]))
        falling = replace(piece.encoded, timestamps=np.array([900, 800, 900]))
        with pytest.raises(StreamError, match="the timestamp falls from 900 to 800 ms"):
            store.check(replace(piece, encoded=falling))
        early = replace(piece.encoded, timestamps=np.full(3, -1000 << 31))
        with pytest.raises(StreamError, match="stream batch -2147483648 is outside of those that can be named"):
            store.check(replace(piece, encoded=early, batch_number=-1 << 31))
        late = replace(piece.encoded, timestamps=np.full(3, 1000 << 33))
        with pytest.raises(StreamError, match="stream batch 8589934592 is outside of those that can be named"):
            store.check(replace(piece, encoded=late, batch_number=1 << 33))


def test_waiting_for_an_sn_ends_by_name() -> None:
    with wired(1) as wires:
        store, engine = wires.nodes[0].store, wires.nodes[0].engine
        engine.stream(A, batch_ms=100)
        with pytest.raises(StreamError, match=r"cannot be read here within 0.01 s, this node stands at \d+: "):
            store.wait_for(Sn(1 << 41, 0), 0.01)
    with pytest.raises(WukongsError, match="this engine is closed"):
        store.wait_for(Sn(1 << 41, 0), 1.0)


def test_records_that_cannot_be_carried_out_do_nothing() -> None:
    with wired(1) as wires:
        host, store, engine = wires.nodes[0].host, wires.nodes[0].store, wires.nodes[0].engine
        tick, good = first_tick_of(100), '"into": null, "history_ms": 1, "slice_bytes_max": 4096, "index": "all"'
        options = f'{{"timing": [], "batch_ms": 100, {good}}}'
        wrong: list[tuple[Any, type[WukongsError], str]] = [
            (DeclareStream(A, ("",), 100, first_tick=tick, payload="{"), DataError, "expected a payload in JSON"),
            (DeclareStream(A, ("",), 100, first_tick=tick, payload="{}"), DataError, "a payload with timing, batch_ms"),
            (
                DeclareStream(A, ("",), 100, first_tick=tick, payload=options.replace("[]", "[1]")),
                DataError,
                "expected options of a stream",
            ),
            (
                DeclareStream(A, ("",), 100, first_tick=tick, payload=options.replace("100", "0")),
                SettingsError,
                "batch_ms = 0",
            ),
            (DeclareStream(A, ("",), 100, first_tick=tick + 1, payload=options), SettingsError, "do not fit batch_ms"),
            (RegisterQuery("q", (), (0,), "[]"), DataError, "expected a payload with text, base, output"),
            (RegisterQuery("q", (), (0,), payload_of(text=1)), DataError, "as texts"),
            (RegisterQuery("q", (), (0,), payload_of(unread="x")), DataError, "as texts"),
            (RegisterQuery("q", (), (0,), payload_of(from_ms=5.5)), DataError, "from_ms as milliseconds"),
            (
                Change("c", 1, '{"change": 1, "graph": null, "cleared": [], "operations": 1}', None, 0),
                DataError,
                "change, graph and",
            ),
            (
                Change("d", 1, '{"change": "x", "graph": null, "cleared": [1], "operations": 1}', None, 0),
                DataError,
                "change x: expected",
            ),
        ]
        for place, (record, kind, expected) in enumerate(wrong):
            named = {DeclareStream: "stream", RegisterQuery: "query", Change: "client"}[type(record)]
            with pytest.raises(kind, match=expected):
                host.carry_out(ev.Submitted(structs.replace(record, **{named: f"http://ex/{place}"})), 30)
        assert not engine.streams()
        engine.stream(A, batch_ms=100)
        other = RegisterQuery("other", (A,), (0,), payload_of(text=register_text("RANGE 1s STEP 1s")))
        with pytest.raises(DataError, match="query other: its text registers another name"):
            host.carry_out(ev.Submitted(other), 30)
        with pytest.raises(WukongsError, match="is no multiple of its batch_ms = 100"):
            engine.register(register_text("RANGE 150ms STEP 150ms"))
        assert not store.records.streams[A].is_home
        assert not store.injector.queries

"""Nodes and clients that lie: each lie is seen, and refused by name."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import A, at
from tests.unit.remote.served import Wire, connected, served
from wukongs.errors import DataError, NodeUnavailable
from wukongs.remote import columns, kinds
from wukongs.remote.client import RemoteEngine
from wukongs.store.dtypes import Int64Array
from wukongs.wire.packets import Packet

INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }"
LINES = b"".join(b"<http://ex/s%d> <http://ex/p> <http://ex/o%d> .\n" % (n, n % 7) for n in range(2000))


def with_arrays(answer: Packet, **changed: Any) -> Packet:
    arrays = {name: array for name, array in {**answer.arrays, **changed}.items() if array is not None}
    return Packet(answer.kind, answer.fields, arrays)


def lies() -> dict[str, tuple[Callable[[Packet], Packet], str]]:
    def head(**changed: Any) -> Callable[[Packet], Packet]:
        return lambda a: Packet(a.kind, {**a.fields, "head": {**a.fields["head"], **changed}}, a.arrays)

    ids = np.array([4, 8], np.int64)
    return {
        "a column less": (lambda a: with_arrays(a, **{"column 1": None}), "an array 'column 1' of int64, found none"),
        "another type": (lambda a: with_arrays(a, **{"column 1": np.zeros(2, np.int32)}), "of int64, found int32"),
        "a longer column": (lambda a: with_arrays(a, **{"column 0": np.ones(3, np.int64)}), "columns of one length"),
        "an unknown id": (lambda a: with_arrays(a, **{"column 0": ids}), "a text for each id, found none for 4"),
        "a negative id": (lambda a: with_arrays(a, **{"column 0": -2 - ids}), "a text for each id, found none for -6"),
        "a literal of no type": (
            lambda a: with_arrays(a, **{"column 0": np.array([bad_literal()] * 2)}),
            "expected ids of literals",
        ),
        "no texts": (lambda a: with_arrays(a, text=None), "an array 'text' of uint8, found none"),
        "a hole": (lambda a: with_arrays(a, offsets=a.arrays["offsets"][:-1]), "offsets that cut the text"),
        "texts backwards": (lambda a: with_arrays(a, offsets=a.arrays["offsets"][::-1].copy()), "offsets that cut"),
        "texts that overflow": (lambda a: with_arrays(a, offsets=overflowing(a.arrays["offsets"])), "offsets that cut"),
        "no UTF-8": (lambda a: with_arrays(a, text=a.arrays["text"] | 128), "texts in UTF-8"),
        "ids that fall": (lambda a: with_arrays(a, ids=a.arrays["ids"][::-1].copy()), "ids of texts that ascend"),
        "no head": (lambda a: Packet(a.kind, {}, a.arrays), "expected the head of a result"),
        "another form": (head(form="dance"), "the head of a result"),
        "rows that are none": (head(rows=-1), "the head of a result"),
        "a window that is none": (head(window={"end_ms": 5}), "the head of a result"),
        "more rows than come": (head(rows=100), "expected an answer 'rows', found 'lost'|stopped coming"),
        "fewer rows than come": (head(rows=1), "columns of one length, at most 1"),
    }


def overflowing(offsets: Int64Array) -> Int64Array:
    """Offsets whose differences are all positive, since one of them overflows."""
    int64_max = np.iinfo(np.int64).max
    return np.concatenate([[0, int64_max, 10_000 - int64_max], offsets[3:]])


def bad_literal() -> int:
    """An inlined id whose subtype is free."""
    from wukongs.store.payload_kernels import _MASK_62, _MIX_1, _MIX_2, _SHIFT, SUBTYPE_BITS

    x, mask = (3 << 60) | (25 << int(SUBTYPE_BITS)) | 5, int(_MASK_62)
    for factor in (int(_MIX_1), int(_MIX_2)):
        x = ((x ^ (x >> int(_SHIFT))) * factor) & mask
    return ((x ^ (x >> int(_SHIFT))) << 1) | 1


@pytest.mark.parametrize("lie", lies())
def test_a_lie_is_seen(engine: RemoteEngine, wire: Wire, lie: str) -> None:
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b>, 'a long literal that is not inlined' }")
    told, message = lies()[lie]
    wire.on_answer = lambda asked, answer: told(answer) if asked.fields.get("method") == "query" else None
    with pytest.raises((DataError, NodeUnavailable), match=message):
        engine.query("SELECT ?s ?o { ?s ?p ?o }")


def test_an_answer_of_another_kind_is_seen(engine: RemoteEngine, wire: Wire) -> None:
    wire.on_answer = lambda asked, answer: Packet("surprise") if asked.kind == kinds.PART else None
    with pytest.raises(DataError, match="expected to be asked for more, found 'surprise'"):
        engine.load(io.BytesIO(LINES), format="nt")
    wire.on_answer = lambda asked, answer: (
        Packet("malformed", {"first": 0, "lines": [5]}) if asked.kind == kinds.PART else None
    )
    with pytest.raises(DataError, match="expected a malformed line, found 5"):
        engine.load(io.BytesIO(LINES), format="nt")


# --- clients that lie -------------------------------------------------------------------------------------------------


@pytest.fixture
def session(wire: Wire) -> Any:
    return wire.ask(Packet(kinds.CONNECT, {"version": kinds.VERSION, "client": "c"}), 1).fields["session"]


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (kinds.CONNECT, {"version": 99, "client": "c"}, "this node speaks version 1"),
        (kinds.CONNECT, {"version": 1, "client": "c", "speaks": [5, 6]}, "this node speaks versions [4, 4]"),
        (kinds.CONNECT, {"version": 1, "client": 7}, "expected client as a text, found 7"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "__init__"}, "a client has called '__init__'"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "query.__class__"}, "a client has called 'query.__class__'"),
        (kinds.CALL, {"number": -1, "done": 0, "method": "stats"}, "expected number as an integer from 0 on, found -1"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "stats", "args": []}, "expected arguments by name"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "query.why", "args": {"query": 5}}, "named query 5, which"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "stream.advance", "args": {}}, "named stream None, which"),
        (kinds.WINDOW, {"queries": [[1, 0]]}, None),
        (kinds.WINDOW, {"queries": [[1]]}, "expected queries and what was taken of them, found [[1]]"),
        (kinds.ROWS, {"result": 1, "start": 0}, None),
        (kinds.BYTES, {"file": 1, "start": 0}, None),
        (kinds.WAIT, {"number": 5}, None),
        (kinds.PART, {"number": 5}, None),
    ],
)
def test_what_no_client_asks_is_refused(
    wire: Wire, session: str, kind: str, fields: dict[str, Any], message: str | None
) -> None:
    answer = wire.ask(Packet(kind, {**fields, "session": session}), 1)
    if message is None:
        assert answer.kind == kinds.LOST
    else:
        assert answer.kind == kinds.FAILED
        assert answer.fields["error"] == "DataError"
        assert message in answer.fields["message"]


def test_a_part_that_is_left_out_is_refused(wire: Wire, session: str) -> None:
    call = {"session": session, "number": 1, "done": 1}
    args = {"name": "x.nt", "format": "nt"}
    assert wire.ask(Packet(kinds.CALL, {**call, "method": "load", "args": args}), 1).kind == kinds.WORKING
    part = {"bytes": np.frombuffer(LINES, np.uint8)}
    answer = wire.ask(Packet(kinds.PART, {**call, "told": 0, "index": 1, "is_last": True}, part), 1)
    assert answer.fields["message"] == "x.nt: part 1 has come, expected part 0"
    wire.ask(Packet(kinds.CANCEL, call), 1)
    answer = wire.ask(Packet(kinds.WAIT, call), 1)
    assert answer.fields["message"] == "x.nt: the client has cancelled the load"


def test_a_session_is_not_guessed(wire: Wire, session: str) -> None:
    assert wire.ask(Packet(kinds.CALL, {"session": session[:-1] + "?", "number": 1}), 1).kind == kinds.LOST


def test_a_push_of_no_table_is_refused(engine: RemoteEngine, wire: Wire) -> None:
    stream = engine.stream(A)
    wire.on_ask = lambda packet: packet.arrays.clear()  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="a push without a table"):
        stream.push([at("a", 50)])
    wire.on_ask = lambda packet: packet.arrays.update(table=np.ones(9, np.uint8))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="expected an Arrow IPC stream, found: "):
        stream.push([at("a", 50)])


def test_a_node_that_leaves_out_an_option_of_a_stream_is_found_out(engine: RemoteEngine, wire: Wire) -> None:
    """A node of an earlier release takes the options that it knows, and does not say which these are."""

    def without_takes(_: Packet, answer: Packet) -> None:
        if isinstance(answer.fields.get("value"), dict):
            answer.fields["value"].pop("takes", None)

    wire.on_answer = without_takes
    with pytest.raises(wukongs.SettingsError, match="idle_advance = 'wall': the node is of an earlier release"):
        engine.stream(A, idle_timeout_ms=1000, idle_advance="wall")
    engine.drop_stream(A)
    assert engine.stream(A, idle_timeout_ms=1000).iri == A


def test_a_client_that_does_not_know_an_option_declares_without_it(
    engine: RemoteEngine, embedded: wukongs.Engine, wire: Wire
) -> None:
    wire.on_ask = lambda packet: packet.fields.get("args", {}).pop("idle_advance", None) and None
    engine.stream(A, idle_timeout_ms=1000)
    assert "idle_advance" not in embedded.declared(A).options


def test_a_change_of_no_table_is_refused(engine: RemoteEngine, wire: Wire) -> None:
    change = pa.table({name: [A] for name in ("subject", "predicate", "object")})
    wire.on_ask = lambda packet: packet.arrays.update(inserts=np.ones(9, np.uint8))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="inserts without a table: expected an Arrow IPC stream, found: "):
        engine.apply(change)


@pytest.mark.parametrize(
    ("left_out", "error", "said"),
    [("text", TypeError, "text"), ("arguments", DataError, "arguments: expected an Arrow IPC stream in base64")],
)
def test_many_rows_without_a_part_are_refused_by_its_name(
    engine: RemoteEngine, wire: Wire, left_out: str, error: type[Exception], said: str
) -> None:
    wire.on_ask = lambda packet: packet.fields.get("args", {}).pop(left_out, None) and None
    with pytest.raises(error, match=said):
        engine.prepare("SELECT ?o { ?s ?p ?o }").many([{"s": "<http://e/a>"}])


def test_sessions_are_bounded(embedded: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.remote.service.SESSIONS_MAX", 1)
    with served(embedded) as (_, wire):
        with connected(wire), pytest.raises(NodeUnavailable, match="this node serves 1 clients already"):
            connected(wire, silence_s=0.1)
        connected(wire).close()


def test_open_results_are_bounded(engine: RemoteEngine, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.load(io.BytesIO(LINES), format="nt")
    monkeypatch.setattr(columns, "_FIRST_CELLS", 30)
    wire.on_ask = lambda packet: Packet(kinds.ANSWER) if packet.kind == kinds.RELEASE else None
    for _ in range(64):
        engine.query("SELECT * { ?s ?p ?o }")
    with pytest.raises(wukongs.BudgetExceeded, match="this client has 64 results open"):
        engine.query("SELECT * { ?s ?p ?o }")

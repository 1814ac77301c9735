"""Nodes that stop, start anew or lie: every call ends in its answer or in a named error; nothing is done twice."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wukongs
from store.encoded import MalformedLine
from tests.unit.wukongs.engine_helpers import A, at, register_text, subjects, windows
from tests.unit.wukongs.remote.served import Wire, connected, served
from wukongs.errors import DataError, NodeUnavailable, QueryTimeout, SettingsError, StreamError, WukongsError
from wukongs.remote import columns, connection, kinds, service
from wukongs.remote.client import RemoteEngine
from wukongs.wire.packets import Packet

pytestmark = pytest.mark.nojit
INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }"
LINES = b"".join(b"<http://ex/s%d> <http://ex/p> <http://ex/o%d> .\n" % (n, n % 7) for n in range(2000))


def count(engine: Any) -> int:
    return len(list(engine.query("SELECT * { ?s ?p ?o }")))


@contextmanager
def two_nodes() -> Iterator[tuple[wukongs.Engine, wukongs.Engine, Wire, Wire]]:
    with wukongs.Engine() as one, wukongs.Engine() as two, served(one) as (_, first), served(two) as (_, second):
        yield one, two, first, second


class Once:
    """Does something the first time that a packet of a kind, or the call of a method, goes by."""

    def __init__(self, what: str, do: Callable[[], None]) -> None:
        self.what, self.do, self.is_done = what, do, False

    def __call__(self, packet: Packet, answer: Packet | None = None) -> Packet | None:
        if not self.is_done and self.what in (packet.kind, packet.fields.get("method")):
            self.is_done = True
            self.do()
        return None


def silent() -> None:
    raise NodeUnavailable("no answer")


# --- answers that are lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["asked", "answer"])
def test_an_update_whose_answer_is_lost_is_applied_once(engine: RemoteEngine, wire: Wire, lost: str) -> None:
    """The second INSERT would be one more snapshot, and the DELETE would find what it has itself inserted."""
    engine.update(INSERT)
    text = "DELETE { ?s ?p ?o } INSERT { ?o ?p ?s } WHERE { ?s ?p ?o }"
    hook = Once("update", silent)
    if lost == "asked":
        wire.on_ask = hook
    else:
        wire.on_answer = hook  # type: ignore[assignment]
    assert engine.update(text) == 2
    assert hook.is_done
    assert subjects(engine) == ["b"]  # type: ignore[arg-type]


def test_a_push_whose_answer_is_lost_is_taken_once(engine: RemoteEngine, wire: Wire) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", select="(COUNT(*) AS ?n)"))
    wire.on_answer = Once("stream.push", silent)  # type: ignore[assignment]
    assert stream.push([at("a", 50), at("b", 60)]) == 2
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["2"]}
    assert engine.stats()["streams"][A]["tuples"] == 2


def test_a_load_whose_parts_are_lost_is_taken_once(
    engine: RemoteEngine, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.remote.sending.PART_BYTES", 1000)
    turns = iter(range(10**6))
    refused: list[int] = []

    def now_and_then(asked: Packet, answer: Packet) -> Packet | None:
        if asked.kind == kinds.PART and next(turns) % 5 == 3 and len(refused) < 10:
            refused.append(1)
            raise NodeUnavailable("no answer")
        return None

    wire.on_answer = now_and_then
    assert engine.load(io.BytesIO(LINES), format="nt") == 1
    assert len(refused) == 10
    assert count(engine) == 2000
    assert engine.stats()["sn"] == 1


def test_a_window_whose_answer_is_lost_comes_once(engine: RemoteEngine, wire: Wire) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50), at("b", 150)])
    stream.advance(500)
    engine.settle(timeout_s=60)
    turns = iter(range(10**6))

    def every_other(asked: Packet, answer: Packet) -> Packet | None:
        if asked.kind == kinds.WINDOW and answer.kind == kinds.WINDOW and next(turns) % 2 == 0:
            raise NodeUnavailable("no answer")
        return None

    wire.on_answer = every_other
    assert windows(query, 5.0) == {100: ["a"], 200: ["b"], 300: [], 400: [], 500: []}


# --- nodes that stop --------------------------------------------------------------------------------------------------


def calls() -> dict[str, Callable[[RemoteEngine], object]]:
    return {
        "query": lambda engine: engine.query("ASK {}"),
        "explain": lambda engine: engine.explain("ASK {}"),
        "update": lambda engine: engine.update(INSERT),
        "load": lambda engine: engine.load(io.BytesIO(LINES), format="nt"),
        "graph": lambda engine: engine.graph(),
        "graph_names": lambda engine: engine.graph_names(),
        "dump": lambda engine: engine.dump("nowhere.nt"),
        "stream": lambda engine: engine.stream(A + "2"),
        "push": lambda engine: engine.test_stream.push([at("a", 50)]),  # type: ignore[attr-defined]
        "advance": lambda engine: engine.test_stream.advance(100),  # type: ignore[attr-defined]
        "end": lambda engine: engine.test_stream.close(),  # type: ignore[attr-defined]
        "drop_stream": lambda engine: engine.drop_stream(A),
        "register": lambda engine: engine.register(register_text("RANGE 100ms STEP 100ms", name="other")),
        "results": lambda engine: list(engine.test_query.results(timeout_s=30)),  # type: ignore[attr-defined]
        "stats of a query": lambda engine: engine.test_query.stats(),  # type: ignore[attr-defined]
        "close of a query": lambda engine: engine.test_query.close(),  # type: ignore[attr-defined]
        "settle": lambda engine: engine.settle(),
        "queries": lambda engine: engine.queries(),
        "streams": lambda engine: engine.streams(),
        "stats": lambda engine: engine.stats(),
        "checkpoint": lambda engine: engine.checkpoint(),
        "backup": lambda engine: engine.backup("nowhere"),
        "listen": lambda engine: (engine.stats, engine._connection.call("stats", {})),
    }


@pytest.mark.parametrize("call", calls())
@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_node_that_dies_ends_every_call_by_name(
    embedded: wukongs.Engine, call: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(embedded) as (_, wire), connected(wire, silence_s=0.2) as client:
        client.test_stream = client.stream(A)  # type: ignore[attr-defined]
        client.test_query = client.register(register_text("RANGE 100ms STEP 100ms"))  # type: ignore[attr-defined]

        def die(*_: Packet) -> None:
            wire.is_dead = True
            raise NodeUnavailable("the node has died")

        if moment == "before":
            wire.on_ask = die
        else:
            wire.on_answer = die
        started = time.monotonic()
        with pytest.raises(NodeUnavailable, match=r"no node answers|whether it was done"):
            calls()[call](client)
        assert time.monotonic() - started < 10


def test_no_node_at_all(wire: Wire) -> None:
    wire.is_dead = True
    with pytest.raises(NodeUnavailable, match=r"no node answers: the node does not answer\. Check that it runs there"):
        connected(wire, silence_s=0.1)
    with pytest.raises(SettingsError, match="expected the address of a node"):
        connected()


def test_a_client_goes_on_with_the_next_node() -> None:
    with two_nodes() as (_, two, first, second):
        two.update(INSERT)
        with connected(first, second, silence_s=0.5) as client:
            assert count(client) == 0
            first.is_dead = True
            assert count(client) == 1
            client.update("CLEAR ALL")
            assert count(two) == 0


def test_an_update_that_may_have_been_applied_is_not_done_again_elsewhere() -> None:
    with two_nodes() as (one, two, first, second), connected(first, second, silence_s=0.5) as client:

        def die(asked: Packet, answer: Packet) -> Packet | None:
            if asked.fields.get("method") == "update":
                first.is_dead = True
                raise NodeUnavailable("gone")
            return None

        first.on_answer = die
        with pytest.raises(NodeUnavailable, match="stopped answering while it did 'update', and whether it was do"):
            client.update(INSERT)
        assert (count(one), count(two)) == (1, 0)
        client.update(INSERT)
        assert count(two) == 1


def test_streams_and_queries_are_named_to_the_next_node() -> None:
    with two_nodes() as (one, two, first, second), connected(first, second, silence_s=0.5) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(200)
        client.settle(60)
        taken = query.results(timeout_s=5)
        assert [next(taken).end_ms, next(taken).end_ms] == [100, 200]
        first.is_dead = True
        assert client.graph_names() == []
        stream.push([at("b", 50), at("c", 250)])  # another engine, where all of it is new
        stream.advance(300)
        client.settle(60)
        # Those up to 200 ms were taken: the client goes on behind them.
        assert windows(query) == {300: ["c"]}
        assert [one.name for one in two.queries()] == ["q"]


def test_a_node_that_begins_anew_is_told_what_it_needs(tmp_path: Path) -> None:
    handlers: dict[str, Any] = {}
    wire = Wire(handlers)
    with wukongs.Engine(tmp_path / "db") as first, served(first) as (service_, _):
        handlers.update(service_.handlers)
        client = connected(wire)
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 150), at("c", 250)])
        stream.advance(300)
        client.settle(60)
        assert next(query.results(timeout_s=60)).end_ms == 100
    with wukongs.Engine(tmp_path / "db") as again, served(again) as (service_, _), client:
        handlers.update(service_.handlers)
        assert windows(query, 5) == {200: ["b"], 300: ["c"]}
        stream.push([at("d", 350)])
        stream.advance(400)
        client.settle(60)
        assert windows(query) == {400: ["d"]}


def test_a_session_that_was_silent_is_begun_anew(embedded: wukongs.Engine) -> None:
    with served(embedded, silent_s=0.1) as (service_, wire), connected(wire) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(200)
        assert next(query.results(timeout_s=60)).end_ms == 100
        deadline = time.monotonic() + 60
        while service_.session_count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stream.push([at("c", 250)])
        stream.advance(300)
        assert query.why().startswith("q ")
        assert windows(query, 5.0) == {200: ["b"], 300: ["c"]}
        assert len(client.queries()) == len(client.streams()) == 1


def test_a_query_that_was_closed_meanwhile_is_not_registered_again(embedded: wukongs.Engine) -> None:
    with served(embedded, silent_s=0.1) as (service_, wire), connected(wire) as client:
        client.stream(A)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        embedded.queries()[0].close()
        deadline = time.monotonic() + 60
        while service_.session_count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert query.why() == "q is closed"
        assert embedded.queries() == []
        query.close()
        assert list(query.results(timeout_s=5)) == []


# --- nodes that are slow ----------------------------------------------------------------------------------------------


@pytest.fixture
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection, service, kinds):
        monkeypatch.setattr(module, "POLL_S", 0.05)


def test_a_call_may_last_longer_than_a_silence(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = embedded.update

    def slowly(*args: Any, **options: Any) -> int:
        time.sleep(0.5)
        return update(*args, **options)

    monkeypatch.setattr(embedded, "update", slowly)
    with served(embedded) as (_, wire), connected(wire, silence_s=0.2) as client:
        assert client.update(INSERT) == 1
        assert wire.asked.count(kinds.WAIT) > 2
    assert count(embedded) == 1


def test_a_query_without_an_outcome_ends_after_its_time(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.remote.client.MARGIN_S", 0.1)
    go_on = threading.Event()
    query = embedded.query
    monkeypatch.setattr(embedded, "query", lambda *args, **options: (go_on.wait(60), query(*args, **options))[1])
    with served(embedded) as (_, wire), connected(wire) as client:
        with pytest.raises(QueryTimeout, match=r"no outcome of 'query' within 0\.3 s, though the node answers"):
            client.query("ASK {}", timeout_s=0.2)
        assert kinds.CANCEL in wire.asked
        go_on.set()
        assert not client.query("ASK { ?s ?p ?o }")


def test_a_node_with_too_much_to_do_is_waited_for_and_then_given_up(
    embedded: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(embedded) as (_, wire), connected(wire, silence_s=0.3) as client:
        busy = iter([True, True])
        wire.on_ask = lambda packet: Packet(kinds.BUSY) if next(busy, False) else None
        assert client.update(INSERT) == 1
        wire.on_ask = lambda packet: Packet(kinds.BUSY)
        with pytest.raises(NodeUnavailable, match=r"the node has had too much to do for 0\.3 s"):
            client.update(INSERT)


def test_too_many_calls_of_one_client_are_put_off(
    embedded: wukongs.Engine, short_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.remote.sessions.CALLS_MAX", 2)
    with served(embedded) as (_, wire), connected(wire) as client:
        texts = [f"INSERT DATA {{ <s:{n}> <p:p> 1 }}" for n in range(8)]
        threads = [threading.Thread(target=client.update, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert count(client) == 8


def test_ctrl_c_stops_a_call_and_the_next_one_works(engine: RemoteEngine, wire: Wire) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    wire.on_answer = Once("update", interrupt)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        engine.update(INSERT)
    assert count(engine) == 1
    wire.on_ask = Once(kinds.PART, interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.load(io.BytesIO(LINES), format="nt")
    assert wire.asked[-1] == kinds.CANCEL
    assert count(engine) == 1


def test_a_callback_that_fails_stops_the_load(engine: RemoteEngine) -> None:
    def refuse(file: str, line: MalformedLine) -> None:
        raise LookupError(f"{file} {line.line}")

    for content in (b"oops\n" + LINES, LINES + b"oops\n"):
        with pytest.raises(LookupError, match=r"<stream> (1|2001)"):
            engine.load(io.BytesIO(content), format="nt", on_malformed=refuse)
        assert count(engine) == 0
    seen: list[tuple[str, int]] = []
    content = b"oops\n" * 3 + LINES
    engine.load(io.BytesIO(content), format="nt", on_malformed=lambda file, line: seen.append((file, line.line)))
    assert seen == [("<stream>", 1), ("<stream>", 2), ("<stream>", 3)]
    assert count(engine) == 2000


# --- nodes that lie ---------------------------------------------------------------------------------------------------


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
        "no UTF-8": (lambda a: with_arrays(a, text=a.arrays["text"] | 128), "texts in UTF-8"),
        "ids that fall": (lambda a: with_arrays(a, ids=a.arrays["ids"][::-1].copy()), "ids of texts that ascend"),
        "no head": (lambda a: Packet(a.kind, {}, a.arrays), "expected the head of a result"),
        "another form": (head(form="dance"), "the head of a result"),
        "rows that are none": (head(rows=-1), "the head of a result"),
        "a window that is none": (head(window={"end_ms": 5}), "the head of a result"),
        "more rows than come": (head(rows=100), "expected an answer 'rows', found 'lost'|stopped coming"),
        "fewer rows than come": (head(rows=1), "columns of one length, at most 1"),
    }


def bad_literal() -> int:
    """An inlined id whose subtype is free."""
    from store.payload_kernels import _MASK_62, _MIX_1, _MIX_2, _SHIFT, SUBTYPE_BITS

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
        (kinds.CONNECT, {"version": 1, "client": 7}, "expected client as a text, found 7"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "__init__"}, "a client has called '__init__'"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "query.__class__"}, "a client has called 'query.__class__'"),
        (kinds.CALL, {"number": -1, "done": 0, "method": "stats"}, "expected number as an integer from 0 on, found -1"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "stats", "args": []}, "expected arguments by name"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "query.why", "args": {"query": 5}}, "named query 5, which"),
        (kinds.CALL, {"number": 1, "done": 0, "method": "stream.advance", "args": {}}, "named stream None, which"),
        (kinds.WINDOW, {"query": 1, "taken": 0}, None),
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


# --- two clients ------------------------------------------------------------------------------------------------------


def test_two_clients_share_streams_and_queries(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as one, connected(wire) as two:
        stream, same = one.stream(A, batch_ms=100), two.stream(A, batch_ms=100)
        with pytest.raises(StreamError, match="declared already"):
            two.stream(A, batch_ms=100)
        with pytest.raises(StreamError, match="declared already"):
            two.stream(A, batch_ms=200)
        one.register(register_text("RANGE 100ms STEP 100ms"))
        with pytest.raises(StreamError, match="registered already"):
            two.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        same.push([at("b", 150)])
        two.settle(60) if stream.advance(200) is None else None
        (watched,) = two.queries()
        assert windows(watched) == {100: ["a"], 200: ["b"]}


def test_a_query_goes_on_for_who_registers_the_same_text_later(embedded: wukongs.Engine) -> None:
    text = register_text("RANGE 100ms STEP 100ms")
    with served(embedded) as (_, wire):
        with connected(wire) as one:
            stream = one.stream(A, batch_ms=100)
            query = one.register(text)
            stream.push([at("a", 50), at("b", 150)])
            stream.advance(200)
            one.settle(60)
            assert next(query.results(timeout_s=60)).end_ms == 100  # never confirmed
        with connected(wire) as two:
            assert two.streams() == [A]
            with pytest.raises(StreamError, match="registered already"):
                two.register(register_text("RANGE 200ms STEP 100ms"))
            assert windows(two.register(text)) == {100: ["a"], 200: ["b"]}


def test_a_reader_that_leaves_does_not_take_its_window_along(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire), connected(wire) as stays:
        stream = stays.stream(A, batch_ms=100)
        query = stays.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        stream.advance(100)
        stays.settle(60)
        with connected(wire) as leaves:
            assert next(leaves.queries()[0].results(timeout_s=60)).end_ms == 100
            assert windows(query) == {}
        assert windows(query, 5) == {100: ["a"]}


def test_a_closed_connection_refuses_all_work(wire: Wire) -> None:
    client = connected(wire)
    stream = client.stream(A)
    query = client.register(register_text("RANGE 100ms STEP 100ms"))
    client.close()
    client.close()
    stream.close()
    query.close()
    assert list(query.results()) == []
    for work in (lambda: client.query("ASK {}"), lambda: stream.push([at("a", 50)]), client.stats, query.why):
        with pytest.raises(WukongsError, match=r"this connection is closed: make a new one with wukongs\.connect"):
            work()


def test_a_node_that_closes_ends_its_clients(embedded: wukongs.Engine) -> None:
    with served(embedded) as (_, wire):
        client = connected(wire, silence_s=0.2)
        embedded.stream(A)
    with pytest.raises(NodeUnavailable, match="this node stops"):
        client.stats()
    client.close()

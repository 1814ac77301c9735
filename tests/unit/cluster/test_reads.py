"""What nodes ask each other to read: how it is chosen, shown and counted, and what is not believed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.inside import core_of
from tests.shards import Shards
from wukongs.cluster.reads import asking, owner, requests
from wukongs.cluster.reads.distant_terms import DistantReader
from wukongs.cluster.reads.requests import HEAD, SharePlan, StepsRun
from wukongs.errors import BudgetExceeded, CompactedError, DataError, NodeUnavailable, QueryTimeout, WukongsError
from wukongs.query.limits import current, limits_of
from wukongs.query.paths import path_search, paths
from wukongs.query.plans import plan_layout as layout
from wukongs.settings import Settings
from wukongs.store.dtypes import NO_MATCH
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Packet

USERS = 300
FOLLOWS, NAME, TYPE = "<http://e/follows>", "<http://e/name>", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
WALK = f"SELECT * {{ <http://e/u1> {FOLLOWS} ?a . ?a {FOLLOWS} ?b . ?b {NAME} ?n }}"
STAR = f"SELECT * {{ ?x a <http://e/User> ; {NAME} ?n ; {FOLLOWS} <http://e/u7> }}"
PATH = f"SELECT * {{ <http://e/u1> {FOLLOWS}+ ?x }}"


@pytest.fixture(scope="module")
def shards() -> Iterator[Shards]:
    rng = random.Random(1)
    lines = [f"<http://e/u{n}> {FOLLOWS} <http://e/u{rng.randrange(USERS)}> ." for n in range(USERS) for _ in range(3)]
    lines += [f'<http://e/u{n}> {NAME} "name of {n}" .' for n in range(USERS)]
    lines += [f"<http://e/u{n}> {TYPE} <http://e/User> ." for n in range(USERS)]
    with Shards(3) as made:
        made.load("\n".join(lines), "nq")
        yield made


@pytest.fixture
def node(shards: Shards) -> Iterator[wukongs.Engine]:
    """A node; what its peers do is undone afterwards."""
    yield shards.nodes[0]
    shards.peers[0].silent, shards.peers[0].lies = set(), None


def traffic(engine: wukongs.Engine) -> Any:
    reach = engine._core.reach
    assert reach is not None
    return reach.traffic


def moved_by(engine: wukongs.Engine, text: str) -> dict[str, int]:
    before = traffic(engine).stats()
    engine.query(text)
    after = traffic(engine).stats()
    return {name: after[name] - before[name] for name in after}


# --- what moves -------------------------------------------------------------------------------------------------------


def test_each_node_is_asked_once_for_all_keys_of_a_step(node: wukongs.Engine) -> None:
    node.query(WALK)
    found = moved_by(node, WALK)  # constants are known by now
    assert found["requests"] <= 3 * 2, "three steps, two other nodes"
    assert found["rows_received"] > 0
    assert found["bytes_received"] >= 8 * found["rows_received"]


def test_stats_tell_what_was_asked_of_other_nodes(node: wukongs.Engine, shards: Shards) -> None:
    node.query(WALK)
    assert node.stats()["reads_of_other_nodes"] == traffic(node).stats()
    assert node.stats()["reads_of_other_nodes"]["requests"] > 0
    assert "reads_of_other_nodes" not in shards.whole.stats()


def test_a_scan_with_a_limit_does_not_fetch_everything(node: wukongs.Engine) -> None:
    assert moved_by(node, f"SELECT * {{ ?x {FOLLOWS} ?y }} LIMIT 3")["rows_received"] < 100


def test_keys_that_are_here_are_not_asked_for(node: wukongs.Engine, shards: Shards) -> None:
    core = node._core
    own = shards.assignment(0)
    name = next(n for n in range(USERS) if own.of(np.array([core.registry.resolve(f"<http://e/u{n}>")]))[0] == 0)
    assert moved_by(node, f"SELECT * {{ <http://e/u{name}> {FOLLOWS} ?y }}")["requests"] == 0


def test_explain_says_how_a_step_would_reach_other_nodes(node: wukongs.Engine, shards: Shards) -> None:
    assert "fork-join" in node.explain(f"SELECT * {{ ?x {FOLLOWS} ?y }}")
    assert "in place" in node.explain(f"SELECT * {{ <http://e/User> ^{TYPE} ?x }}")
    assert "fork-join" not in shards.whole.explain(f"SELECT * {{ ?x {FOLLOWS} ?y }}")


def test_explain_analyze_counts_what_moved(node: wukongs.Engine) -> None:
    before = traffic(node).stats()
    text = node.explain(WALK, analyze=True)
    after = traffic(node).stats()
    shown = [line.rpartition("  ")[2] for line in text.splitlines() if "requests" in line]
    assert shown, text
    requests_shown = sum(int(part.split(": ")[1].split(" ")[0]) for part in shown)
    sizes = sum(int(part.split(", ")[2].split(" ")[0]) for part in shown)
    assert requests_shown == after["requests"] - before["requests"]
    names = ("bytes_sent", "bytes_received")
    assert sizes == sum(after[name] - before[name] for name in names)


def test_the_way_that_moves_less_is_taken() -> None:
    """Few rows whose keys have long lists are sent to be checked; of many rows with the same few keys, the keys are."""
    hubs = [f"<http://e/h{n}>" for n in range(8)]
    lines = [f"{hub} <http://e/p> <http://e/o{n}> ." for hub in hubs for n in range(200)]
    lines += [f"<http://e/s{n}> <http://e/q> {hubs[n % 8]} ." for n in range(400)]
    pairs = " ".join(f"({hub} <http://e/o{n}>)" for n, hub in enumerate(hubs))
    with Shards(2) as few:
        few.load("\n".join(lines), "nq")
        checked = f"SELECT * {{ VALUES (?h ?o) {{ {pairs} }} ?h <http://e/p> ?o }}"
        spread = "SELECT * { ?s <http://e/q> ?h . ?h <http://e/p> ?o }"
        for text, way, rows_max in ((checked, "fork-join", 20), (spread, "in place", 2000)):
            few.nodes[0].query(text)
            found = moved_by(few.nodes[0], text)
            assert 0 < found["rows_received"] < rows_max, text
            told = few.nodes[0].explain(text, analyze=True)
            assert re.search(rf"{way}: \d+ requests, \d+ rows, \d+ bytes", told), told
            assert len(few.nodes[0].query(text)) == len(few.whole.query(text))


# --- who does not answer, or not what was asked -----------------------------------------------------------------------


@pytest.mark.parametrize("text", [WALK, STAR, PATH, "SELECT * { GRAPH ?g { ?s ?p ?o } }", "SELECT ?g { GRAPH ?g {} }"])
def test_a_silent_node_is_named(node: wukongs.Engine, shards: Shards, text: str) -> None:
    shards.peers[0].silent = {1}
    with pytest.raises(NodeUnavailable, match="node 1"):
        node.query(text)
    shards.peers[0].silent = set()
    assert len(node.query(text)) == len(shards.whole.query(text))


@pytest.fixture
def _without_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No texts come with rows."""
    monkeypatch.setattr(owner, "QUICK_ROWS", 0)


@pytest.mark.usefixtures("_without_texts")
def test_texts_that_are_gone_with_their_node_are_a_named_error(node: wukongs.Engine, shards: Shards) -> None:
    result = node.query(WALK)
    shards.peers[0].silent = {1, 2}
    with pytest.raises(NodeUnavailable, match="node"):
        result.texts()


def with_columns(packet: Packet, change: Callable[[Any, int], Any]) -> Packet:
    """change: (columns behind one another, rows) -> what is answered in their place."""
    return replace(packet, arrays={"columns": change(packet.arrays["columns"].copy(), packet.fields["rows"])})


def changed(columns: Any, first: int, last: int | None, by: int) -> Any:
    columns[first:last] += by
    return columns


def without_columns(packet: Packet) -> Packet:
    return replace(packet, arrays={})


def without_a_column(packet: Packet) -> Packet:
    return with_columns(packet, lambda columns, rows: columns[rows:])


def with_a_short_column(packet: Packet) -> Packet:
    return with_columns(packet, lambda columns, rows: columns[:-1])


def with_unbound_ids(packet: Packet) -> Packet:
    return with_columns(packet, lambda columns, rows: -1 - columns)


def of_another_type(packet: Packet) -> Packet:
    return with_columns(packet, lambda columns, rows: columns.astype(np.int32))


def with_other_keys(packet: Packet) -> Packet:
    return with_columns(packet, lambda columns, rows: changed(columns, 0, rows, 2))


def in_other_graphs(packet: Packet) -> Packet:
    return with_columns(packet, lambda columns, rows: changed(columns, -rows, None, 2))


def with_too_many_rows(packet: Packet) -> Packet:
    return replace(packet, fields={**packet.fields, "rows": 1 << 62})


def with_no_end(packet: Packet) -> Packet:
    arrays = {k: a[:0] for k, a in packet.arrays.items()}
    return replace(packet, fields={**packet.fields, "rows": 0, "more": True}, arrays=arrays)


def without_counts(packet: Packet) -> Packet:
    return replace(packet, fields={**packet.fields, "counts": "many"})


@pytest.mark.parametrize(
    "lie",
    [
        without_columns, without_a_column, with_a_short_column, with_unbound_ids, of_another_type, with_other_keys,
        in_other_graphs, with_too_many_rows, with_no_end, without_counts,
    ],
)  # fmt: skip
def test_a_node_that_lies_about_triples_is_named(
    node: wukongs.Engine, shards: Shards, lie: Callable[[Packet], Packet], monkeypatch: pytest.MonkeyPatch
) -> None:
    from wukongs.cluster.reads.fork_join import ForkJoin

    monkeypatch.setattr(ForkJoin, "is_better", lambda self, wanted: False)
    shards.peers[0].lies = lambda asked, packet: lie(packet) if packet.kind == requests.RUN else packet
    with pytest.raises(NodeUnavailable, match="does not answer what it was asked"):
        node.query(WALK)


def test_rows_that_nobody_sent_are_not_believed(
    node: wukongs.Engine, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wukongs.cluster.reads.fork_join import ForkJoin

    monkeypatch.setattr(ForkJoin, "is_better", lambda self, wanted: self.is_possible)
    shards.peers[0].lies = lambda asked, packet: (
        replace(packet, arrays={"columns": packet.arrays["columns"] + (1 << 40)})
        if packet.kind == requests.RUN
        else packet
    )
    with pytest.raises(NodeUnavailable, match="rows that it was not sent"):
        node.query(WALK)


def test_the_texts_of_a_result_come_with_its_last_rows(
    node: wukongs.Engine, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = shards.peers[0]
    counts = []
    for cells in (owner.QUICK_ROWS, 0):
        monkeypatch.setattr(owner, "QUICK_ROWS", cells)
        peers.asked.clear()
        for number in range(20):
            text = f"SELECT * {{ <http://e/u{number}> {NAME} ?n ; {FOLLOWS} ?x }}"
            assert sorted(node.query(text).texts()) == sorted(shards.whole.query(text).texts())
        counts.append([packet.kind for _, packet in peers.asked].count(requests.TEXTS))
    assert counts[0] == 0 < counts[1]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ids", lambda a: a + 2),
        ("ids", lambda a: -1 - a),
        ("offsets", lambda a: a + 1),
        ("offsets", lambda a: a[:-1]),
        ("text", lambda a: a | 0x80),
    ],
)
def test_lies_about_texts_that_come_with_rows_are_named(
    node: wukongs.Engine, shards: Shards, name: str, change: Callable[[Any], Any]
) -> None:
    shards.peers[0].lies = lambda asked, packet: (
        replace(packet, arrays={**packet.arrays, name: change(packet.arrays[name])})
        if "text" in packet.arrays and len(packet.arrays["ids"])
        else packet
    )
    with pytest.raises(NodeUnavailable, match="does not answer what it was asked"):
        node.query(WALK).texts()


def test_two_texts_of_one_id_are_named(shards: Shards) -> None:
    core, ids = core_of(shards.nodes[0]), np.array([4])
    assert core.reach is not None
    reader = core.reach.reader(core.registry.snapshot_reader())
    assert isinstance(reader, DistantReader)
    for text in (b'"a"', b'"a"', b'"b"'):
        arrays: dict[str, Any] = {"ids": ids, "text": np.frombuffer(text, np.uint8), "offsets": np.array([0, 3])}
        reader.learn(Packet(requests.RUN, {}, arrays), [ids])
    with pytest.raises(NodeUnavailable, match="by two texts"):
        reader.texts(ids)


@pytest.mark.usefixtures("_without_texts")
@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        (requests.TEXTS, {"ids": lambda a: a + 2}, WALK),
        (requests.TEXTS, {"offsets": lambda a: a + 1}, WALK),
        (requests.TEXTS, {"text": lambda a: a | 0x80}, WALK),
        (requests.RESOLVE, {"ids": lambda a: a * 0 - 7}, "SELECT * { <http://e/nobody> ?p ?o }"),
        (requests.RESOLVE, {"lasting": lambda a: a.astype(np.uint8)}, "SELECT * { <http://e/nobody> ?p ?o }"),
        (requests.GRAPHS, {"graphs": lambda a: -1 - a}, "SELECT * { GRAPH ?g {} }"),
        (requests.NODES, {"c0": lambda a: a + 100}, f"SELECT * {{ <http://e/u1> {FOLLOWS}* ?x }}"),
    ],
)
def test_other_lies_are_named_too(
    node: wukongs.Engine, shards: Shards, kind: str, change: dict[str, Callable[[Any], Any]], text: str
) -> None:
    def lie(asked: int, packet: Packet) -> Packet:
        if packet.kind != kind:
            return packet
        arrays: dict[str, Any] = {k: change[k](a) if k in change else a for k, a in packet.arrays.items()}
        return replace(packet, arrays=arrays)

    shards.peers[0].lies = lie
    with pytest.raises(NodeUnavailable, match="does not answer what it was asked"):
        assert node.query(text).texts() is None


# --- limits -----------------------------------------------------------------------------------------------------------


def test_what_comes_from_others_counts_against_the_limits() -> None:
    lines = [f"<http://e/s{n}> <http://e/p> <http://e/o{n % 7}> ." for n in range(3000)]
    with Shards(2, settings=Settings(rows_max=1000)) as few:
        few.load("\n".join(lines), "nq")
        with pytest.raises(BudgetExceeded, match="rows_max = 1000"):
            few.nodes[0].query("SELECT * { ?s <http://e/p> ?o }")
        assert len(few.nodes[0].query("SELECT * { ?s <http://e/p> <http://e/o3> }")) == 429


def test_the_bytes_that_come_from_others_count() -> None:
    lines = [f"<http://e/s{n}> <http://e/p> <http://e/o{n % 7}> ." for n in range(30_000)]
    with Shards(2, settings=Settings(query_bytes_max=1 << 20)) as few:
        few.load("\n".join(lines), "nq")
        with pytest.raises(BudgetExceeded, match="query_bytes_max"):
            few.nodes[0].query("SELECT * { ?s <http://e/p> ?o }")
        assert few.nodes[0].query("SELECT (COUNT(*) AS ?n) { <http://e/s1> <http://e/p> ?o }")


SLOW = NodeUnavailable("node 1 (address): no answer within 0.1 s. Allow more time")
SLOW.is_slow = True


@pytest.mark.parametrize(
    ("told", "expected", "match"),
    [
        (NodeUnavailable("node 1: lost"), NodeUnavailable, "^node 1: lost$"),
        (SLOW, QueryTimeout, r"timeout_s = 60, .*node 1 \(address\): no answer"),
        (QueryTimeout("the query ran longer than timeout_s = 0.11, in a step"), QueryTimeout, r"timeout_s = 60,"),
    ],
)
def test_the_time_of_a_query_is_that_of_its_questions(
    node: wukongs.Engine, shards: Shards, told: WukongsError, expected: type[WukongsError], match: str
) -> None:
    def late(_: int, packet: Packet) -> Packet:
        current().deadline_s = 0.0
        raise told

    node.query(WALK)  # what is compiled or resolved once takes none of its time
    shards.peers[0].lies = late
    shards.peers[0].asked.clear()
    with pytest.raises(expected, match=match):
        node.query(WALK, timeout_s=60)
    assert all(0 < packet.fields.get("timeout_s", 1) <= 60 for _, packet in shards.peers[0].asked)


def test_a_snapshot_that_a_node_has_forgotten_is_a_named_error(shards: Shards) -> None:
    answer = shards.peers[0].handlers[1][requests.GRAPHS]
    with Shards(2) as few:
        few.load("<http://e/a> <http://e/p> <http://e/b> .", "nq")
        few.load("<http://e/c> <http://e/p> <http://e/d> .", "nq")
        for engine in few.nodes:
            with engine._core.lock:
                engine._core.arrangement.trace.merge_all()
        handlers = few.peers[0].handlers[1]
        with pytest.raises(CompactedError, match="stored graph"):
            handlers[requests.GRAPHS](Packet(requests.GRAPHS, {"sn": 1, "timeout_s": 1.0}))
    with pytest.raises(NodeUnavailable, match="SN"):
        answer(Packet(requests.GRAPHS, {"sn": 1 << 40, "timeout_s": 0.01}))


# --- long answers -----------------------------------------------------------------------------------------------------


def test_long_answers_come_in_parts(node: wukongs.Engine, shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (owner, requests):
        monkeypatch.setattr(module, "ROWS_PER_ANSWER", 50)
    monkeypatch.setattr(owner, "TEXT_BYTES_PER_ANSWER", 100)
    monkeypatch.setattr(asking, "KEYS_PER_QUESTION", 40)
    for text in (WALK, STAR, PATH, f"SELECT * {{ ?x {FOLLOWS} ?y . ?y {NAME} ?n }}"):
        assert sorted(node.query(text).texts()) == sorted(shards.whole.query(text).texts())
    assert set(node.graph()) == set(shards.whole.graph())
    for limit in (30, 120, 700):
        limited = node.query(f"SELECT * {{ ?x {FOLLOWS} ?y }} LIMIT {limit}").texts()
        assert len(set(limited)) == len(limited) == limit


# --- what a node refuses ----------------------------------------------------------------------------------------------


AT_ONCE = {"sn": 0, "timeout_s": 1, "rows_max": 9}


def texts(text: bytes, *offsets: int) -> Packet:
    arrays: dict[str, Any] = {"text": np.frombuffer(text, np.uint8), "offsets": np.array(offsets)}
    return Packet(requests.RESOLVE, {"count": len(offsets) - 1}, arrays)


def run_of(**changed: Any) -> StepsRun:
    steps = requests.one_step(0, 8, False, 1)
    no_shards = np.zeros(SHARD_COUNT, np.bool_)
    plan = SharePlan(steps, np.array([[2, 2]]), no_shards, np.array([8, 9]), 1)
    return replace(StepsRun(0, plan, (np.array([4, 6]),), 2, 100, 1.0), **changed)


def with_operand(at: int, value: int) -> Packet:
    run = run_of()
    run.plan.steps[0, at] = value
    return run.packet()


def with_number(at: int, value: int) -> Packet:
    """A run with another number at a place of its array."""
    packet = run_of().packet()
    packet.arrays["run"][at] = value
    return packet


def shortened(count: int) -> Packet:
    packet = run_of().packet()
    return replace(packet, arrays={"run": packet.arrays["run"][:count]})


def test_a_run_crosses_over() -> None:
    sent = run_of(rows_wanted=7, skip=3)
    sent.plan.shards[[0, 5, 1023]] = True
    run = StepsRun.of(sent.packet())
    assert (run.rows_wanted, run.skip, run.plan.width, run.length, run.timeout_s) == (7, 3, 3, 2, 1.0)
    assert (run.sn, run.rows_max, run.plan.bound, run.columns[0].tolist()) == (0, 100, 1, [4, 6])
    for name in ("steps", "stored", "shards", "split"):
        assert (getattr(run.plan, name) == getattr(sent.plan, name)).all()


def test_a_plan_that_came_before_is_checked_and_laid_out_once() -> None:
    first, again = StepsRun.of(run_of().packet()), StepsRun.of(run_of(columns=(np.array([7, 9]),), sn=4).packet())
    assert again.plan is first.plan
    other = run_of()
    other.plan.shards[9] = True
    assert StepsRun.of(other.packet()).plan is not first.plan


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (with_operand(layout.KEY, 1), "operand 1"),
        (with_operand(layout.KEY_KIND, layout.SAME), "operand 1"),
        (with_operand(layout.KEY_KIND, 9), "kind 9"),
        (with_operand(layout.PREDICATE, NO_MATCH), "operand 3"),
        (with_operand(layout.VALUE, 2), "operand 5"),
        (with_operand(layout.VALUE, -1), "operand 5"),
        (with_operand(layout.GRAPH_KIND, layout.CONSTANT), "operand 7"),
        (with_operand(layout.PARTS_TO, 2), "parts 0 to 2 of 1"),
        (with_operand(layout.PARTS_FROM, 2), "parts 2 to 1"),
        (with_operand(layout.DIRECTION, 2), "direction 2"),
        (run_of(columns=(np.array([4]),)).packet(), "numbers for 1 steps and 1 columns of 2"),
        (run_of(columns=(np.array([4, -1]),)).packet(), "-1 is no term id"),
        (run_of(columns=(np.array([4, 5]),) * 2).packet(), "numbers for 1 steps"),
        (run_of(length=1 << 62).packet(), "numbers for 1 steps"),
        (run_of(sn=-1).packet(), "-1 where a count was expected"),
        (run_of(skip=-1, rows_wanted=-1).packet(), "-1 where a count was expected"),
        (run_of(rows_wanted=-9).packet(), "-9 where a count"),
        (run_of(timeout_s=1e12).packet(), "us$"),
        (with_number(HEAD - 4, 9), "numbers for 1 steps"),
        (with_number(HEAD - 4, 1 << 62), "numbers for 1 steps"),
        (with_number(HEAD - 3, 0), "0 steps"),
        (with_number(HEAD - 3, requests.STEPS_MAX + 1), "65 steps"),
        (with_number(HEAD - 2, 3), "numbers for 1 steps"),
        (with_number(HEAD - 2, requests.PARTS_MAX + 1), "65537 graphs"),
        (with_number(HEAD - 1, 0), "2 rows without columns"),
        (with_number(HEAD - 1, requests.COLUMNS_MAX + 1), "1025 columns"),
        (shortened(HEAD - 1), "10 numbers"),
        (shortened(HEAD + 5), "16 numbers"),
        (replace(run_of().packet(), arrays={}), "array run: expected"),
    ],
)
def test_what_no_kernel_could_run_is_refused(shards: Shards, run: Packet, message: str) -> None:
    with pytest.raises(DataError, match=message):
        shards.peers[0].handlers[1][requests.RUN](run)
    with pytest.raises(DataError, match=message):
        shards.peers[0].quickly(1, run)


def test_a_short_answer_comes_at_once_and_is_the_same(node: wukongs.Engine, shards: Shards) -> None:
    peers = shards.peers[0]
    assert sorted(node.query(WALK).texts()) == sorted(shards.whole.query(WALK).texts())
    assert peers.quick_count > 0
    for asked, packet in peers.asked:
        quickly = peers.quickly(asked, packet)
        if quickly is not None:
            answer = peers.handlers[asked][packet.kind](packet)
            assert answer.fields == quickly.fields
            assert {k: a.tolist() for k, a in answer.arrays.items()} == {
                k: a.tolist() for k, a in quickly.arrays.items()
            }


def test_what_would_take_longer_is_left_to_a_worker(
    node: wukongs.Engine, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = shards.peers[0]
    list(node.query(WALK))
    asked, run = next((asked, packet) for asked, packet in peers.asked if packet.kind == requests.RUN)
    quickly, core = partial(peers.quickly, asked), core_of(shards.nodes[asked])
    assert quickly(run) is not None

    with ThreadPoolExecutor(1) as other:
        other.submit(core.lock.acquire).result()
        assert quickly(run) is None
        assert quickly(Packet(requests.TEXTS, {}, {"ids": np.array([4])})) is None
        other.submit(core.lock.release).result()

    many = replace(StepsRun.of(run), columns=(np.full(65, 4),) * StepsRun.of(run).plan.bound, length=65)
    for later in (replace(StepsRun.of(run), sn=core.sn + 1), replace(StepsRun.of(run), skip=1), many):
        assert quickly(later.packet()) is None
    assert quickly(Packet(requests.TEXTS, {}, {"ids": np.full(65, 4)})) is None
    rows = max(peers.handlers[node][packet.kind](packet).fields.get("rows", 0) for node, packet in peers.asked)
    monkeypatch.setattr(owner, "QUICK_ROWS", rows - 1)
    assert any(peers.quickly(*one) is None for one in peers.asked if one[1].kind == requests.RUN)


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (Packet(requests.TEXTS, {}, {}), "array ids: expected"),
        (Packet(requests.TEXTS, {}, {"ids": np.array([-5])}), "-5 is no term id"),
        (Packet(requests.RESOLVE, {"count": -1}, {}), "count = -1"),
        (texts(b"ab", 0, 3), "offsets"),
        (texts(b"ab", 0, 2, 1, 2), "offsets"),
        (texts("\u00e9".encode(), 0, 1, 2), "within a character"),
        (texts(b"\xff", 0, 1), "no UTF-8"),
        (Packet(requests.GRAPHS, {"sn": "now", "timeout_s": 1}, {}), "sn = 'now'"),
        (Packet(requests.NODES, AT_ONCE, {"nodes": np.array([2]), "graphs": np.array([2, 2])}), "array graphs"),
        (Packet(requests.TRIPLES, {**AT_ONCE, "graph": 2, "first": 5000}, {}), "first = 5000"),
    ],
)
def test_what_is_no_question_is_refused(shards: Shards, packet: Packet, message: str) -> None:
    with pytest.raises(DataError, match=message):
        shards.peers[0].handlers[1][packet.kind](packet)


def test_whether_other_nodes_have_a_predicate_takes_a_row_of_each_at_most(shards: Shards, node: wukongs.Engine) -> None:
    core = node._core
    reach = core.reach
    assert reach is not None
    with core.lock:
        graph = reach.graph(core.arrangement.trace.read(core.sn), core.sn)
    assert graph is not None
    before = traffic(node).stats()
    known, other = reach.ids.resolve_all([FOLLOWS, "<http://e/nothing>"]).tolist()
    with limits_of(core.settings, 20.0):
        assert graph.holds_elsewhere(known, core.default_graph)
        assert not graph.holds_elsewhere(other, core.default_graph)
        after = traffic(node).stats()
        assert after["rows_received"] - before["rows_received"] <= 2
        shards.peers[0].silent = {1}
        with pytest.raises(NodeUnavailable):
            graph.holds_elsewhere(known, core.default_graph)


def test_circles_are_found_in_the_whole_graph(node: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search from each node is given up at once: one walk over the triples of all nodes finds the circles."""
    found = []
    pairs = node.query(f"SELECT ?x ?y {{ ?x {FOLLOWS} ?y }}").texts()
    after: dict[Any, set[Any]] = {}
    for x, y in pairs:
        after.setdefault(x, set()).add(y)
    for start in after:
        reached, level = set[Any](), set(after[start])
        while level:
            reached |= level
            level = {y for x in level for y in after.get(x, ())} - reached
        if start in reached:
            found.append(start)
    asked = []
    kept = paths.returning_nodes
    monkeypatch.setattr(paths, "returning_nodes", lambda *given: asked.append(given) or kept(*given))
    monkeypatch.setattr(paths, "EDGES_A_NODE", 0)
    monkeypatch.setattr(path_search, "EDGES_PER_CALL", 10)
    circles = node.query(f"SELECT ?x {{ ?x {FOLLOWS}+ ?x }}").texts()
    assert sorted(x for (x,) in circles) == sorted(found)
    assert 0 < len(found) < len(after)
    assert len(asked) == 1

"""Loads and updates of a cluster, in bad moments: they count on all nodes or on none, and what waits for them goes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.unit.cluster.wires import EX, Fault, Wires, until, wired
from wukongs.cluster import changes as changes_module
from wukongs.cluster.changes import LIFE, NOTHING, STAGE, Changes
from wukongs.cluster.host import Dropped
from wukongs.cluster.members import VIEW, is_silent
from wukongs.cluster.staging import STAGED_AGE_MAX_S, Staging
from wukongs.cluster.times import packed
from wukongs.errors import BudgetExceeded, DataError, NodeUnavailable, OutcomeUnknown, StreamError
from wukongs.outcomes import Asked, asking
from wukongs.protocol.records import Change, Sn
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_ntriples
from wukongs.wire.packets import Packet

LONG_S = 60.0


def chunk(name: str, count: int = 20) -> Encoded:
    lines = "".join(f"<{EX}{name}{row}> <{EX}p> <{EX}o{row % 7}> .\n" for row in range(count)).encode()
    return encode_ntriples(lines, b"")[0]


def changes_of(wires: Wires, node: int = 0) -> Changes:
    return wires.nodes[node].backend._changes


def agreed(wires: Wires, *chunks: Encoded) -> None:
    """Have the terms of chunks agreed on, which may take a while on a busy machine."""
    changes = changes_of(wires)
    changes._claims.settle([changes._store.new_terms(one) for one in chunks], LONG_S)


def staged(wires: Wires) -> list[object]:
    return [node.store.stats()["staged_changes"] for node in wires.nodes]


def stored(wires: Wires) -> list[int]:
    """How many triples all nodes together show, to each of them."""
    return [len(node.engine.query("SELECT * { ?s ?p ?o }")) for node in wires.nodes]


def show(wires: Wires, sn: Sn) -> None:
    for node in wires.nodes:
        node.store.wait_for(sn, LONG_S)


def test_a_load_counts_on_all_nodes_and_leaves_nothing_behind() -> None:
    with wired(2) as wires:
        show(wires, changes_of(wires).add([chunk("a"), chunk("b")], None))
        assert (stored(wires), staged(wires)) == ([40, 40], [0, 0])


def test_a_chunk_that_a_node_refuses_ends_the_load_and_nothing_of_it_is_kept() -> None:
    with wired(2) as wires:
        changes = changes_of(wires)

        def chunks() -> Iterator[Encoded]:
            yield chunk("a")
            assert staged(wires) == [1, 1]
            wires.refuse(STAGE, 1, BudgetExceeded("change: load_bytes_max"), 1)
            yield chunk("b")

        with pytest.raises(BudgetExceeded, match="load_bytes_max"):
            changes.add(chunks(), None)
        assert staged(wires) == [0, 0]

        def broken() -> Iterator[Encoded]:
            yield chunk("c")
            raise DataError("line 7")

        with pytest.raises(DataError, match="line 7"):
            changes.add(broken(), None)
        assert (staged(wires), stored(wires)) == ([0, 0], [0, 0])
        show(wires, changes.add([chunk("d")], None))
        assert stored(wires) == [20, 20]


def test_a_node_that_does_not_answer_ends_the_load_and_the_others_forget_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with wired(2) as wires:
        agreed(wires, chunk("a"))
        monkeypatch.setattr(changes_module, "TIMEOUT_S", 0.05)
        wires.lose(STAGE, 1)
        with pytest.raises(NodeUnavailable, match="node 1"):
            changes_of(wires).add([chunk("a")], None)
        assert staged(wires) == [0, 0]
        told = [packet.fields.get("is_abandoned") for _, node, packet in wires.asked if node == 1]
        assert told.count(True) == 1, "who does not answer forgets it by itself, after a while"


def test_a_node_that_cannot_be_reached_keeps_none_of_the_others_from_forgetting_a_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not know this life yet, say: then nobody who is asked together with it is asked."""
    with wired(3) as wires:
        agreed(wires, chunk("a"))
        monkeypatch.setattr(changes_module, "TIMEOUT_S", 0.05)
        network = wires.networks[0]
        ask, gone = network.ask, set[int]()

        def asks(asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
            if gone & {node for node, _ in asked}:
                raise NodeUnavailable("node 1: cannot be reached")
            return ask(asked, timeout_s)

        monkeypatch.setattr(network, "ask", asks)

        def chunks() -> Iterator[Encoded]:
            yield chunk("a")
            assert staged(wires) == [1, 1, 1]
            gone.add(1)

        with pytest.raises(NodeUnavailable, match="node 1: cannot be reached"):
            changes_of(wires).add(chunks(), None)
        assert staged(wires) == [0, 1, 0]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_chunk_whose_answer_was_lost_counts_once(is_repeated: bool) -> None:
    with wired(2) as wires:
        wires.lose(STAGE, 1, is_done=is_repeated, count=1)
        show(wires, changes_of(wires).add([chunk("a")], None))
        assert (stored(wires), staged(wires)) == ([20, 20], [0, 0])
        late = next(packet for _, node, packet in wires.asked if (packet.kind, node) == (STAGE, 1))
        wires.networks[1].handlers[STAGE](late)
        assert staged(wires) == [0, 0], "it is over"


@pytest.mark.parametrize(("disk", "is_lost"), [(0, True), (1, False)])
def test_a_node_that_has_begun_anew_between_two_chunks_may_have_lost_the_first(disk: int, is_lost: bool) -> None:
    """Only the last chunk is seen to the disk, with what came before it in the same life. With another disk it has what
    others have kept for it."""
    come = list[Packet]()

    def begin_anew(node: int, packet: Packet) -> None:
        if node == 1 and packet.kind == STAGE and not packet.fields.get("is_abandoned"):
            come.append(packet)
            if packet.fields.get("is_last"):
                answer = Packet(STAGE, {VIEW: 0, LIFE: [disk, 2]})
                wires.faults.append(Fault(STAGE, 1, answer, is_done=True, count=1))

    with wired(2) as wires:
        wires.before = begin_anew
        if is_lost:
            with pytest.raises(NodeUnavailable, match="node 1 has begun anew since a part of this change") as caught:
                changes_of(wires).add([chunk("a")], None)
            assert caught.value.outcome == "not applied"
            assert stored(wires) == [0, 0]
            assert staged(wires) == [0, 0]
            wires.before = lambda *_: None
        show(wires, changes_of(wires).add([chunk("a")], None))
        assert stored(wires) == [20, 20]
        assert len(come) == 2


def test_what_may_still_come_into_the_log_stays_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """No majority agrees while the record is handed in; when one does again, it is carried out."""
    with wired(2) as wires:
        show(wires, changes_of(wires).add([chunk("a")], None))
        host = wires.nodes[0].host
        submit = host.submit

        def cut_off(record: Any, _: float) -> Any:
            wires.is_cut = True
            return submit(record, 0.05)

        with monkeypatch.context() as cut:
            cut.setattr(host, "submit", cut_off)
            with pytest.raises(OutcomeUnknown, match=r"did not answer within 0.05 s.*It may still be done"):
                changes_of(wires).add([chunk("b")], None)
        assert staged(wires) == [1, 1]
        wires.is_cut = False
        for node in wires.nodes:
            node.host.wait_until(lambda state: len(state.control.marks) == 2, LONG_S, "the record")
        show(wires, changes_of(wires).add([chunk("c")], None))
        assert (stored(wires), staged(wires)) == ([60, 60], [0, 0])


def test_a_record_that_is_in_the_log_but_not_visible_in_time_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with wired(2) as wires:
        node = wires.nodes[0]
        exposure = node.store.exposure
        with monkeypatch.context() as held:
            held.setattr(exposure, "expose", lambda sn: None)
            wait_for = node.store.wait_for
            held.setattr(node.store, "wait_for", lambda sn, _: wait_for(sn, 0.02))
            assert changes_of(wires).add([chunk("a")], None) == node.host.node.control.last_sn, "it is applied"
            assert staged(wires)[0] == 1
        sn = node.host.node.control.last_sn
        with node.store.core.lock:
            node.store.exposure.expose(sn)
            node.store.injector.wake()
        show(wires, sn)
        assert (stored(wires), staged(wires)) == ([20, 20], [0, 0])


def test_an_update_that_did_not_see_the_last_one_is_let_go_on_all_nodes() -> None:
    with wired(2) as wires:
        first, second = changes_of(wires, 0), changes_of(wires, 1)
        sn = first.change(NOTHING, chunk("a"), [], 0, 0, 1)
        show(wires, sn)
        with pytest.raises(Dropped):
            second.change(NOTHING, chunk("b"), [], 0, 0, 1)
        assert (staged(wires), stored(wires)) == ([0, 0], [20, 20])
        after = wires.nodes[1].host.node.control.last_update()
        show(wires, second.change(chunk("a"), chunk("c", 5), [], after, packed(sn), 1))
        assert stored(wires) == [5, 5]


def test_a_record_that_was_taken_over_lets_its_change_go_under_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others stage and let go meanwhile."""
    with wired(1) as wires:
        store = wires.nodes[0].store
        store.stage("c", 0, NOTHING, is_last=True)
        store.hold_for("c", store.core.sn, [None], LONG_S)
        forget, is_owned = store.staging.forget, []

        def forgets(name: str) -> None:
            is_owned.append(store.core.lock._is_owned())  # type: ignore[attr-defined]
            forget(name)

        monkeypatch.setattr(store.staging, "forget", forgets)
        payload = json.dumps({"change": "c", "graph": None, "cleared": [None], "operations": 1})
        store.pass_over(Change("a client", 1, payload, 0, 0))
        assert (is_owned, staged(wires)) == ([True], [0])


def holders(wires: Wires) -> list[list[str]]:
    """Which changes hold an SN of each node."""
    found = []
    for node in wires.nodes:
        with node.store.core.lock:
            owners = [handle.owner for handle in node.store.core.arrangement.trace.handles()]
            found.append([owner for owner in owners if owner.startswith("change")])
    return found


def test_an_update_that_never_gets_a_record_goes_with_age_though_nothing_else_is_staged() -> None:
    with wired(2) as wires:
        store = wires.nodes[0].store
        now = [0.0]
        store.staging = store.records._staging = Staging(1 << 20, lambda: now[0])
        store.stage("u", 0, NOTHING, is_last=True)
        store.hold_for("u", store.core.sn, [None], LONG_S)
        now[0] = STAGED_AGE_MAX_S - 1
        changes_of(wires).pulse()
        assert holders(wires) == [["change u"], []]
        now[0] += 2
        until(lambda: holders(wires) == [[], []])
        assert staged(wires) == [0, 0]


def test_nothing_goes_with_age_while_a_member_is_silent() -> None:
    """It may have the record, and hand it in when it is back."""
    with wired(2) as wires:
        store, host = wires.nodes[0].store, wires.nodes[0].host
        now = [0.0]
        store.staging = store.records._staging = Staging(1 << 20, lambda: now[0])
        store.stage("u", 0, NOTHING, is_last=True)
        wires.is_cut = True
        until(lambda: is_silent(host.node, 1))
        now[0] = STAGED_AGE_MAX_S + 1
        changes_of(wires).pulse()
        wires.is_cut = False
        until(lambda: not is_silent(host.node, 1))
        changes_of(wires).pulse()
        assert staged(wires) == [1, 0]


def test_an_update_that_another_one_makes_void_is_let_go_though_nobody_waits_for_it() -> None:
    """Its coordinator is gone. A load makes nothing void."""
    with wired(2) as wires:
        changes = changes_of(wires)
        for node in wires.nodes:
            node.store.stage("u", 0, chunk("u"), is_last=True)
            node.store.hold_for("u", node.store.core.sn, [None], LONG_S)
        show(wires, changes.add([chunk("a")], None))
        assert (holders(wires), staged(wires)) == ([["change u"]] * 2, [1, 1])
        show(wires, changes.change(NOTHING, chunk("b"), [], 0, 0, 1))
        assert (holders(wires), staged(wires)) == ([[], []], [0, 0])
        for node in wires.nodes:
            node.store.stage("v", 0, chunk("u"), is_last=True)
            node.store.hold_for("v", node.store.core.sn, [None], LONG_S)
        assert holders(wires) == [["change v"]] * 2, "it has read what the other one did"


def test_a_change_that_a_client_asks_of_several_nodes_counts_once() -> None:
    """Numbers pass each other: a connection has many threads."""
    insert = f"INSERT {{ ?n <{EX}p> <{EX}o> }} WHERE {{ BIND(UUID() AS ?n) }}"
    with wired(2) as wires:
        first, second = (node.engine for node in wires.nodes)
        found = {}
        for number in (5, 3, 9):
            for engine in (first, second, first):
                with asking(Asked("me", number, (3, 5, 9))):
                    found.setdefault(number, set()).add(engine.update(insert))
        assert [len(sns) for sns in found.values()] == [1, 1, 1]
        for engine in (first, second):
            with asking(Asked("me", 11, (11,))):
                changes_of(wires, [first, second].index(engine)).add([chunk("a", 1)], None)
        assert stored(wires) == [4, 4]
        with asking(Asked("me", 9, (9,))), pytest.raises(StreamError, match="given up"):
            second.update(insert)
        with asking(Asked("me", 10, (10,))), pytest.raises(StreamError, match="given up"):
            changes_of(wires, 1).add([chunk("b")], None)
        with asking(Asked("other", 9, (9,))):
            second.update(insert)
        assert stored(wires) == [5, 5]
        assert staged(wires) == [0, 0]


def test_a_change_that_another_node_has_under_way_counts_once() -> None:
    """Both have found that it was not done yet."""
    with wired(2) as wires:
        one, other = changes_of(wires, 0), changes_of(wires, 1)
        by, again = Asked("me", 1, (1,)), iter([True])

        def chunks() -> Iterator[Encoded]:
            if next(again, False):
                with asking(by):
                    found.append(other.add([chunk("a")], None))
            yield chunk("a")

        found: list[Sn] = []
        with asking(by):
            found.append(one.add(chunks(), None))
        assert found[0] == found[1]
        until(lambda: staged(wires) == [0, 0])
        assert len(wires.nodes[0].host.node.control.marks) == 1

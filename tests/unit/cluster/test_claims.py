"""Claims, in bad moments: a term has one meaning in the whole cluster, whoever comes, goes or refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.unit.cluster.wires import EX, Wires, wired
from wukongs.cluster import claims as claims_module
from wukongs.cluster.claims import CLAIM, AgreedTerms, Claims
from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol.node import step
from wukongs.protocol.records import Membership, Role
from wukongs.settings import Settings
from wukongs.store.dtypes import BoolArray
from wukongs.store.encoded import TermTable
from wukongs.store.encoder import encode_texts
from wukongs.store.term_ids import HASH_BITS, hash_id
from wukongs.wire.packets import Packet

SHORT_S, LONG_S = 0.05, 60.0
BITS = 12


def clashing(count: int = 2) -> list[str]:
    """Texts with one hash."""
    found: dict[int, list[str]] = {}
    for number in range(1 << 20):
        text = f"<{EX}{number}>"
        texts = found.setdefault(hash_id(text.encode(), BITS), [])
        texts.append(text)
        if len(texts) == count:
            return texts
    raise AssertionError


@pytest.fixture
def pair() -> Iterator[Wires]:
    with wired(2, 2, Settings(hash_bits=BITS)) as wires:
        yield wires


def claims_of(wires: Wires, node: int) -> Claims:
    return wires.nodes[node].backend._claims


@contextmanager
def time_ends(claims: Claims, when: Callable[[], object]) -> Iterator[None]:
    """Let the time of claims, LONG_S, be over as soon as something holds."""
    after = claims._next

    def next_or_end(errands: Any, deadline: float) -> Any:
        while not when():
            assert time.monotonic() < deadline, "it does not come"
            found = after(errands, time.monotonic() + 0.01)
            if found is not None:
                return found
        return None

    with patch.object(claims, "_next", next_or_end):
        yield


def take_out(wires: Wires, node: int) -> None:
    """Take a node out, and wait until all others know."""
    others = [one for one in wires.nodes if one.me.node != node]
    leader = next(one for one in others if one.host.node.log.leader in (one.me.node, node))
    leader.host.submit(ev.Submitted(Membership(node, 0, Role.OUT)), LONG_S)
    for one in others:
        one.host.wait_until(lambda state: state.control.members[node].role is Role.OUT, LONG_S, "it")


def test_a_text_that_was_refused_is_re_encoded_when_the_call_returns(pair: Wires) -> None:
    first, second = clashing()
    claims_of(pair, 0).settle_texts([first])
    claims_of(pair, 1).settle_texts([second])
    assert dict(pair.nodes[1].host.node.control.exceptions) == {second: 1}
    ids = [int(claims_of(pair, node).keep([text])[0]) for node in (0, 1) for text in (first, second)]
    assert ids[:2] == ids[2:]
    assert ids[0] != ids[1]


def test_of_texts_that_clash_in_one_call_one_keeps_the_hash(pair: Wires) -> None:
    texts = clashing(3)
    claims_of(pair, 0).settle_texts(texts)
    assert len(pair.nodes[0].host.node.control.exceptions) == 2
    assert set(pair.nodes[0].host.node.control.exceptions) < set(texts)
    pair.kinds()
    claims_of(pair, 0).settle_texts(texts)
    asked = [packet for _, _, packet in pair.asked if packet.kind == CLAIM]
    assert {len(packet.arrays["ids"]) for packet in asked} <= {1}, "what was re-encoded is not asked again"


def test_nothing_is_asked_when_nothing_is_new(pair: Wires) -> None:
    claims = claims_of(pair, 0)
    claims.keep([f"<{EX}a>"])
    pair.kinds()
    assert claims.settle([TermTable.empty()]) == pair.nodes[0].host.node.control.view
    claims.settle_texts([f"<{EX}a>"])
    assert pair.kinds() == []


def test_a_replica_that_is_away_is_asked_again_and_named_in_the_end(pair: Wires) -> None:
    fault = pair.lose(CLAIM, 1, count=3)
    claims = claims_of(pair, 0)
    claims.settle_texts([f"<{EX}a>"])
    assert fault.count == 0
    fault = pair.lose(CLAIM, 1, count=3)
    table = encode_texts([f"<{EX}b>"], BITS).terms
    said = r"node 0: 1 new terms could not be agreed on within 60 s: node 1: the connection"
    with time_ends(claims, lambda: not fault.count), pytest.raises(NodeUnavailable, match=said):
        claims.settle([table], LONG_S)


def test_a_log_without_a_majority_ends_by_name(pair: Wires) -> None:
    first, second = clashing()
    claims_of(pair, 0).settle_texts([first])
    pair.is_cut = True
    table = encode_texts([second], BITS).terms
    said = r"could not be agreed on within 60 s: a majority of the nodes has not"
    host = pair.nodes[1].host

    def waits_for_the_log() -> bool:
        """All replicas have answered."""
        return any(not claim.remaining for claim in host.node.claims.values())

    with time_ends(claims_of(pair, 1), waits_for_the_log), pytest.raises(NodeUnavailable, match=said):
        claims_of(pair, 1).settle([table], LONG_S)
    pair.is_cut = False
    claims_of(pair, 1).settle_texts([second])
    assert dict(pair.nodes[1].host.node.control.exceptions) == {second: 1}


def test_an_answer_of_another_kind_is_no_agreement(pair: Wires) -> None:
    view = pair.nodes[0].host.node.control.view
    wrong = [Packet(CLAIM, {"view": view}), Packet(CLAIM, {"view": view}, {"equal": np.ones(7, np.bool_)})]
    table = encode_texts([f"<{EX}a>"], BITS).terms
    claims, answered = claims_of(pair, 0), list[Packet]()
    for answer in wrong:
        answered.clear()

        def answers(asked: Any, _: float, answer: Packet = answer) -> list[Packet]:
            answered.append(answer)
            return [answer for _ in asked]

        pair.nodes[0].network.ask = answers  # type: ignore[method-assign]
        said = "answered a claim of 1 terms with something else"
        with time_ends(claims, lambda: answered), pytest.raises(NodeUnavailable, match=said):
            claims.settle([table], LONG_S)


def test_a_claim_that_is_given_up_is_forgotten(pair: Wires) -> None:
    host = pair.nodes[0].host
    pair.lose(CLAIM, 1)
    with pytest.raises(NodeUnavailable):
        claims_of(pair, 0).settle([encode_texts([f"<{EX}a>"], BITS).terms], SHORT_S)
    pair.faults.clear()
    pair.refuse(CLAIM, 1, DataError("no such thing"))
    with pytest.raises(DataError, match="no such thing"):
        claims_of(pair, 0).settle([encode_texts([f"<{EX}b>"], BITS).terms], LONG_S)
    host.wait_until(lambda node: not node.claims, LONG_S, "the ends of both")
    assert not host._errands


def test_a_claim_ends_with_its_node(pair: Wires) -> None:
    claims = claims_of(pair, 0)
    pair.before = lambda node, _: pair.nodes[0].host.close() if node == 1 else None
    with pytest.raises(NodeUnavailable, match="node 0 is closing"):
        claims.settle([encode_texts([f"<{EX}a>"], BITS).terms], LONG_S)
    table = encode_texts([f"<{EX}a>"], BITS).terms
    arrays = {"ids": table.ids, "offsets": table.offsets, "text": table.text}
    with pytest.raises(NodeUnavailable, match="node 0 is closing"):
        claims.answer(Packet(CLAIM, {"view": 0}, arrays))


def test_many_terms_are_compared_outside_of_the_protocols_thread(pair: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
    node, threads = pair.nodes[1], []
    compare = node.store.compare_terms

    def noted(table: TermTable) -> BoolArray:
        threads.append((len(table), threading.current_thread() is node.host._thread))
        return compare(table)

    monkeypatch.setattr(node.store, "compare_terms", noted)
    monkeypatch.setattr(claims_module, "AT_ONCE_MAX", 3)
    claims_of(pair, 0).settle_texts([f"<{EX}{number}>" for number in range(3)])
    claims_of(pair, 0).settle_texts([f"<{EX}m{number}>" for number in range(4)])
    with claims_of(pair, 1)._lock:
        asking = threading.Thread(target=claims_of(pair, 0).settle_texts, args=([f"<{EX}n>"],))
        asking.start()
        while not node.host._errands or node.host._inbox.qsize():
            threading.Event().wait(0.001)
        node.host.run(lambda: None, LONG_S)  # so the question has had its turn
    asking.join(LONG_S)
    assert threads[:2] == [(3, True), (4, False)]
    assert threads[2:] == [(1, False)], "what waits for many would keep the thread waiting"


def test_what_cannot_be_compared_is_told_to_who_asks_and_the_node_goes_on(
    pair: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comparing raises does not end the protocol's thread."""
    node = pair.nodes[1]
    compare = node.store.compare_terms

    def no_memory(_: TermTable) -> BoolArray:
        raise MemoryError

    monkeypatch.setattr(node.store, "compare_terms", no_memory)
    with pytest.raises((MemoryError, WukongsError)):
        claims_of(pair, 0).settle_texts([f"<{EX}{number}>" for number in range(40)], SHORT_S)
    assert node.host.failure is None
    monkeypatch.setattr(node.store, "compare_terms", compare)
    claims_of(pair, 0).settle_texts([f"<{EX}{number}>" for number in range(40)])


def test_a_node_that_is_alone_agrees_with_itself_and_asks_nobody() -> None:
    first, second = clashing()
    with wired(1, 1, Settings(hash_bits=BITS)) as wires:
        claims_of(wires, 0).settle_texts([first, second])
        assert len(wires.nodes[0].host.node.control.exceptions) == 1
        assert wires.kinds() == []


def test_a_claim_that_is_none_is_refused(pair: Wires) -> None:
    answer, view = pair.networks[0].handlers[CLAIM], pair.nodes[0].host.node.control.view
    with pytest.raises(DataError, match="claim: view = None: expected an integer"):
        answer(Packet(CLAIM))
    table = encode_texts([f"<{EX}a>", f"<{EX}b>"], BITS).terms
    arrays = {"ids": table.ids, "offsets": table.offsets, "text": table.text}
    assert answer(Packet(CLAIM, {"view": view + 1}, arrays)).fields == {"view": None}
    for wrong, expected in (
        ({"ids": -table.ids}, "expected hashes of terms, found -"),
        ({"offsets": table.offsets[::-1].copy()}, "offsets do not divide"),
        ({"offsets": table.offsets[1:]}, "array offsets: expected int64.3., found int64.2."),
        ({"text": table.text[1:]}, "offsets do not divide"),
        ({"ids": table.ids.astype(np.int32)}, "array ids: expected int64.n., found int32.2."),
    ):
        with pytest.raises(DataError, match=f"claim: {expected}"):
            answer(Packet(CLAIM, {"view": view}, {**arrays, **wrong}))
    with pytest.raises(DataError, match=r"claim: array ids: expected int64\[n\], found none"):
        answer(Packet(CLAIM, {"view": view}))


def test_who_is_asked_is_of_the_view_under_which_they_are_asked() -> None:
    """Members change between the two: the answers are of the old ones then, and void."""
    with wired(3, 2) as wires:
        host, claims = wires.nodes[0].host, claims_of(wires, 0)
        before = host.node.control
        asked: list[tuple[int, list[int]]] = []
        ask = claims._peers.ask

        def note(packets: list[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
            asked.append((packets[0][1].fields["view"], [node for node, _ in packets]))
            if len(asked) == 1:
                take_out(wires, 2)
            return ask(packets, timeout_s)

        claims._peers.ask = note  # type: ignore[method-assign]
        table = encode_texts([f"<{EX}{row}>" for row in range(40)], HASH_BITS).terms
        assert claims.settle([table], LONG_S) == host.node.control.view > before.view
        assert asked[0] == (before.view, [1, 2]), "it has agreed itself"
        assert asked[-1] == (host.node.control.view, [1])


def test_who_comes_while_terms_are_compared_is_asked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has perhaps taken over what this node had agreed to, before these terms were among it."""
    with wired(3, 2) as wires:
        node = wires.nodes[0]
        compare = node.store.compare_terms

        def compare_late(table: TermTable) -> BoolArray:
            equal = compare(table)
            take_out(wires, 2)
            return equal

        monkeypatch.setattr(node.store, "compare_terms", compare_late)
        monkeypatch.setattr(claims_module, "AT_ONCE_MAX", 0)
        table = encode_texts([f"<{EX}a>"], HASH_BITS).terms
        arrays = {"ids": table.ids, "offsets": table.offsets, "text": table.text}
        view = node.host.node.control.view
        answer = wires.networks[0].handlers[CLAIM](Packet(CLAIM, {"view": view}, arrays))
        assert (answer.fields, dict(answer.arrays)) == ({"view": None}, {})


def test_a_text_that_was_re_encoded_is_asked_again_when_members_have_changed_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They change while the refusal is on its way: the record that it calls for would be void."""
    first, second = clashing()
    with wired(3, 2, Settings(hash_bits=BITS)) as wires:
        claims, host = claims_of(wires, 0), wires.nodes[0].host
        claims.settle_texts([first])
        before, ask = host.node.control.view, claims._ask
        asked: list[int] = []

        post = host.post

        def post_late(event: ev.Event) -> None:
            if isinstance(event, ev.ClaimAnswered) and len(asked) == 1:
                take_out(wires, 2)
            post(event)

        def noted(errand: Any, *arguments: Any) -> None:
            asked.append(errand.view)
            ask(errand, *arguments)

        monkeypatch.setattr(host, "post", post_late)
        monkeypatch.setattr(claims, "_ask", noted)
        assert claims.settle([encode_texts([second], BITS).terms], LONG_S) == host.node.control.view > before
        assert [asked[0], asked[-1]] == [before, host.node.control.view]
        assert second in host.node.control.exceptions


def test_a_node_that_may_not_agree_says_nothing(pair: Wires) -> None:
    node = pair.nodes[0].host.node
    members = {**node.control.members, 0: replace(node.control.members[0], role=Role.JOINING)}
    joining = replace(node, control=replace(node.control, members=members))
    asked = ev.ClaimReceived(7, node.control.view)
    assert step(joining, asked)[1] == [act.AnswerClaim(7, None)]
    assert step(node, asked)[1] == [act.CompareTerms(7, node.control.view)]
    table = encode_texts([f"<{EX}a>"], BITS).terms
    columns = {"ids": table.ids, "offsets": table.offsets, "text": table.text}
    claims = claims_of(pair, 0)
    assert claims.answer(Packet(CLAIM, {"view": node.control.view + 1}, columns)).fields == {"view": None}
    assert len(pair.nodes[0].store.claims) == 1, "it has kept nothing"
    assert claims.answer(Packet(CLAIM, {"view": node.control.view}, columns)).arrays["equal"].all()


# --- terms that were agreed on lately ---------------------------------------------------------------------------------


def table(*names: str) -> TermTable:
    return encode_texts([f"<urn:{name}>" for name in names], HASH_BITS).terms


def names(found: TermTable) -> list[str]:
    return sorted(text[5:-1] for text in found.texts())


def test_what_was_agreed_on_is_known_under_this_view_only() -> None:
    agreed = AgreedTerms()
    assert names(agreed.unknown(table("a", "b"), 3)) == ["a", "b"]
    agreed.add(table("a", "b"), 3)
    assert names(agreed.unknown(table("a", "b", "c"), 3)) == ["c"]
    assert names(agreed.unknown(table("a", "c"), 4)) == ["a", "c"]
    agreed.add(table("c"), 4)
    assert names(agreed.unknown(table("a", "c"), 4)) == ["a"]
    assert names(agreed.unknown(table("a"), 3)) == ["a"]


def test_another_text_under_the_same_hash_is_not_known() -> None:
    agreed, one, other = AgreedTerms(), table("a"), table("b")
    agreed.add(one, 1)
    clashing = TermTable(one.ids, other.offsets, other.text)
    assert names(agreed.unknown(clashing, 1)) == ["b"]
    agreed.add(clashing, 1)
    assert names(agreed.unknown(one, 1)) == []


def test_large_tables_are_not_remembered() -> None:
    agreed = AgreedTerms()
    with patch.object(claims_module, "TABLE_MAX", 2):
        agreed.add(table("a", "b", "c"), 1)
        agreed.add(table("d"), 1)
        assert names(agreed.unknown(table("a", "d"), 1)) == ["a"]
        assert names(agreed.unknown(table("a", "b", "d"), 1)) == ["a", "b", "d"]


def test_it_is_bounded() -> None:
    agreed = AgreedTerms()
    with patch.object(claims_module, "TERMS_MAX", 2):
        agreed.add(table("a", "b", "c"), 1)
        agreed.add(table("d"), 1)
        assert names(agreed.unknown(table("a", "b", "c", "d"), 1)) == ["a", "b", "c"]

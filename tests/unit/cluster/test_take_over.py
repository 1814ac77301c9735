"""Taking over what other nodes hold: what is asked in the wrong order, what is malformed, and who is asked besides."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.clusters import PATIENT, cluster
from tests.unit.cluster.wires import wired
from wukongs.cluster import collecting, donating, joining, members
from wukongs.cluster.changes import NOTHING
from wukongs.cluster.cluster_node import ClusterNode, ClusterShape
from wukongs.cluster.collecting import Wanted, collect
from wukongs.cluster.installing import StreamTaken, Taken, entries_of, install, prepare
from wukongs.cluster.members import ask_members
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.node_terms import NodeRegistry
from wukongs.cluster.slice_shares import NEVER, ShareRows, SliceShares
from wukongs.cluster.staging import Staging
from wukongs.errors import DataError, NodeUnavailable
from wukongs.live.stream_state import StreamState
from wukongs.protocol import events as ev
from wukongs.protocol.control import DeclaredStream, apply, genesis
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import Change, Entry, Membership, Role
from wukongs.protocol.state import Kept, boot
from wukongs.settings import Settings
from wukongs.store.encoded import Encoded, TermTable
from wukongs.store.encoder import encode_ntriples
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Packet

EX = "http://ex/"
SHARDS = np.ones(SHARD_COUNT, np.bool_)
HEAD: dict[str, Any] = {
    "part": "head",
    "sn": 5,
    "index": 1,
    "streams": [],
    "keys": {},
    "homes": {},
    "exceptions": [],
    "intakes": {},
    "epochs": [],
}


def ask(nodes: Sequence[ClusterNode], kind: str, **fields: Any) -> Packet:
    """Ask node 0 as node 1 would."""
    arrays = {"shards": SHARDS} if kind in ("collect", "lend") else {}
    (answer,) = nodes[1].network.ask([(0, Packet(kind, fields, arrays))], 20)
    return answer


def halt(nodes: Sequence[ClusterNode], owner: str, base: str | None = None) -> dict[str, Any]:
    """Halt node 0; return what to ask it for next."""
    answer = ask(nodes, "halt", owner=owner, index=0, sn=0, base=base)
    return {"owner": owner, "node": 1, "sn": answer.fields["sn"], "has_base": answer.fields["has_base"]}


def test_a_donor_refuses_what_it_cannot_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(donating, "HALT_S", 60.0)
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        engine = nodes[1].engine
        stream = engine.stream(EX + "s", batch_ms=100)
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 1050)])
        stream.advance(2000)
        engine.settle(60)
        with pytest.raises(DataError, match="halt: expected owner, index and sn, found"):
            ask(nodes, "halt", owner=1)
        with pytest.raises(DataError, match="collect: expected owner, sn, node and shards, found"):
            ask(nodes, "collect", owner="a")
        with pytest.raises(DataError, match="lend: expected node and shards, found"):
            ask(nodes, "lend", node="1", index=0)
        for kind, fields in (("state", {"lease": "x", "number": 1}), ("lend", {"node": 1, "base": "x", "index": 0})):
            with pytest.raises(
                NodeUnavailable, match="node 0 keeps nothing under 'x': what a joining node does not ask for"
            ):
                ask(nodes, kind, **fields)
        with pytest.raises(NodeUnavailable, match="node 0 has gone on meanwhile: ask it to halt again"):
            ask(nodes, "collect", owner="a", sn=0, node=1)
        asked = halt(nodes, "a", base="x")
        assert asked["has_base"] is False
        with pytest.raises(NodeUnavailable, match="node 0 cannot give what it holds now: ask again"):
            halt(nodes, "b")
        with pytest.raises(NodeUnavailable, match=rf"node 0 stands at SN {asked['sn']}, not at 0"):
            ask(nodes, "collect", **{**asked, "sn": 0})
        lease = ask(nodes, "collect", **halt(nodes, "b")).fields["lease"]
        assert ask(nodes, "state", lease=lease, number=1).fields["part"] == "head"
        assert ask(nodes, "state", lease=lease, number=1).fields["part"] == "head", "an answer may be lost"
        with pytest.raises(DataError, match="state: expected to be asked for packet 1 or the next, found 3"):
            ask(nodes, "state", lease=lease, number=3)
        monkeypatch.setattr(donating, "LEASES_MAX", 0)
        with pytest.raises(NodeUnavailable, match="node 0 gives to 0 other nodes: ask again later"):
            ask(nodes, "collect", **halt(nodes, "b"))
        engine.load(io.BytesIO(f"<{EX}a> <{EX}p> <{EX}c> .\n".encode()), format="nt")
        assert len(nodes[0].engine.query("SELECT * { ?s ?p ?o }")) == 2, "it has gone on"


def test_a_donor_goes_on_when_nobody_asks_it_to_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(donating, "HALT_S", 60.0)
    monkeypatch.setattr(donating, "LEASE_S", 0.0)
    with cluster(2, 2, silence_pulses_max=PATIENT) as nodes:
        stream = nodes[1].engine.stream(EX + "s", batch_ms=100)
        lease = ask(nodes, "collect", **halt(nodes, "a")).fields["lease"]
        monkeypatch.setattr(donating, "HALT_S", 0.3)
        halt(nodes, "b")
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 1050)])
        stream.advance(2000)
        nodes[0].engine.settle(60)
        assert len(nodes[0].engine.query("SELECT * { ?s ?p ?o }")) == 1
        with pytest.raises(NodeUnavailable, match="is kept for 0 s"):
            ask(nodes, "state", lease=lease, number=1)


def test_a_node_takes_over_once_and_ends_when_another_life_of_it_begins() -> None:
    with cluster(3, 2) as nodes:
        with pytest.raises(
            NodeUnavailable, match="node 1 has to take over anew what the others hold, since a stream was"
        ):
            nodes[1]._joiner.begin(None)  # type: ignore[arg-type]
        nodes[0].engine.load(io.BytesIO(f"<{EX}a> <{EX}p> <{EX}c> .\n".encode()), format="nt")
        taken = Taken()
        taken.add(Packet("state", HEAD))
        store = next(node.store for node in nodes if len(node.store.core.arrangement))
        with pytest.raises(
            NodeUnavailable, match=f"node {store.me} was told anew to take over what others have: start"
        ):
            install(store, taken, entries_of([prepare(store, taken)], 5))
        nodes[0].host.submit(ev.Submitted(Membership(2, 5, Role.JOINING)), 20)
        with pytest.raises(NodeUnavailable, match="node 2 was started anew elsewhere: this one ends"):
            nodes[2].host.wait_until(lambda node: False, 20, "its end")


def test_a_shard_is_lost_once_its_node_has_joined_without_another_one_that_holds_it() -> None:
    """Before that, the log that is known here may lack the record by which another node is in sync."""
    shape, me = ClusterShape(3, 2), Incarnation(2, 5, 5)
    node = boot(shape.cluster, me, Kept())

    def become(number: int, disk: int, role: Role, since: int = 0) -> str:
        nonlocal node
        node = replace(node, control=apply(node.control, Entry(1, Membership(number, disk, role, since))))
        assert node.control.member(number).role is role
        try:
            joining.donors_of(node)
        except NodeUnavailable as error:
            return f"{type(error).__name__}: {error}"
        return "all are in sync"

    one_is_out = become(1, 0, Role.OUT)
    assert one_is_out == (
        "NodeUnavailable: shard 1 (of nodes 1, 2) has no in-sync node beside node 2 by the records of the log that are "
        "known here so far"
    )
    assert become(1, 4, Role.JOINING) == one_is_out
    assert become(2, 5, Role.JOINING).startswith(
        "Lost: shard 1 (of nodes 1, 2) has no in-sync node beside node 2 since that has joined, by record 3 of the "
        "log: what they held is lost. To be sure, look into `wukongs stats` of each node"
    )
    assert become(1, 4, Role.HOLDING, since=2) == one_is_out
    assert become(1, 4, Role.IN, since=2) == "all are in sync"


ROWS = np.array([1, 2], np.int64)
TEXTS = {"term_ids": ROWS, "term_offsets": np.array([0, 1, 2]), "term_text": np.frombuffer(b"ab", np.uint8)}
QUADS = dict.fromkeys(("graphs", "subjects", "predicates", "objects"), ROWS)
SHARE = dict.fromkeys(("subjects", "predicates", "objects", "timestamps", "places"), ROWS)
PARTS = {"numbers": [1], "partitions": [""], "first_offsets": [0], "sizes": [2]}
MALFORMED: list[tuple[Mapping[str, Any], Mapping[str, Any], str]] = [
    ({"part": "nothing"}, {}, "expected a part of a node's state, found 'state', 'nothing'"),
    ({"part": "head", "sn": 1}, {}, "head: expected sn, index, streams"),
    ({**HEAD, "streams": [{"name": 1}]}, {}, "a stream: expected name, iri, lsn"),
    ({"part": "triples"}, {"graphs": ROWS}, "triples: expected graphs, subjects, predicates, objects of one length"),
    ({"part": "triples"}, {**QUADS, "graphs": ROWS[:1]}, "triples: expected graphs, subjects, predicates, objects of"),
    ({"part": "triples"}, QUADS, "array term_ids: expected int64.n., found none"),
    (
        {"part": "agreed"},
        {**TEXTS, "term_offsets": np.array([0, 1])},
        "term_offsets: expected int64.3., found",
    ),
    ({"part": "counts", "stream": "y"}, {}, "counts: KeyError: 'y'"),
    ({"part": "counts"}, {"counts": ROWS, "dropped": ROWS}, "counts: expected counts, dropped of one length"),
    (
        {"part": "shares", **PARTS, "numbers": 7},
        {**SHARE, **TEXTS},
        "shares: expected numbers for each part of the rows",
    ),
    ({"part": "shares", **PARTS, "sizes": [3]}, {**SHARE, **TEXTS}, "shares: expected sizes of 2 rows together"),
    ({"part": "shares", **PARTS}, {**SHARE, **TEXTS, "subjects": ROWS + 5}, "shares: expected the texts of all terms"),
    (
        {"part": "waiting", "sizes": [2], "partitions": [], "numbers": [1]},
        {**QUADS, "timestamps": ROWS, "goes": ROWS, **TEXTS},
        "waiting: expected partitions for each",
    ),
]


@pytest.mark.parametrize(("fields", "arrays", "said"), MALFORMED)
def test_what_a_donor_says_is_checked(fields: Mapping[str, Any], arrays: Mapping[str, Any], said: str) -> None:
    taken = Taken()
    taken.streams["x"] = StreamTaken(None)
    with pytest.raises(DataError, match=f"state.*{said}"):
        taken.add(Packet("state", {"stream": "x", **fields}, arrays))


def test_donors_that_do_not_agree_are_refused() -> None:
    store = SimpleNamespace(terms=NodeRegistry(62), claims=None)
    for heads, said in (
        ([HEAD, {**HEAD, "sn": 6}], r"state: expected one SN of all donors, found \[5, 6\]"),
        (
            [{**HEAD, "exceptions": [[7, "<a>"], [7, "<b>"]]}],
            "state: exception 7 of '<b>': another one is known already",
        ),
    ):
        taken = Taken()
        for head in heads:
            taken.add(Packet("state", head))
        with pytest.raises(DataError, match=said):
            _ = prepare(store, taken), taken.sn  # type: ignore[arg-type]
    with pytest.raises(NodeUnavailable, match=r"a donor answered {'sn': 'x'}"):
        joining._sn_in(Packet("halt", {"sn": "x"}))
    state = NodeStream(StreamState(EX + "s", 100, False, 1, None, 1000, Settings()))
    with pytest.raises(DataError, match=r"stream http://ex/s: expected key, first_tick, .*, found {'key': 'x'}"):
        state.restore({"key": "x"})
    one, two = (TermTable.of(np.array([8]), [text]) for text in (b"<a>", b"<b>"))
    registry = NodeRegistry(62)
    registry.take_over(one)
    registry.take_over(one)
    with pytest.raises(DataError, match="term id 8 is '<b>' on another node, and another text here"):
        registry.take_over(two)


def test_a_node_that_begins_to_join_while_others_are_asked_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "is_silent", lambda node, other: False)
    joined = replace(genesis(3, 2, 4), view=8)
    away = {**joined.members, 2: replace(joined.members[2], role=Role.OUT)}
    host = SimpleNamespace(node=SimpleNamespace(control=replace(joined, view=7, members=away)), check=lambda: None)

    def wait_for_record(view: int, timeout_s: float) -> None:
        if view > host.node.control.view:
            host.node = SimpleNamespace(control=joined)

    host.wait_for_record = wait_for_record
    rounds: list[list[int]] = []

    def ask_them(asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        rounds.append([node for node, _ in asked])
        return [Packet("feed", {"view": 8 if node == 1 else 7}) for node, _ in asked]

    packets = {node: Packet("feed") for node in range(3)}
    answers = ask_members(host, SimpleNamespace(ask=ask_them, me=0), packets, 5)  # type: ignore[arg-type]
    assert rounds == [[0, 1], [0, 1, 2]]
    assert sorted(answers) == [0, 1, 2]


def test_what_not_all_donors_have_is_left_to_the_writers() -> None:
    """Donor 0 has inserted stream batch 3, donor 1 only 2; of partition p donor 0 has less, of q donor 1."""
    inserted = [
        {
            "inserted": 3,
            "offsets": {"p": 14, "q": 9},
            "partitions": {"p": [16, 3, False, 7, 2, [[4, 16]]], "q": [9, 5, False, 7, 2, []]},
        },
        {
            "inserted": 2,
            "offsets": {"p": 10, "q": 5},
            "partitions": {
                "p": [20, 4, False, 7, 2, [[3, 14], [4, 18], [5, 20]]],
                "q": [8, 2, False, 7, 2, [[3, 8]]],
                "r": [1, 0, False, 7, 2, [[3, 1]]],
            },
        },
    ]
    taken = Taken()
    facts = {"name": EX, "iri": EX, "lsn": 1, "batch_ms": 100, "payload": "{}", "shares_dropped_to": 0}
    for donor, intake in enumerate(inserted):
        streams = [{**facts, "standing": {"key": EX, "inserted_to": 53 - donor}}]
        taken.add(Packet("state", {**HEAD, "streams": streams, "intakes": {EX: intake}}))
    assert taken.streams[EX].inserted_to == 52
    control = replace(genesis(2, 2, 4), streams={EX: DeclaredStream(EX, ("p", "q", "r"), 100, "live")})
    node: Any = SimpleNamespace(control=control)
    assert list(joining.events_of(9, taken, node)) == [
        ev.StateInstalled(9, {EX: 2}, {EX: {"p": 10, "q": 5}}),
        ev.PieceOffered(EX, "p", 7, 3, 10, 14, after=2),
        ev.PieceOffered(EX, "p", 7, 4, 14, 16, after=2),
        ev.Marker(EX, "p", 7, 3, 16),
        ev.PieceOffered(EX, "q", 7, 3, 5, 8, after=2),
    ]


def test_what_others_have_staged_is_kept_beside_what_has_come() -> None:
    chunk, _ = encode_ntriples(f"<{EX}a> <{EX}p> <{EX}b> .\n".encode(), b"")
    donor, staging = Staging(1 << 20), Staging(1 << 20)
    donor.add("c", 0, chunk, True, False)
    donor.add("c", 1, chunk, False, False)
    staging.add("c", 3, chunk, False, True)  # of this one's chunks it has missed those before
    for change, found in donor.changes().items():
        chunks = list(found.chunks.values())
        staging.adopt(change, chunks)
        staging.adopt(change, chunks[:1])
    assert staging.size_bytes == 4 * (40 + len(chunk.terms.text))
    taken = staging.take("c")
    assert len(taken.encoded(goes=True)) == 2
    assert len(taken.encoded(goes=False)) == 2


def given_of(store: NodeStore) -> dict[str, list[tuple[Encoded, bool]]]:
    """What a node that joins is given of the changes that are staged at the only other node."""
    head = {"index": 1, "intakes": {}, "epochs": []}
    collected = collect(store, Wanted(0, store.shard_map, store.split_ids, SHARDS, SHARDS), store.reached, head)
    taken = Taken()
    for packet in collected.packets():
        taken.add(packet)
    return taken.staged


def lines_of(name: str, count: int) -> Encoded:
    return encode_ntriples("".join(f"<{EX}{name}{row}> <{EX}p> <{EX}o> .\n" for row in range(count)).encode(), b"")[0]


def test_who_joins_is_told_each_quad_that_an_update_takes_away_and_none_that_has_come_since() -> None:
    with wired(1) as wires:
        node = wires.nodes[0]
        engine, store = node.engine, node.store
        engine.update(f"INSERT DATA {{ GRAPH <{EX}g> {{ <{EX}a> <{EX}p> <{EX}b> }} }}")
        read_sn = store.core.sn
        store.stage("c", 0, lines_of("x", 3), goes=True)
        store.stage("c", 1, lines_of("y", 2), is_last=True)
        store.hold_for("c", read_sn, [EX + "g"], 20.0)
        engine.load(io.BytesIO(f"<{EX}between> <{EX}p> <{EX}b> <{EX}g> .".encode()), format="nq")
        staged = given_of(store)["c"]
        assert [(len(part), goes) for part, goes in staged] == [(3, True), (2, False), (1, True)]
        assert sorted(staged[2][0].terms.texts()) == [f"<{EX}{name}>" for name in "abgp"]
        store.unstage("c")
        assert not [handle.owner for handle in store.core.arrangement.trace.handles() if handle.owner == "change c"]


def test_a_graph_that_is_cleared_comes_in_packets_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is made before it is asked for: the snapshot may be let go by then."""
    monkeypatch.setattr(collecting, "ROWS_MAX", 10)
    with wired(1) as wires:
        store = wires.nodes[0].store
        lines = "".join(f"<{EX}s{row}> <{EX}p{row % 3}> <{EX}o> <{EX}g> .\n" for row in range(40))
        wires.nodes[0].engine.load(io.BytesIO(lines.encode()), format="nq")
        store.stage("c", 0, NOTHING, is_last=True)
        store.hold_for("c", store.core.sn, [EX + "g", None], 20.0)
        given = given_of(store)["c"]
        assert {goes for _, goes in given} == {True}
        assert max(len(chunk) for chunk, _ in given) < 20
        assert {text for chunk, _ in given for text in chunk.terms.texts()} >= {f"<{EX}s{row}>" for row in range(40)}
        assert sum(len(chunk) for chunk, _ in given) == 40
        store.unstage("c")


@pytest.mark.parametrize("is_last_given", [False, True])
def test_a_node_that_joins_while_an_update_is_staged_clears_what_the_others_clear(is_last_given: bool) -> None:
    """Its donors give the first chunk, or all: then they name each quad that is cleared."""
    update, first = "c", encode_ntriples(f"<{EX}new> <{EX}p> <{EX}b> .\n".encode(), b"")[0]
    with wired(1) as wires:
        node = wires.nodes[0]
        store, control = node.store, node.host.node.control
        node.engine.load(io.BytesIO(f"<{EX}a> <{EX}p> <{EX}b> .".encode()), format="nt")
        read_sn = store.core.sn
        if is_last_given:
            store.stage("donor", 0, NOTHING, is_last=True)
            store.hold_for("donor", read_sn, [None], 20.0)
            with store.core.lock:
                given = given_of(store)
                assert sum(len(chunk) for chunk, _ in given["donor"]) == 1
                store.staging.adopt(update, [(first, False), *given["donor"]])
        else:
            with store.core.lock:
                store.staging.adopt(update, [(first, False)])
            store.stage(update, 1, NOTHING, is_last=True)
            store.hold_for(update, read_sn, [None], 20.0)
        payload = json.dumps({"change": update, "graph": None, "cleared": [None], "operations": 1})
        node.host.carry_out(ev.Submitted(Change("a client", 1, payload, 0, control.view)), 20.0)
        assert node.engine.query("SELECT ?s { ?s ?p ?o }").texts() == [(f"<{EX}new>",)]
        store.unstage("donor")
        owners = {handle.owner for handle in store.core.arrangement.trace.handles()}
        assert not [owner for owner in owners if owner.startswith("change")]


def test_shares_of_two_donors_become_one() -> None:
    subjects = np.arange(0, SHARD_COUNT) << 53
    even = np.arange(SHARD_COUNT) % 2 == 0

    def rows(number: int) -> ShareRows:
        return ShareRows("p", 0, subjects, subjects, subjects, subjects * 0 + number, subjects * 0, np.array([number]))

    whole, donors = SliceShares(), (SliceShares(), SliceShares())
    for number in (1, 2, 3):
        for shares in (whole, *donors):
            shares.add(number, rows(number))
    whole.drop(2)
    donors[0].drop(2)
    donors[1].drop(1)
    joined = SliceShares()
    held = [donor.held(asked) for donor, asked in zip(donors, (even, ~even), strict=True)]
    by_number: dict[int, list[ShareRows]] = {}
    for found, _, _ in held:
        for number, part in found:
            by_number.setdefault(number, []).append(replace(part, transient_ids=np.array([number])))
    counts, dropped = held[0][1] + held[1][1], np.maximum(held[0][2], held[1][2])
    gone = joined.restore(by_number, counts, dropped, max(donor.dropped_to for donor in donors))
    assert gone.tolist() == [2]
    assert joined.row_count == whole.row_count
    assert joined.before(3, SHARDS) == whole.before(3, SHARDS) == (2 * SHARD_COUNT, 2)
    assert sum(len(part.subjects) for _, part in joined.share(1, 3, SHARDS)) == SHARD_COUNT
    assert held[0][2][1] == NEVER

"""Who is asked, for how long, and who is not waited for any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from wukongs.cluster import members as members_module
from wukongs.cluster.members import SILENT_PULSES, ask_members, await_word, is_silent, members_of
from wukongs.errors import NodeUnavailable, StreamError, WukongsError
from wukongs.protocol.control import Member
from wukongs.protocol.membership import Watch
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import Role
from wukongs.protocol.state import Cluster, Kept, Node, boot
from wukongs.wire.packets import Packet

SHORT_S, LONG_S = 0.02, 20.0


class Nodes:
    """Node 0 of three, its host and its peers. away: who does not answer."""

    me = 0

    def __init__(self) -> None:
        self.node: Node = boot(Cluster(3, 2), Incarnation(0, 0, 1), Kept())
        self.away: set[int] = set()
        self.asked: list[list[int]] = []
        self.rounds_s: list[float] = []
        self.on_ask: Callable[[], object] = lambda: None
        self.ended: WukongsError | None = None
        self.waited: list[str] = []

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        self.asked.append([node for node, _ in asked])
        self.rounds_s.append(timeout_s)
        self.on_ask()
        if self.away & {node for node, _ in asked}:
            raise NodeUnavailable("somebody is away")
        return [Packet(f"{packet.kind} {node}") for node, packet in asked]

    def check(self) -> None:
        if self.ended is not None:
            raise self.ended

    def wait_until(self, holds: Callable[[Node], bool], timeout_s: float, what: str) -> None:
        self.waited.append(what)
        assert not holds(self.node)
        self.become(1, Role.OUT)
        assert holds(self.node)

    def become(self, other: int, role: Role) -> None:
        members = {**self.node.control.members, other: Member(0, role)}
        self.node = replace(self.node, control=replace(self.node.control, members=members))

    def hear(self, other: int, pulses: int) -> None:
        self.node = replace(self.node, watch=Watch({other: (Incarnation(other, 0, 1), 7, pulses)}))

    def ask_all(self, timeout_s: float = LONG_S) -> dict[int, str]:
        asked = {node: Packet("x") for node in range(3)}
        answers = ask_members(self, self, asked, timeout_s)  # type: ignore[arg-type]
        return {node: answer.kind for node, answer in answers.items()}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    monkeypatch.setattr(members_module, "RETRY_S", 0.0)
    return Nodes()


def test_those_that_are_out_are_not_asked(nodes: Nodes) -> None:
    assert nodes.ask_all() == {0: "x 0", 1: "x 1", 2: "x 2"}
    nodes.become(1, Role.OUT)
    nodes.become(2, Role.JOINING)
    assert (members_of(nodes), nodes.ask_all()) == ({0, 2}, {0: "x 0", 2: "x 2"})  # type: ignore[arg-type]


def test_who_is_taken_out_while_it_is_asked_is_not_waited_for(nodes: Nodes) -> None:
    nodes.away = {1}
    nodes.on_ask = lambda: nodes.become(1, Role.OUT) if len(nodes.asked) == 2 else None
    assert nodes.ask_all() == {0: "x 0", 2: "x 2"}
    assert nodes.asked == [[0, 1, 2], [0, 1, 2], [0, 2]]
    assert nodes.rounds_s[1] == 2 * nodes.rounds_s[0], "it may be busy"


def test_a_silent_node_is_not_asked_but_waited_for_until_it_is_out(nodes: Nodes) -> None:
    """A round would wait for it longer than the others need to take it out."""
    nodes.away = {1}
    nodes.hear(1, SILENT_PULSES + 1)
    assert nodes.ask_all() == {0: "x 0", 2: "x 2"}
    assert (nodes.asked, nodes.waited) == ([[0, 2]], ["node 1, of which nothing is heard"])


def test_a_node_that_falls_silent_while_it_is_asked_is_asked_once(nodes: Nodes) -> None:
    nodes.away = {1}
    nodes.on_ask = lambda: nodes.hear(1, SILENT_PULSES + 1)
    assert nodes.ask_all() == {0: "x 0", 2: "x 2"}
    assert nodes.asked == [[0, 1, 2], [0, 2]]


def test_who_takes_part_and_does_not_answer_ends_it_by_name_in_time(nodes: Nodes) -> None:
    nodes.away = {2}
    with pytest.raises(NodeUnavailable, match="somebody is away"):
        nodes.ask_all(SHORT_S)
    assert max(nodes.rounds_s) <= SHORT_S


def test_a_node_that_ends_itself_asks_nobody_again(nodes: Nodes) -> None:
    nodes.away, nodes.ended = {2}, WukongsError("node 0 has failed")
    with pytest.raises(WukongsError, match="node 0 has failed"):
        nodes.ask_all()
    assert len(nodes.asked) == 1


def test_what_a_node_answers_by_name_is_not_asked_again(nodes: Nodes) -> None:
    def refuse() -> None:
        raise StreamError("unknown stream")

    nodes.on_ask = refuse
    with pytest.raises(StreamError, match="unknown stream"):
        nodes.ask_all()
    assert len(nodes.asked) == 1


def test_a_node_is_silent_when_nothing_new_was_heard_for_long(nodes: Nodes) -> None:
    assert not is_silent(nodes.node, 1)
    nodes.hear(1, SILENT_PULSES)
    assert not is_silent(nodes.node, 1)
    await_word(nodes, 1, LONG_S)  # type: ignore[arg-type]
    assert not nodes.waited
    nodes.hear(1, SILENT_PULSES + 1)
    assert is_silent(nodes.node, 1)
    await_word(nodes, 0, LONG_S)  # type: ignore[arg-type]
    assert not nodes.waited
    await_word(nodes, 1, LONG_S)  # type: ignore[arg-type]
    assert nodes.waited == ["node 1, of which nothing is heard"]

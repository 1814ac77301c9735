"""Boot: a node asks the others whether they know it, and whether they were told the same of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.clusters import PATIENT, cluster
from tests.unit.wire.conftest import wait_until
from wukongs.cluster.boot import FIRST_DISK, HELLO, hello_handler, new_boot, next_disk
from wukongs.cluster.cluster_node import ClusterNode, ClusterShape
from wukongs.errors import DataError, NodeUnavailable, SettingsError
from wukongs.live.header import SPOKEN, version_with
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import AddNode
from wukongs.wire.network import Network
from wukongs.wire.packets import Handler, Packet

SHAPE = "nodes 3, replicas 2"


class Others:
    """Node 1, and what answers it; who is not there does not answer."""

    me = 1

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = handlers

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        if any(node not in self._handlers for node, _ in asked):
            raise NodeUnavailable("not there")
        return [self._handlers[node](packet) for node, packet in asked]


def knowing(life: Incarnation | None, shape: str = SHAPE, is_covered: bool = True) -> Handler:
    return hello_handler(lambda node: life if node == 1 else None, shape, lambda node: is_covered)


def test_a_node_that_a_majority_has_not_heard_of_starts() -> None:
    assert next_disk(Others({2: knowing(None)}), [0, 2], SHAPE, 5) == FIRST_DISK


def test_a_node_that_was_there_before_gets_a_disk_that_none_of_its_lives_had() -> None:
    began = new_boot()
    assert next_disk(Others({2: knowing(Incarnation(1, 0, 7)), 0: knowing(None)}), [0, 2], SHAPE, 5) >= began
    ahead = began + 1_000_000  # by the clock of another machine
    others = {2: knowing(Incarnation(1, 0, 7)), 0: knowing(Incarnation(1, ahead, ahead))}
    assert next_disk(Others(others), [0, 2], SHAPE, 5) == ahead + 1


def test_a_node_that_was_there_before_is_refused_if_nobody_else_holds_what_it_held() -> None:
    alone = knowing(Incarnation(1, 0, 7), is_covered=False)
    said = (
        r"node 1 is in the cluster already, or was .*, as node 2 says, and no other node holds all of that: it cannot"
        r".* To be sure, start all nodes that do not run"
    )
    with pytest.raises(NodeUnavailable, match=said):
        next_disk(Others({2: alone, 0: knowing(Incarnation(1, 0, 7))}), [0, 2], SHAPE, 5, heard_s=0.05)


def test_a_node_asks_again_who_does_not_know_yet_that_others_hold_what_it_held() -> None:
    """The node that answers has just started: by its folder another one is out that is in sync by now."""
    covered = iter([False, False, True])
    handler = hello_handler(lambda _: Incarnation(1, 0, 7), SHAPE, lambda _: next(covered))
    assert next_disk(Others({2: handler}), [0, 2], SHAPE, 5) > FIRST_DISK
    assert list(covered) == []


def test_an_answer_that_names_no_disk() -> None:
    with pytest.raises(DataError, match="hello: expected the generation of a disk, found 'new'"):
        next_disk(Others({2: lambda _: Packet(HELLO, {"disk": "new"})}), [0, 2], SHAPE, 5)


def test_a_node_that_was_told_something_else_is_refused() -> None:
    with pytest.raises(SettingsError, match="node 1 starts with nodes 3, replicas 1, the nodes that are there have"):
        next_disk(Others({0: knowing(None)}), [0, 2], "nodes 3, replicas 1", 5)


@pytest.mark.parametrize(
    ("told", "spoken", "version"),
    [
        (None, (4, 4), 4),
        (None, (4, 5), 4),
        ([4, 4], (4, 5), 4),
        ([4, 5], (5, 6), 5),
        ((5, 6), (4, 5), 5),
        ([4, 9], (1, 7), 7),
        (None, (5, 6), None),
        ([5, 6], (4, 4), None),
        ([4, 4], (5, 5), None),
        ([6, 5], (4, 9), None),
        ("4", (4, 4), None),
        ([4], (4, 4), None),
        ([4, "5"], (4, 4), None),
        ([True, 4], (1, 4), None),
        (4, (4, 4), None),
    ],
)
def test_two_sides_use_the_newest_version_that_both_speak(
    told: object, spoken: tuple[int, int], version: int | None
) -> None:
    assert version_with(told, spoken) == version


def test_a_node_that_speaks_no_version_of_the_others_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"node 1 speaks versions \[5, 6\] of the messages .*, and this node \[4, 4\]"
    ):
        knowing(None)(Packet(HELLO, {"node": 1, "shape": SHAPE, "speaks": [5, 6]}))
    other = Others({0: lambda _: Packet(HELLO, {"disk": None, "speaks": [5, 6]})})
    with pytest.raises(SettingsError, match="node 0 speaks versions"):
        next_disk(other, [0, 2], SHAPE, 5)


def test_a_node_of_a_release_that_names_no_versions_is_let_in() -> None:
    assert next_disk(Others({0: lambda _: Packet(HELLO, {"disk": None})}), [0, 2], SHAPE, 5) == FIRST_DISK
    assert knowing(None)(Packet(HELLO, {"node": 1, "shape": SHAPE})).fields["disk"] is None


def test_too_few_nodes() -> None:
    with pytest.raises(NodeUnavailable, match=r"node 1: 0 of 2 other nodes answered within 0.05 s, and 1 are needed"):
        next_disk(Others({}), [0, 2], SHAPE, 0.05)


def test_a_question_that_is_none() -> None:
    with pytest.raises(DataError, match="hello: expected the number of a node and its disk, found 'x', None"):
        knowing(None)(Packet(HELLO, {"node": "x", "shape": SHAPE}))


def test_a_node_waits_for_its_earlier_life_to_fall_silent() -> None:
    heard = iter([True, True, False])
    handler = hello_handler(lambda _: Incarnation(1, 0, 7), SHAPE, lambda _: True, lambda _: next(heard))
    assert next_disk(Others({2: handler}), [0, 2], SHAPE, 5) > FIRST_DISK
    assert list(heard) == []


def test_a_second_process_of_a_node_that_runs_gives_up_with_what_to_do() -> None:
    heard = hello_handler(lambda _: Incarnation(1, 0, 7), SHAPE, lambda _: True, lambda _: True)
    others = Others({0: knowing(None), 2: heard})
    with pytest.raises(NodeUnavailable, match=r"node 1 runs already: another process claims to be .* End one"):
        next_disk(others, [0, 2], SHAPE, 5, heard_s=0.05)


def test_a_stranger_and_a_second_process_with_its_number_do_not_shut_a_node_out() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        real, mistaken = nodes[0], Incarnation(0, new_boot(), new_boot())
        real.engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
        addresses = {node.me.node: node.address for node in nodes}
        stranger = Network(mistaken, "tcp://127.0.0.1:0", {}, lambda *_: None, introduction={"shape": "another"})
        stranger.join(addresses)
        for other in (1, 2):
            assert stranger.send(other, Packet("tell")) in (True, False)
            with pytest.raises(SettingsError, match="node 0 starts with another, the nodes that are there"):
                stranger.ask([(other, Packet("claim"))], 20)
        stranger.close()
        shape = ClusterShape(3, 2, silence_pulses_max=PATIENT)
        second = ClusterNode(mistaken, shape, "tcp://127.0.0.1:0", real.store.core.settings)
        try:
            second.start(addresses)
            said = r"another process claims to be this node, and is not let in. End one of the two"
            wait_until(lambda: bool(second.network.refusals()), "the others have refused it")
            with pytest.raises(NodeUnavailable, match=said):
                second.wait_until_ready(0.5)
            for node in nodes:
                node.engine.update("INSERT { <http://ex/a> <http://ex/q> ?o } WHERE { <http://ex/a> <http://ex/p> ?o }")
                assert len(node.engine.query("SELECT * { ?s ?p ?o }")) == 2
            assert real.host.failure is None
        finally:
            second.close()


def test_a_node_learns_of_those_that_were_added() -> None:
    new, learned = AddNode(3, "tcp://d:1", "tcp://d:2", "key"), dict[int, AddNode]()
    others = Others({0: hello_handler(lambda _: None, SHAPE, added=lambda: [new]), 2: knowing(None)})
    assert next_disk(others, [0, 2], SHAPE, 5, added=learned) == FIRST_DISK
    assert learned == {3: new}


@pytest.mark.parametrize("told", [3, [3], [{"is": "AddNode", "node": 3}]])
def test_an_answer_with_added_nodes_that_are_none_is_refused(told: object) -> None:
    answer = Packet(HELLO, {"disk": None, "speaks": SPOKEN, "added": told})
    with pytest.raises(DataError, match="hello: expected the nodes that were added, found"):
        next_disk(Others({2: lambda _: answer}), [0, 2], SHAPE, 5, added={})

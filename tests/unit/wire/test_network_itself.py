"""A node that is among those that it asks."""

from __future__ import annotations

import threading

import pytest

from tests.unit.wire.conftest import Nodes, echo
from wukongs.errors import BudgetExceeded
from wukongs.wire.packets import Packet


def test_a_node_answers_itself_while_others_answer(nodes: Nodes) -> None:
    """Each of the two waits for the other; and one asks in turn meanwhile."""
    mine, theirs = threading.Event(), threading.Event()

    def answer_here(_: Packet) -> Packet:
        mine.set()
        assert theirs.wait(20)
        return networks[0].ask([(1, Packet("echo", {"n": 1}))], 20)[0]

    def answer_there(_: Packet) -> Packet:
        theirs.set()
        assert mine.wait(20)
        return Packet("both")

    networks = (
        nodes.start(0, {"both": answer_here}, asks_max=1, waits=(("both",),)),
        nodes.start(1, {"both": answer_there, "echo": echo}),
    )
    nodes.join(*networks)
    for _ in range(2):
        answers = networks[0].ask([(0, Packet("both")), (1, Packet("both"))], 20)
        assert [answer.kind for answer in answers] == ["echo", "both"]


def test_the_error_of_the_node_itself_comes_when_the_others_are_done(nodes: Nodes) -> None:
    done = []
    failed = threading.Event()

    def fail(_: Packet) -> Packet:
        failed.set()
        raise BudgetExceeded("more than 10 rows")

    def wait(packet: Packet) -> Packet:
        assert failed.wait(20)
        done.append(packet)
        return packet

    networks = nodes.start(0, {"rows": fail}), nodes.start(1, {"rows": wait})
    nodes.join(*networks)
    with pytest.raises(BudgetExceeded, match=r"^more than 10 rows$"):
        networks[0].ask([(0, Packet("rows")), (1, Packet("rows"))], 20)
    assert len(done) == 1

"""Several nodes are asked at the same time, and one of them answers an error."""

from __future__ import annotations

import threading

import pytest

from tests.unit.wire.conftest import Nodes, echo
from wukongs.errors import BudgetExceeded
from wukongs.wire.packets import Packet


def test_an_error_of_one_node_comes_when_the_others_are_done(nodes: Nodes) -> None:
    """The asker may look at once at the outcome at the others."""
    done, is_waited_for = [], threading.Event()

    def fail(_: Packet) -> Packet:
        threading.Timer(0.1, is_waited_for.set).start()
        raise BudgetExceeded("more than 10 rows")

    def wait(packet: Packet) -> Packet:
        assert is_waited_for.wait(20)
        done.append(packet)
        return packet

    networks = nodes.start(0), nodes.start(1, {"rows": fail}), nodes.start(2, {"rows": wait})
    nodes.join(*networks)
    for order in ((1, 2), (2, 1)):
        is_waited_for.clear()
        with pytest.raises(BudgetExceeded, match=r"^more than 10 rows"):
            networks[0].ask([(node, Packet("rows")) for node in order], 20)
        assert done
        done.clear()


def test_an_error_is_told_though_another_node_is_silent(nodes: Nodes) -> None:
    def fail(_: Packet) -> Packet:
        raise BudgetExceeded("more than 10 rows")

    let_go = threading.Event()
    handlers = {"rows": lambda _: _late(let_go), "echo": echo}
    networks = nodes.start(0), nodes.start(1, {"rows": fail, "echo": echo}), nodes.start(2, handlers)
    nodes.join(*networks)
    networks[0].ask([(2, Packet("echo")), (1, Packet("echo"))], 20)  # they are connected, and know each other
    with pytest.raises(BudgetExceeded):
        networks[0].ask([(2, Packet("rows")), (1, Packet("rows"))], 3)
    let_go.set()


def _late(let_go: threading.Event) -> Packet:
    assert let_go.wait(20)
    return Packet("rows")

"""Boot: a node asks the others whether they know it, and whether they were told the same of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from wukongs.errors import DataError, NodeUnavailable, SettingsError
from wukongs.nodes.boot import HELLO, check_is_first_life, hello_handler
from wukongs.protocol.messages import Incarnation
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


def knowing(life: Incarnation | None, shape: str = SHAPE) -> Handler:
    return hello_handler(lambda node: life if node == 1 else None, shape)


def test_a_node_that_a_majority_has_not_heard_of_starts() -> None:
    check_is_first_life(Others({2: knowing(None)}), [0, 2], SHAPE, 5)


def test_a_node_that_was_there_before_is_refused() -> None:
    with pytest.raises(NodeUnavailable, match=r"node 1 is in the cluster already, or was .*, as node 2 says"):
        check_is_first_life(Others({2: knowing(Incarnation(1, 0, 7))}), [0, 2], SHAPE, 5)


def test_a_node_that_was_told_something_else_is_refused() -> None:
    with pytest.raises(SettingsError, match="node 1 starts with nodes 3, replicas 1, the nodes that are there have"):
        check_is_first_life(Others({0: knowing(None)}), [0, 2], "nodes 3, replicas 1", 5)


def test_too_few_nodes() -> None:
    with pytest.raises(NodeUnavailable, match=r"node 1: 0 of 2 other nodes answered within 0.05 s, and 1 are needed"):
        check_is_first_life(Others({}), [0, 2], SHAPE, 0.05)


def test_a_question_that_is_none() -> None:
    with pytest.raises(DataError, match="hello: expected the number of a node, found 'x'"):
        knowing(None)(Packet(HELLO, {"node": "x", "shape": SHAPE}))

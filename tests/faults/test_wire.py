"""Real processes: a node that is killed, paused or started again while it is asked."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from subprocess import Popen
from typing import Any

import pytest

from tests.processes import child
from tests.unit.wire.conftest import ANY_PORT, wait_until
from wukongs.errors import NodeUnavailable
from wukongs.protocol.messages import Incarnation
from wukongs.wire.network import Network
from wukongs.wire.packets import Packet

NODE = """
import sys, threading
from wukongs.protocol.messages import Incarnation
from wukongs.wire.network import Network
from wukongs.wire.packets import Packet

boot, address, other = int(sys.argv[1]), sys.argv[2], sys.argv[3]
never = threading.Event()
handlers = {"echo": lambda packet: packet, "never": lambda packet: never.wait() and packet}
network = Network(Incarnation(1, 1, boot), address, handlers, lambda sender, packet: None)
network.join({0: other})
print(network.address, flush=True)
never.wait()
"""


@pytest.fixture
def asking() -> Iterator[Network]:
    network = Network(Incarnation(0, 1, 1), ANY_PORT, {}, lambda sender, packet: None)
    yield network
    network.close()


def start(process: Popen[Any]) -> str:
    assert process.stdout is not None
    address: str = process.stdout.readline().strip()
    assert address.startswith("tcp://"), process.stderr and process.stderr.read()
    return address


def node(boot: int, address: str, other: Network) -> list[str]:
    return [sys.executable, "-c", NODE, str(boot), address, other.address]


class Asked:
    """A question without an answer, in a thread."""

    def __init__(self, network: Network, timeout_s: float) -> None:
        self.error = ""
        self._thread = threading.Thread(target=self._ask, args=(network, timeout_s))
        self._thread.start()

    def _ask(self, network: Network, timeout_s: float) -> None:
        try:
            network.ask([(1, Packet("never"))], timeout_s)
        except NodeUnavailable as error:
            self.error = str(error)

    def end(self, timeout_s: float) -> str:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()
        return self.error


def test_a_killed_node_is_known_at_once_and_found_again(asking: Network) -> None:
    with child(node(1, ANY_PORT, asking)) as process:
        address = start(process)
        asking.join({1: address})
        assert asking.ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}
        before = int(asking.stats()["messages_out"])  # type: ignore[arg-type]
        asked = Asked(asking, 60)
        wait_until(lambda: int(asking.stats()["messages_out"]) > before, "it is asked")  # type: ignore[arg-type]
        process.kill()
        assert "the connection was lost before the answer came" in asked.end(20)
    with child(node(2, address, asking)) as again:
        assert start(again) == address
        assert asking.ask([(1, Packet("echo", {"n": 2}))], 20)[0].fields == {"n": 2}


def test_a_paused_node_ends_in_the_deadline_and_goes_on_later(asking: Network) -> None:
    with child(node(1, ANY_PORT, asking)) as process:
        asking.join({1: start(process)})
        asking.ask([(1, Packet("echo"))], 20)
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # its other threads may still answer for a moment
        try:
            with pytest.raises(NodeUnavailable, match=r"no answer within 0.3 s"):
                asking.ask([(1, Packet("echo"))], 0.3)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert asking.ask([(1, Packet("echo", {"n": 3}))], 20)[0].fields == {"n": 3}

"""Partitions between processes of one machine: all that nodes say to each other goes through proxies, which can cut it.

Node i listens for the others at 127.2.0.(i+1), and is found at 127.1.0.(i+1): there stands a proxy for each port at
which the node listens, also for those that it opens later (the direct ones). By its port a connection that comes is
known as one of a node's process, so each pair can be cut, in each direction. For Linux.
"""

from __future__ import annotations

import os
import random
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.05
CHUNK = 1 << 16
_LISTENS = "0A"
_COUNT_MAX = 250


def found_at(number: int, port: int) -> str:
    """The address at which the other nodes find a node."""
    return f"tcp://127.1.0.{number + 1}:{port}"


def listens_at(number: int, port: int) -> str:
    """The address at which it listens for them."""
    return f"tcp://127.2.0.{number + 1}:{port}"


class Partitions:
    """pids: of the nodes that run, by their numbers. Cuts hold until `heal`."""

    def __init__(self, count: int, pids: Callable[[], dict[int, int]]) -> None:
        assert count < _COUNT_MAX
        self._count, self._pids = count, pids
        self._lock = threading.Lock()
        self._cut: dict[tuple[int | None, int | None], tuple[int, bool]] = {}
        """(who speaks, who hears) -> how many bytes still come through, and whether the rest waits or is lost."""
        self._proxies: dict[tuple[int, int], socket.socket] = {}
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self, speaker: int, hearer: int, after: int = 0, waits: bool = False) -> None:
        """Let nothing more come from one node to another. after: bytes that come still, so that a message is broken in
        the middle. waits: what is said meanwhile comes late, as TCP sends it again; else the connection breaks then."""
        with self._lock:
            self._cut[speaker, hearer] = after, waits

    def heal(self) -> None:
        """Let all come through again."""
        with self._lock:
            self._cut.clear()

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()
        for proxy in self._proxies.values():
            proxy.close()

    def _run(self) -> None:
        while not self._is_closed.wait(LOOK_S):
            open_now = {(number, port) for number, port in _listening() if number < self._count}
            for number, port in open_now - self._proxies.keys():
                with suppress(OSError):
                    self._proxies[number, port] = self._proxy(number, port)
            for gone in self._proxies.keys() - open_now:
                self._proxies.pop(gone).close()

    def _proxy(self, number: int, port: int) -> socket.socket:
        proxy = socket.create_server((f"127.1.0.{number + 1}", port), backlog=64)
        threading.Thread(target=self._accept, args=(proxy, number, port), daemon=True).start()
        return proxy

    def _accept(self, proxy: socket.socket, hearer: int, port: int) -> None:
        while True:
            try:
                near, peer = proxy.accept()
            except OSError:
                return
            speaker = _node_with(peer, self._pids())
            try:
                far = socket.create_connection((f"127.2.0.{hearer + 1}", port), 5)
            except OSError:
                near.close()
                continue
            threading.Thread(target=self._relay, args=(near, far, speaker, hearer), daemon=True).start()

    def _relay(self, near: socket.socket, far: socket.socket, speaker: int | None, hearer: int) -> None:
        """Carry what both sides say. speaker: who has connected; None: it is no node."""
        ways = {near: (far, (speaker, hearer)), far: (near, (hearer, speaker))}
        with near, far, suppress(OSError):
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            has_lost = False
            while not self._is_closed.is_set():
                heard = [source for source, (_, way) in ways.items() if self._left(way) != (0, True)]
                ready, _, _ = select.select(heard, [], [], LOOK_S)
                for source in ready:
                    target, way = ways[source]
                    left = self._left(way)
                    data = source.recv(CHUNK if left is None or not left[1] else min(CHUNK, left[0]))
                    if not data:
                        return
                    came = data if left is None else data[: left[0]]
                    has_lost |= len(came) < len(data)
                    self._let_through(way, len(came))
                    if came:
                        target.sendall(came)
                if has_lost and all(self._left(way) is None for _, way in ways.values()):
                    return

    def _left(self, way: tuple[int | None, int | None]) -> tuple[int, bool] | None:
        with self._lock:
            return self._cut.get(way)

    def _let_through(self, way: tuple[int | None, int | None], count: int) -> None:
        with self._lock:
            if (found := self._cut.get(way)) is not None:
                self._cut[way] = max(0, found[0] - count), found[1]


def random_cut(partitions: Partitions, count: int, rng: random.Random) -> str:
    """Cut a node off, a pair, or one direction of a pair, at once or in the middle of a message; say what."""
    one, other = rng.sample(range(count), 2)
    after, waits = rng.choice((0, 0, 7, 300)), rng.random() < 0.5
    kind = rng.choice(("node", "pair", "direction"))
    pairs = [(one, other)]
    if kind != "direction":
        pairs.append((other, one))
    if kind == "node":
        others = [node for node in range(count) if node != one]
        pairs = [pair for node in others for pair in ((one, node), (node, one))]
    for pair in pairs:
        partitions.cut(*pair, after, waits)
    return f"{kind} {one}-{other}, after {after} bytes, the rest {'waits' if waits else 'is lost'}"


def _listening() -> list[tuple[int, int]]:
    """Return the numbers and ports of the nodes that listen."""
    found = []
    for local, _, state, _ in _sockets():
        host, port = local
        if state == _LISTENS and host[:3] == (127, 2, 0):
            found.append((host[3] - 1, port))
    return found


def _node_with(peer: tuple[str, int], pids: dict[int, int]) -> int | None:
    """Return the node whose process has a connection's other end."""
    wanted = tuple(map(int, peer[0].split("."))), peer[1]
    inode = next((inode for local, _, _, inode in _sockets() if local == wanted), None)
    for number, pid in pids.items():
        with suppress(OSError):
            for handle in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(handle.path) == f"socket:[{inode}]":
                        return number
    return None


Address = tuple[tuple[int, ...], int]


def _sockets() -> list[tuple[Address, Address, str, str]]:
    """Return the TCP sockets of this machine: both addresses, state, inode."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        found.append((_address(fields[1]), _address(fields[2]), fields[3], fields[9]))
    return found


def _address(text: str) -> Address:
    host, port = text.split(":")
    return tuple(reversed(bytes.fromhex(host))), int(port, 16)

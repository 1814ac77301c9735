"""A served engine without sockets: packets cross as JSON and copied arrays, and a channel can be made to fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import wukongs
from tests.engine_helpers import names, windows
from tests.inside import core_of
from wukongs.errors import NodeUnavailable
from wukongs.remote.calls import InCluster
from wukongs.remote.client import RemoteEngine
from wukongs.remote.service import Service
from wukongs.wire.packets import Handler, Packet


def crossed(packet: Packet) -> Packet:
    """Return a packet as it comes out at the other side."""
    fields = json.loads(json.dumps(packet.fields, allow_nan=False))
    arrays = {}
    for name, array in packet.arrays.items():
        assert array.ndim == 1
        assert array.dtype in (np.int64, np.int32, np.uint8, np.bool_), array.dtype
        arrays[name] = np.frombuffer(array.tobytes(), array.dtype).copy()
    return Packet(packet.kind, fields, arrays)


class Wire:
    """A channel to handlers in this process. on_ask: is called with each packet; what it raises is raised instead of
    asking, and what it returns, if anything, instead of the answer."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers = handlers
        self.on_ask: Callable[[Packet], Packet | None] = lambda _: None
        self.on_answer: Callable[[Packet, Packet], Packet | None] = lambda asked, answer: None
        self.asked: list[str] = []
        self.is_dead = False
        self._lock = threading.Lock()

    def ask(self, packet: Packet, timeout_s: float) -> Packet:
        if self.is_dead:
            raise NodeUnavailable("the node does not answer")
        with self._lock:
            self.asked.append(packet.kind)
        instead = self.on_ask(packet)
        if instead is not None:
            return instead
        answer = crossed(self.handlers[packet.kind](crossed(packet)))
        return self.on_answer(packet, answer) or answer

    def close(self) -> None:
        pass


@contextmanager
def served(
    engine: wukongs.Engine, *, node: InCluster | None = None, silent_s: float = 60.0
) -> Iterator[tuple[Service, Wire]]:
    """Serve an engine. node: as if it were one of a cluster."""
    service = Service(engine, core_of(engine).settings, node, silent_s=silent_s)
    try:
        yield service, Wire(service.handlers)
    finally:
        service.close()


def connected(*wires: Wire, silence_s: float = 1.0) -> RemoteEngine:
    """Return a client of nodes, in this order."""
    by_address = {f"tcp://127.0.0.1:{place}": wire for place, wire in enumerate(wires)}
    return RemoteEngine(list(by_address), by_address.__getitem__, silence_s=silence_s)


def count(engine: Any) -> int:
    return len(list(engine.query("SELECT * { ?s ?p ?o }")))


def windows_until(query: Any, end_ms: int) -> dict[int, list[str]]:
    """Window end -> first column. Waits for the window of end_ms; none comes after it."""
    found: dict[int, list[str]] = {}
    for window in query.results(timeout_s=60):
        assert window.end_ms not in found, f"window {window.end_ms} came twice"
        found[window.end_ms] = names(window)
        if window.end_ms == end_ms:
            break
    assert windows(query, 0.5) == {}
    return found


class Once:
    """Does something the first time that a packet of a kind, or the call of a method, goes by."""

    def __init__(self, what: str, do: Callable[[], None]) -> None:
        self.what, self.do, self.is_done = what, do, False

    def __call__(self, packet: Packet, answer: Packet | None = None) -> Packet | None:
        if not self.is_done and self.what in (packet.kind, packet.fields.get("method")):
            self.is_done = True
            self.do()
        return None


def silent() -> None:
    raise NodeUnavailable("no answer")

"""Doorkeeper: tells ZeroMQ of each peer that connects with CURVE whether its key is let in (ZAP 1.0)."""

from __future__ import annotations

from typing import Any

_VERSION = b"1.0"


class Doorkeeper:
    """One per context, used by the thread of the context's bound socket: it has to come to `answer` when asked."""

    def __init__(self, context: Any, allowed: frozenset[str]) -> None:
        import zmq

        self._allowed = allowed
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> None:
        """Answer one question; nothing but a key on the list is let in."""
        import zmq
        from zmq.utils import z85

        try:
            request = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        version, number, mechanism, credentials = request[0], request[1], request[5], request[6:]
        is_let_in = (version, mechanism, len(credentials)) == (_VERSION, b"CURVE", 1) and z85.encode(
            credentials[0]
        ).decode() in self._allowed
        status, text = (b"200", b"OK") if is_let_in else (b"400", b"not let in")
        self.socket.send_multipart([_VERSION, number, status, text, b"", b""])

"""ZeroMQ's own objects: a context per process, and keys."""

from __future__ import annotations

import os
from typing import Any

SOCKETS_MAX = 1 << 14
"""Each connection to a node is a socket. ZeroMQ's own limit is 1,023 in a process."""
_contexts: dict[int, Any] = {}
_begun: set[int] = set()


def context() -> Any:
    """Return this process's ZeroMQ context: one must not live on across a fork."""
    import zmq

    if os.getpid() not in _contexts:
        _contexts[os.getpid()] = made = zmq.Context()
        made.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
    return _contexts[os.getpid()]


def begin_sending() -> None:
    """Have pyzmq open what it needs to send a large frame without copying it. It would do so with the first such frame,
    when there may be no descriptor left, and then ZeroMQ ends the process without a word."""
    import zmq

    if os.getpid() in _begun:
        return
    _begun.add(os.getpid())
    with context().socket(zmq.PAIR) as one, context().socket(zmq.PAIR) as other:
        one.bind("inproc://wukongs-begin")
        other.connect("inproc://wukongs-begin")
        one.send(bytes(1 << 17), copy=False)
        other.recv()


def new_key_pair() -> tuple[str, str]:
    """Return a new public and secret key."""
    import zmq

    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def public_key_of(secret: str) -> str:
    import zmq

    return zmq.curve_public(secret.encode()).decode()

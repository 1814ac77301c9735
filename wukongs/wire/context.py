"""ZeroMQ's own objects: a context per process, and keys."""

from __future__ import annotations

import os
from typing import Any

_contexts: dict[int, Any] = {}


def context() -> Any:
    """Return this process's ZeroMQ context: one must not live on across a fork."""
    import zmq

    if os.getpid() not in _contexts:
        _contexts[os.getpid()] = zmq.Context()
    return _contexts[os.getpid()]


def new_key_pair() -> tuple[str, str]:
    """Return a new public and secret key."""
    import zmq

    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def public_key_of(secret: str) -> str:
    import zmq

    return zmq.curve_public(secret.encode()).decode()

"""Free ports for nodes that have to know each other's before they bind them."""

from __future__ import annotations

import contextlib
import random
import socket

FREE_PORTS = range(10_000, 30_000)
"""Systems hand out higher ones to whoever asks for any: one of these might be taken until a node binds it."""


def free_ports(count: int) -> list[int]:
    """Return ports of FREE_PORTS that nobody has."""
    found: list[int] = []
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found

"""Packet: a question or an answer of nodes and clients, as a value: plain fields and named arrays.

`codec.py` says how a packet becomes frames. Asker and answerer agree on its kind, fields and arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from wukongs.live.grants import ALL, Grant

Array: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.int32] | npt.NDArray[np.uint8] | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """fields: JSON values; arrays: one-dimensional, of the types in Array. Nobody changes either of them. grant: what
    the client that has sent it may do, as its node has found; it is never sent."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    grant: Grant = ALL


Handler: TypeAlias = Callable[[Packet], Packet]
"""Answers a packet; a WukongsError that it raises is told to the asker, by name."""


class Peers(Protocol):
    """The nodes of a cluster, as readers and writers see them. May be used from any thread."""

    @property
    def me(self) -> int:
        """This node's number, from 0 on."""

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        """Ask nodes at the same time, and return their answers in the order of the questions.

        Raises NodeUnavailable (no answer within timeout_s, or no such node), and whatever error a node answers, by
        name."""

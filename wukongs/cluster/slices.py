"""SlicePuller: fetches the other nodes' shares of stream batches for a node with registered queries, so that its
windows are whole; and answers others. It has one thread, because the store goes on as soon as it has all slices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from wukongs.cluster.node_store import MissingSlices, NodeStore
from wukongs.errors import DataError, WukongsError
from wukongs.wire.assignment import Assignment
from wukongs.wire.packets import Packet, Peers

log = logging.getLogger("wukongs")
SLICES = "slices"
TIMEOUT_S = 5.0
RETRY_S = 0.02
TOGETHER_MAX = 4
"""Streams that are asked for at the same time: each question to a node takes a connection."""


class SlicePuller:
    """The puller of one node."""

    def __init__(
        self,
        store: NodeStore,
        peers: Peers,
        assignment: Callable[[], Assignment],
        fail: Callable[[BaseException], object],
    ) -> None:
        """assignment: which node answers for which shard now. It may raise NodeUnavailable. fail: ends the node, whose
        windows would stand still."""
        self._store, self._peers, self._assignment, self._fail = store, peers, assignment, fail
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="wukongs-slices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_closed = True
        self._store.lacks_slices.set()
        if self._thread.is_alive():
            self._thread.join()

    def answer(self, packet: Packet) -> Packet:
        """Handler of SLICES."""
        stream, first, last = (packet.fields.get(name) for name in ("stream", "first", "last"))
        shards = packet.arrays.get("shards")
        if not isinstance(stream, str) or type(first) is not int or type(last) is not int or shards is None:
            raise DataError(f"{SLICES}: expected stream, first, last and shards, found {dict(packet.fields)!r}")
        return self._store.slice_share(stream, first, last, shards)  # type: ignore[arg-type]

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._store.lacks_slices.wait()
                self._store.lacks_slices.clear()
                while not self._is_closed and (missing := self._store.missing_slices()):
                    parts = [missing[at : at + TOGETHER_MAX] for at in range(0, len(missing), TOGETHER_MAX)]
                    have_come = [self._pull(part) for part in parts]
                    if not all(have_come):
                        self._store.lacks_slices.wait(RETRY_S)
                        self._store.lacks_slices.clear()
        except Exception as error:
            log.exception("node %d: slices cannot be put together", self._peers.me)
            self._fail(error)

    def _pull(self, missing: Sequence[MissingSlices]) -> bool:
        """Fetch what is missing of some streams at the same time, or if that fails of one after the other; tell whether
        all has come."""
        try:
            assignment = self._assignment()
            shards = [(node, assignment.shards(node)) for node in assignment.others]
            fields = [{"stream": one.stream, "first": one.first, "last": one.last} for one in missing]
            asked = [(node, Packet(SLICES, told, {"shards": mine})) for told in fields for node, mine in shards]
            answers = self._peers.ask(asked, TIMEOUT_S)
            for at, one in enumerate(missing):
                of_one = answers[at * len(shards) : (at + 1) * len(shards)]
                self._store.add_slices(one, of_one, assignment.shards(assignment.me))
        except WukongsError as error:
            if len(missing) > 1:
                have_come = [self._pull([one]) for one in missing]
                return all(have_come)
            # A node is away, has not come so far, or lies: the next try asks who answers by then.
            log.debug("node %d: slices of %s: %s", self._peers.me, missing[0].stream, error)
            return False
        return True

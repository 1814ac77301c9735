"""SlicePuller: fetches the other nodes' shares of stream batches for a node with registered queries, so that its
windows are whole; and answers others. It has one thread, because the store goes on as soon as it has all slices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from wukongs.cluster.node_store import MissingSlices, NodeStore
from wukongs.errors import DataError, WukongsError
from wukongs.wire.assignment import Assignment
from wukongs.wire.packets import Packet, Peers

log = logging.getLogger("wukongs")
SLICES = "slices"
TIMEOUT_S = 5.0
RETRY_S = 0.02


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
                    have_come = [self._pull(one) for one in missing]
                    if not all(have_come):
                        self._store.lacks_slices.wait(RETRY_S)
                        self._store.lacks_slices.clear()
        except Exception as error:
            log.exception("node %d: slices cannot be put together", self._peers.me)
            self._fail(error)

    def _pull(self, missing: MissingSlices) -> bool:
        """Fetch what is missing of a stream, and tell whether it came."""
        fields = {"stream": missing.stream, "first": missing.first, "last": missing.last}
        try:
            assignment = self._assignment()
            asked = [(node, Packet(SLICES, fields, {"shards": assignment.shards(node)})) for node in assignment.others]
            answers = self._peers.ask(asked, TIMEOUT_S)
            self._store.add_slices(missing, answers, assignment.shards(assignment.me))
        except WukongsError as error:
            # A node is away, has not come so far, or lies: the next try asks who answers by then.
            log.debug("node %d: slices of %s: %s", self._peers.me, missing.stream, error)
            return False
        return True

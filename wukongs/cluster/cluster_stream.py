"""ClusterStream: a declared stream of a cluster, as ClusterEngine.stream returns it."""

from __future__ import annotations

from wukongs.cluster.writing import Writers
from wukongs.live.core import Core
from wukongs.live.injector import Injector
from wukongs.live.stream import Stream, check_timestamp
from wukongs.live.stream_state import StreamState
from wukongs.store.encoded import Encoded

PUSH_S = 60.0
"""How long the nodes may take to have what was pushed."""


class ClusterStream(Stream):
    """As Stream: what is pushed is safe on all nodes when the call returns. Raises also NodeUnavailable."""

    def __init__(self, core: Core, injector: Injector, state: StreamState, writers: Writers) -> None:
        super().__init__(core, injector, state)
        self._writers = writers

    def advance(self, timestamp_ms: int) -> None:
        """As Stream.advance."""
        check_timestamp(self.iri, timestamp_ms)
        self._check_is_open()
        self._writers.advance(self.iri, int(timestamp_ms), PUSH_S)

    def close(self) -> None:
        """As Stream.close; a stream that pipelines feed as well goes on until they are at their end, too."""
        if not (self._state.is_ended or self._state.is_dropped or self._core.is_closed):
            self._writers.finish(self.iri, PUSH_S)

    def _take(self, encoded: Encoded) -> int:
        self._check_is_open()
        if len(encoded):
            self._writers.push(self.iri, encoded, PUSH_S)
        return len(encoded)

    def _check_is_open(self) -> None:
        with self._core.lock:
            self._core.check_is_open()
            self._state.check_is_open()

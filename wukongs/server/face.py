"""Face: what all handlers of requests share: the engine, the threads that call it, the bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from starlette.requests import HTTPConnection

from wukongs.engine import Engine
from wukongs.live.grants import ALL, Grant
from wukongs.server.events import FeedBounds
from wukongs.server.feeds import Feeds
from wukongs.server.metrics import Metrics
from wukongs.server.requests import HeldBytes, Workers


@dataclass(frozen=True, slots=True)
class Bounds:
    """body_bytes_max: of a query, an update, tuples; bodies_bytes_max: of all that are held; document_bytes_max: of a
    document that is loaded; documents_bytes_max: of all of these that are held; timeout_max_s: of a query or update
    (None: the settings of the engine); per_client_max, waiting_max: requests at the same time, of one client and of
    all; connections_max: that are open; header_s: how long one may take until its request's head has arrived, and
    before that for the handshake of TLS."""

    body_bytes_max: int = 64 << 20
    bodies_bytes_max: int = 512 << 20
    document_bytes_max: int = 4 << 30
    documents_bytes_max: int = 16 << 30
    timeout_max_s: float | None = None
    per_client_max: int = 64
    waiting_max: int = 1024
    connections_max: int = 8192
    header_s: float = 10.0
    feed: FeedBounds = field(default_factory=FeedBounds)

    def timeout_s(self, asked_s: float | None) -> float | None:
        """Return how long something may take, of which the client has said how long it should."""
        known = [one for one in (asked_s, self.timeout_max_s) if one is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Face:
    engine: Engine
    bounds: Bounds
    workers: Workers
    feeds: Feeds
    metrics: Metrics
    held: HeldBytes
    documents: HeldBytes


def face_of(request: HTTPConnection) -> Face:
    """Return the face that a request has come to, with the engine as it is for its grant."""
    face: Face = request.app.state.face
    graphs = grant_of(request).graphs
    return face if graphs is None else replace(face, engine=face.engine._seeing(graphs))


def grant_of(request: HTTPConnection) -> Grant:
    """Return what a request may do. A path that needs no token asks the engine nothing that tells of a graph."""
    grant: Grant | None = request.state.grant
    return ALL if grant is None else grant


def address_of(request: HTTPConnection) -> str:
    """Return the address of a request without its parameters: relative IRIs of what it brings are resolved by it."""
    return str(request.url.replace(query="", fragment=""))

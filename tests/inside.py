"""The one place where tests reach behind an Engine: for storage, locks and sockets that have no public name."""

from __future__ import annotations

import wukongs
from wukongs.live.core import Core
from wukongs.wire.ingest_service import IngestService


def core_of(engine: wukongs.Engine) -> Core:
    """Return the state of an engine."""
    return engine._core


def ingest_of(engine: wukongs.Engine) -> IngestService:
    """Return the handler of the messages that pipelines send to an engine."""
    return engine._ingest_handler()

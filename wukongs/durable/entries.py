"""Event times of triples in the head of a segment, as text, and the tuples that are to change them.

Replay begins with the entries of a head. Tuples that wait there have come by earlier records, which the log may not
have any more: they are stored by the SN of the checkpoint, but what follows goes by their event times.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from wukongs.live.core import Core
from wukongs.live.stream_state import Fragment
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import signs, signs_of
from wukongs.store.event_times import EventTimes


def written_entries(core: Core) -> dict[str, Any] | None:
    """Return the entries, and the timeless tuples that wait, as JSON; None if no stream goes by event time."""
    if core.event_times is None:
        return None
    waiting = {
        state.lsn: [[number, part.partition, _text(_columns(part))] for number, part in state.waiting()]
        for state in core.streams.values()
    }
    return {"entries": _text(core.event_times.entries()), "waiting": waiting}


def restore_entries(core: Core, written: dict[str, Any]) -> None:
    """Hold what written_entries has returned. The streams are declared."""
    core.event_times = core.event_times or EventTimes()
    core.event_times.restore(_table(written["entries"], 5))
    for state in core.streams.values():
        for number, partition, text in written["waiting"].get(str(state.lsn), ()):
            subjects, predicates, objects, graphs, times, goes = _table(text, 6)
            timing, nothing = np.zeros(len(times), np.bool_), np.empty(0, np.int64)
            retracted = signs(goes.astype(np.bool_))
            state.wait_to_join(
                number,
                Fragment(subjects, predicates, objects, graphs, times, timing, nothing, 0, partition, retracted),
            )


def _columns(part: Fragment) -> Int64Array:
    """Return the timeless tuples of a fragment, int64[6, n]."""
    goes = signs_of(part.goes, len(part.subjects)).astype(np.int64)
    whole = np.stack((part.subjects, part.predicates, part.objects, part.graphs, part.timestamps, goes))
    return whole[:, ~part.timing]


def _text(table: Int64Array) -> str:
    return base64.b64encode(table.astype("<i8").tobytes()).decode()


def _table(text: str, row_count: int) -> Int64Array:
    return np.frombuffer(base64.b64decode(text), "<i8").astype(np.int64).reshape(row_count, -1)

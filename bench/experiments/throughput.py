"""throughput (figures 14 and 15 of the Wukong+S paper): very many registered queries at once, of three and six classes.

`throughput` is all registered queries over the time from the advance that makes them due until all are answered.
`latency` counts from that advance until a window is in on_result, of mix.READ queries of each class. Of the others
those of L4-L6 have an on_result that does nothing, and those of L1-L3 none: large windows that nobody reads are lost.
`execution` is the engine's own count for the same windows, from due to columns ready; of queries that fire together it
is that of all of them. `register` is one registration, its text parsed. mix.py says which queries there are, and how
they are checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wukongs.bench.experiments.feed import Feed
from wukongs.bench.experiments.mix import QUICK_TICKS, SELECTIVE, TICKS, firings_of, run_mix
from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.peers import WUKONGS

EXPERIMENT = "throughput"
MIXES: Mapping[str, tuple[str, ...]] = {"L1-L3": SELECTIVE, "L1-L6": (*SELECTIVE, "L4", "L5", "L6")}
REGISTERED: Mapping[str, tuple[int, ...]] = {
    "L1-L3": (100, 1000, 10_000, 100_000),
    "L1-L6": (100, 1000, 10_000),
}
QUICK_REGISTERED = (40, 80)


def run(session: Session, feed: Feed) -> None:
    """Measure each mix and number of queries that is not done."""
    for mix, classes in MIXES.items():
        for count in QUICK_REGISTERED if session.is_quick else REGISTERED[mix]:
            here = session.with_case(registered=count)
            if session.wants(mix) and here.open(EXPERIMENT, mix, (WUKONGS,), here.case, "throughput"):
                _measure(here, feed, mix, classes, count)


def _measure(session: Session, feed: Feed, mix: str, classes: Sequence[str], count: int) -> None:
    key = (EXPERIMENT, mix, WUKONGS, session.case)
    firings = first_ms, last_ms = firings_of(session, feed, QUICK_TICKS if session.is_quick else TICKS * session.repeat)
    if last_ms <= first_ms:
        session.record.skipped(*key, feed.too_short or f"the streams are too short: {feed.last_ms} ms")
        return
    session.begin(f"{EXPERIMENT}: {mix}: {count:,} registered queries, {(last_ms - first_ms) // feed.step_ms} firings")
    found = run_mix(session, feed, classes, count, firings)
    busy = session.busy()
    if found.why:
        session.record.skipped(*key, found.why)
        return
    for name in classes:
        one = (EXPERIMENT, f"{name} of {mix}", WUKONGS, session.case)
        about: dict[str, Any] = {"rows": found.rows[name], "checked": REFERENCE, "busy": busy}
        session.record.measured(*one, "latency", found.latency_ms[name], **about)
        session.record.measured(*one, "execution", found.execution_ms[name], **about)
    about = {"checked": REFERENCE, "busy": busy}
    session.record.measured(*key, "latency", found.all_latency_ms, **about)
    session.record.measured(*key, "execution", found.all_execution_ms, **about)
    session.record.measured(*key, "register", found.register_ms, **about)
    session.record.measured(*key, "throughput", found.throughput, unit="queries/s", **about)

"""latency and rate with `--through spark`: the streams are files that Spark reads by the clock, into the engine.

The run is one of `wukongs run` in a process of its own, case `through` spark. `latency` counts from the moment when the
clock of the replay is at the end of a stream batch until the window is in on_result: reading, Spark's tasks, their way
into the engine and its firing count. Windows that come while compilers and caches are cold do not count. In `latency`
each query is alone; in `rate` all are registered, and `behind` and `tuples` are as with pushes. Peers have no part.

Answers: the newest windows of a run, of each query at least one, are compared with pyoxigraph's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from wukongs.adapters.spark.jvm import check_java
from wukongs.bench.experiments import rate
from wukongs.bench.experiments.feed import Feed, WindowQuery
from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.peers import WUKONGS, Rows, difference
from wukongs.bench.pipeline.streaming import Run, run_file
from wukongs.bench.record import MISSING
from wukongs.errors import SettingsError

LATENCY = "latency"
THROUGH = {"through": "spark"}
WARM_UP_SHARE = 0.3
"""The share of the event time that compilers and caches get."""


def run_latency(session: Session, feed: Feed) -> None:
    """Measure each query alone that is not done."""
    here = session.with_case(**THROUGH)
    for query in (*feed.queries, *feed.others):
        key = (LATENCY, query.name, WUKONGS, here.case)
        if not session.wants(query.name) or here.record.is_done(*key):
            continue
        here.begin(f"{LATENCY}: {query.name}, through Spark")
        why, run = _run(feed, (query,))
        _write_down(here, LATENCY, feed, (query,), run, why)


def run_rates(session: Session, feed_at: Callable[[float], Feed], rates: Sequence[float]) -> None:
    """Measure each rate that is not done, from the least on, until the engine falls behind."""
    session, behind_at = rate.of_queries(session), None
    for one in sorted(rates):
        here = session.with_case(rate=one, **THROUGH)
        key = (rate.EXPERIMENT, rate.ALL, WUKONGS, here.case)
        if here.record.is_done(*key, "behind"):
            behind = here.record.median(*key, "behind") or 0.0
        elif behind_at is not None:
            here.record.skipped(*key, f"not tried: the engine fell behind at rate {behind_at:g}")
            continue
        else:
            feed = feed_at(one)
            queries = tuple(query for query in feed.queries if session.wants(query.name))
            here.begin(f"{rate.EXPERIMENT}: {one:g}, through Spark")
            why, run = _run(feed, queries)
            behind = _write_rate(here, feed, queries, run, why)
        if behind > rate.BEHIND_MS:
            behind_at = one


def _write_rate(session: Session, feed: Feed, queries: Sequence[WindowQuery], run: Run | None, why: str) -> float:
    """Write one rate down; return how far behind its time the last window came, in milliseconds."""
    key = (rate.EXPERIMENT, rate.ALL, WUKONGS, session.case)
    why = _write_down(session, rate.EXPERIMENT, feed, queries, run, why)
    if why or run is None:
        session.record.skipped(*key, why)
        return 0.0
    last_ms = _last_ms(feed)
    last = [delay for end_ms, delay in run.delays_ms(None, last_ms - feed.step_ms) if end_ms == last_ms]
    behind_ms = max(0.0, *last)
    tuples = run.notes.triples * 1000 / (last_ms + behind_ms)
    about = {"checked": REFERENCE, "busy": session.busy()}
    session.record.measured(*key, "tuples", [tuples], unit="tuples/s", **about)  # type: ignore[arg-type]
    session.record.measured(*key, "behind", [behind_ms], **about)  # type: ignore[arg-type]
    return behind_ms


def _last_ms(feed: Feed) -> int:
    return min(feed.last_ms, rate.LONGEST_MS)


def _run(feed: Feed, queries: Sequence[WindowQuery]) -> tuple[str, Run | None]:
    """Run it; return why it cannot be measured, empty if it can, and the run."""
    if feed.too_short:
        return feed.too_short, None
    if find_spec("pyspark") is None:
        return f"{MISSING}Spark: pip install pyspark", None
    try:
        check_java()
        with TemporaryDirectory(prefix="wukongs-through-") as name:
            return "", run_file(_write_files(Path(name), feed, queries), "spark")
    except SettingsError as error:
        return f"{MISSING}Spark: {error}", None
    except RuntimeError as error:
        return f"failed: {' '.join(str(error).split())[-500:]}", None


def _write_files(folder: Path, feed: Feed, queries: Sequence[WindowQuery]) -> Path:
    """Write the stored triples, a timestamped file for each stream, and the run file; return its path."""
    stored = folder / "stored.nt"
    stored.write_bytes(feed.stored)
    lines = ["[[stored]]", f'file = "{stored}"']
    for number, (iri, stream) in enumerate(feed.streams.items()):
        file = folder / f"stream{number}.nt"
        texts = stream.between(-1, _last_ms(feed)).splitlines()
        with file.open("wb") as out:
            out.writelines(b"%b %d\n" % one for one in zip(texts, stream.times.tolist(), strict=False))
        lines += ["[[stream]]", f'iri = "{iri}"', f"batch_ms = {feed.batch_ms}", f"history_ms = {feed.range_ms}"]
        lines += [f"timing = {str(iri in feed.timing).lower()}", "[stream.source]", 'kind = "timestamped"']
        lines += [f'path = "{file}"']
    for query in queries:
        lines += ["[[query]]", f'name = "{query.name}"', f'text = """{query.register_text}"""']
    lines += ["[pipeline]", 'engine = "spark"', "speed = 1.0"]
    path = folder / "run.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _write_down(
    session: Session, experiment: str, feed: Feed, queries: Sequence[WindowQuery], run: Run | None, why: str
) -> str:
    """Write the latencies of some queries down, or why there are none; return the first reason."""
    busy = session.busy()
    from_ms = max(feed.first_ms - feed.step_ms, int(_last_ms(feed) * WARM_UP_SHARE))
    wrong = {} if run is None else _otherwise(session, feed, queries, run)
    for query in queries:
        key = (experiment, query.name, WUKONGS, session.case)
        delays = [] if run is None else run.delays_ms(query.name, from_ms)
        delays = [one for one in delays if one[0] <= _last_ms(feed)]
        told = why or wrong.get(query.name) or _lost(feed, from_ms, [end_ms for end_ms, _ in delays])
        if told:
            why = why or told
            session.record.skipped(*key, told)
            continue
        assert run is not None
        rows = [count for name, _, _, count in run.notes.windows if name == query.name]
        about = {"rows": sorted(rows)[len(rows) // 2], "checked": REFERENCE, "busy": busy}
        session.record.measured(*key, "latency", [delay for _, delay in delays], **about)  # type: ignore[arg-type]
    return why


def _lost(feed: Feed, from_ms: int, ends: Sequence[int]) -> str:
    """Return which windows behind a time did not come, or not once; empty if all did. ends: of those that came."""
    first_ms = from_ms // feed.step_ms * feed.step_ms + feed.step_ms
    expected = range(first_ms, _last_ms(feed) // feed.step_ms * feed.step_ms + 1, feed.step_ms)
    if sorted(ends) == list(expected):
        return ""
    return f"answers otherwise: {len(expected)} windows expected behind {from_ms} ms, {len(ends)} found"


def _otherwise(session: Session, feed: Feed, queries: Sequence[WindowQuery], run: Run) -> dict[str, str]:
    """Return how the newest windows differ from pyoxigraph's, by query."""
    told: dict[str, str] = {}
    by_name = {query.name: query for query in queries}
    checked = set()
    with session.reference(feed.stored) as reference:
        for name, end_ms, tsv in run.notes.newest:
            if end_ms > _last_ms(feed) or name in told:
                continue
            reference.window(feed.window(by_name[name], end_ms))
            rows: Rows = [tuple(line.split("\t")) for line in tsv.splitlines()[1:]]
            checked.add(name)
            differs = difference(reference.select(by_name[name].select_text), rows, REFERENCE)
            if differs is not None:
                told[name] = f"{differs} (window that ends at {end_ms} ms)"
    return {**{name: "no window was compared" for name in by_name if name not in checked}, **told}

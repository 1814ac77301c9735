"""One-shot queries over the LSBench sample in one run: wukongs, pyoxigraph and rdflib.

All three hold the same graph: the stored triples with what the streams absorb (posts, photos, likes). Answers are
compared before anything is timed. A time is that from the text of the query to its whole answer as SPARQL JSON; the
three take turns, so that what the machine does meanwhile falls on all. Who takes long is asked rarely, and rdflib is
interrupted after RDFLIB_S_MAX: then its answer is not compared, and the table says how long it had. Progress goes to
standard error.
"""

from __future__ import annotations

import gc
import io
import json
import logging
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import wukongs
from adapters.lsbench_people import NetworkSettings
from bench.harness import ROOT, Report, WrongAnswer, summary
from bench.lsbench.data import LsbenchData, find_folder, generate_lsbench, read_lsbench
from bench.oneshot.estimates import bench_citybench_windows, bench_estimates, bench_lsbench_windows, summarize
from bench.oneshot.parse import bench_parse
from bench.oneshot.queries import CONSTANTS, OTHER_QUERIES, S_QUERIES, OneShotQuery

ABSORBED = ("PO", "PO-L", "PH", "PH-L")
GENERATED = NetworkSettings(users=1000, duration_ms=10_000, positions_per_s=1)
QUICK = NetworkSettings(users=60, friends=8, duration_ms=1000, posts_per_s=40, photos_per_s=30, positions_per_s=1)
SLOW_S = 1.0
"""A system that takes longer for its first answer is asked RARELY times more; one over VERY_SLOW_S not again."""
RARELY = 3
VERY_SLOW_S = 5.0
RDFLIB_S_MAX = 20.0
Ask = Callable[[str], bytes]
TIMES = "One-shot queries, text to SPARQL JSON, medians in ms"


class TookTooLong(BaseException):
    """A call was interrupted. Not an Exception, so that what it interrupts does not take it for one of its own."""


def main(report: Path | None = None, data: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark. data: a folder of LSBench files; quick: tiny generated data, few repeats.

    Returns the exit status: 1 for a wrong answer or data that cannot be read, after one line on standard error."""
    try:
        found = _read(data, quick)
        lines = b"".join([found.stored, *(found.streams[name].lines for name in ABSORBED)])
        constants = CONSTANTS if found.is_sample else {"user": found.user, "person": found.person, "group": "g0"}
        constants.setdefault("other", constants["person"])
        results = Report("oneshot", {"source": found.source, "triples": lines.count(b"\n")})
        with wukongs.Engine() as engine:
            engine.load(io.BytesIO(lines), format="nt")
            _progress(f"{lines.count(10):,} triples loaded; now pyoxigraph and rdflib")
            systems = {"wukongs": _wukongs(engine), "pyoxigraph": _pyoxigraph(lines), "rdflib": _rdflib(lines)}
            for query in (*S_QUERIES, *OTHER_QUERIES):
                _progress(query.name)
                _bench_query(results, query, query.text(constants), systems, 3 if quick else 30)
            _add_ratios(results)
            _progress("estimates, then parsing and planning")
            bench_estimates(results, engine, constants)
            bench_lsbench_windows(results, found)
            _bench_city(results)
            summarize(results)
            bench_parse(results, engine, 20 if quick else 2000)
    except (WrongAnswer, OSError, ValueError) as error:
        print(f"wukongs: bench oneshot: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def _bench_city(report: Report) -> None:
    folder = ROOT.parent / "shared" / "data" / "citybench"
    if folder.is_dir():
        bench_citybench_windows(report, folder)
    else:
        report.notes.append(f"No estimates of C1-C11: no data in {folder}.")


def _read(data: Path | None, quick: bool) -> LsbenchData:
    if quick and data is None:
        return generate_lsbench(QUICK)
    folder = find_folder(data)
    return generate_lsbench(GENERATED) if folder is None else read_lsbench(folder)


def _bench_query(report: Report, query: OneShotQuery, text: str, systems: dict[str, Ask], repeats: int) -> None:
    try:
        wukongs.parse_query(text)
    except wukongs.UnsupportedFeatureError as error:
        report.notes.append(f"{query.name}: left out, {error}")
        return
    answers: dict[str, Counter[tuple[tuple[str, ...], ...]]] = {}
    first: dict[str, float] = {}
    for name, ask in systems.items():
        began = time.perf_counter()
        try:
            answer = interrupted_after(RDFLIB_S_MAX, partial(ask, text)) if name == "rdflib" else ask(text)
        except TookTooLong:
            continue
        first[name] = time.perf_counter() - began
        answers[name] = _rows(answer)
    for name in list(answers)[1:]:
        what = f"{query.name}, rows as {name} has them"
        if query.is_cut:
            report.check(what, sum(answers[name].values()), sum(answers["wukongs"].values()))
        elif answers[name] != answers["wukongs"]:
            extra, missing = answers["wukongs"] - answers[name], answers[name] - answers["wukongs"]
            raise WrongAnswer(
                f"{what}: {sum(extra.values())} more, {sum(missing.values())} missing: {extra or missing}"
            )
        else:
            report.check(what, True, True)
    counts = {name: _repeats(seconds, repeats) for name, seconds in first.items()}
    samples = _take_turns(text, {name: systems[name] for name in first}, counts)
    medians = {name: summary(found or [first[name]])["median"] * 1e3 for name, found in samples.items()}
    row: dict[str, Any] = {"query": query.name, "rows": sum(answers["wukongs"].values())}
    row |= {name: medians.get(name, f"over {RDFLIB_S_MAX:g} s") for name in systems}
    row |= {_ratio(name): medians[name] / medians["wukongs"] for name in list(medians)[1:]}
    report.add(TIMES, row)


def interrupted_after(seconds: float, call: Callable[[], bytes]) -> bytes:
    """Return what a call of Python code returns. Raises TookTooLong if it takes longer. On the main thread only."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _repeats(first_s: float, repeats: int) -> int:
    if first_s > VERY_SLOW_S:
        return 0
    return RARELY if first_s > SLOW_S else repeats


def _ratio(name: str) -> str:
    return f"{name} / wukongs"


def _progress(what: str) -> None:
    print(f"wukongs: bench oneshot: {what}", file=sys.stderr, flush=True)


def _take_turns(text: str, systems: dict[str, Ask], repeats: dict[str, int]) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in systems}
    gc.collect()
    gc.disable()
    try:
        for turn in range(max(repeats.values())):
            for name, ask in systems.items():
                if turn < repeats[name]:
                    began = time.perf_counter()
                    ask(text)
                    samples[name].append(time.perf_counter() - began)
    finally:
        gc.enable()
    return samples


def _add_ratios(report: Report) -> None:
    """Add geometric means over all queries."""
    rows = report.tables[TIMES]
    means: dict[str, Any] = {}
    for ratio in map(_ratio, ("pyoxigraph", "rdflib")):
        known = [row[ratio] for row in rows if ratio in row]
        if len(known) < len(rows):
            missing = ", ".join(row["query"] for row in rows if ratio not in row)
            report.notes.append(f"The mean of {ratio} is without {missing}, and so too small.")
        if known:
            means[ratio] = math.exp(sum(map(math.log, known)) / len(known))
    report.add(TIMES, {"query": "geometric mean", **means})
    slower = [row["query"] for row in rows[:-1] if row[_ratio("pyoxigraph")] < 1]
    report.notes.append(f"Slower than pyoxigraph: {', '.join(slower) or 'none'}.")


# --- the three systems ------------------------------------------------------------------------------------------------


def _wukongs(engine: wukongs.Engine) -> Ask:
    return lambda text: engine.query(text).serialize("json").encode()


def _pyoxigraph(lines: bytes) -> Ask:
    import pyoxigraph as ox

    store = ox.Store()
    store.bulk_load(lines, format=ox.RdfFormat.N_TRIPLES)
    store.optimize()

    def ask(text: str) -> bytes:
        found = store.query(text)
        assert isinstance(found, ox.QuerySolutions)
        return found.serialize(format=ox.QueryResultsFormat.JSON) or b""

    return ask


def _rdflib(lines: bytes) -> Ask:
    import rdflib

    rdflib.NORMALIZE_LITERALS = False
    # It warns of each literal whose value it cannot make; what it answers is compared anyhow.
    logging.getLogger("rdflib").setLevel(logging.CRITICAL)
    graph = rdflib.Graph()
    graph.parse(io.BytesIO(lines), format="nt")

    def ask(text: str) -> bytes:
        return graph.query(text).serialize(format="json") or b""

    return ask


def _rows(answer: bytes) -> Counter[tuple[tuple[str, ...], ...]]:
    """Return the rows of a SPARQL JSON answer as a multiset; numbers that were computed compare by value."""
    found = json.loads(answer)
    names = found["head"]["vars"]
    return Counter(tuple(_cell(row.get(name)) for name in names) for row in found["results"]["bindings"])


def _cell(term: dict[str, Any] | None) -> tuple[str, ...]:
    if term is None:
        return ()
    datatype = term.get("datatype", "")
    value = term["value"]
    if datatype.endswith(("#double", "#float", "#decimal", "#integer")):
        value = repr(float(value))
    return (term["type"].removeprefix("typed-"), value, datatype, term.get("xml:lang", "").lower())

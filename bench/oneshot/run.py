"""One-shot queries over the LSBench sample in one run: wukongs, pyoxigraph and rdflib.

All three hold the same graph: the stored triples with what the streams absorb (posts, photos, likes). Answers are
compared before anything is timed. A time is that from the text of the query to its whole answer as SPARQL JSON; the
three take turns, so that what the machine does meanwhile falls on all. rdflib is asked once where it takes long.
"""

from __future__ import annotations

import gc
import io
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wukongs
from adapters.lsbench_people import NetworkSettings
from bench.harness import Report, WrongAnswer, summary
from bench.lsbench.data import LsbenchData, find_folder, generate_lsbench, read_lsbench
from bench.oneshot.estimates import bench_estimates
from bench.oneshot.parse import bench_parse
from bench.oneshot.queries import CONSTANTS, OTHER_QUERIES, S_QUERIES, OneShotQuery

ABSORBED = ("PO", "PO-L", "PH", "PH-L")
GENERATED = NetworkSettings(users=1000, duration_ms=10_000, positions_per_s=1)
QUICK = NetworkSettings(users=60, friends=8, duration_ms=1000, posts_per_s=40, photos_per_s=30, positions_per_s=1)
SLOW_S = 1.0
"""A system that takes longer for one answer is asked RARELY times."""
RARELY = 3
Ask = Callable[[str], bytes]
TIMES = "One-shot queries, text to SPARQL JSON, medians in ms"


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
            systems = {"wukongs": _wukongs(engine), "pyoxigraph": _pyoxigraph(lines), "rdflib": _rdflib(lines)}
            for query in (*S_QUERIES, *OTHER_QUERIES):
                _bench_query(results, query, query.text(constants), systems, 3 if quick else 30)
            _add_ratios(results)
            bench_estimates(results, engine, constants)
            bench_parse(results, engine, 20 if quick else 2000)
    except (WrongAnswer, OSError, ValueError) as error:
        print(f"wukongs: bench oneshot: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


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
    answers, slow = {}, {}
    for name, ask in systems.items():
        began = time.perf_counter()
        answers[name] = _rows(ask(text))
        slow[name] = time.perf_counter() - began
    for name in list(systems)[1:]:
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
    samples = _take_turns(text, systems, {name: RARELY if slow[name] > SLOW_S else repeats for name in systems})
    medians = {name: summary(found)["median"] * 1e3 for name, found in samples.items()}
    report.add(
        TIMES,
        {
            "query": query.name,
            "rows": sum(answers["wukongs"].values()),
            **medians,
            "pyoxigraph / wukongs": medians["pyoxigraph"] / medians["wukongs"],
            "rdflib / wukongs": medians["rdflib"] / medians["wukongs"],
        },
    )


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
    ratios = ("pyoxigraph / wukongs", "rdflib / wukongs")
    means = {name: math.exp(sum(math.log(row[name]) for row in rows) / len(rows)) for name in ratios}
    report.add(TIMES, {"query": "geometric mean", **means})
    slower = [row["query"] for row in rows[:-1] if row[ratios[0]] < 1]
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

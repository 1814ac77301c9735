"""One-shot queries over the LSBench sample in one run: wukongs, pyoxigraph and rdflib. Then queries over values.

All three hold the same graph: the stored triples with what the streams absorb (posts, photos, likes). Queries over
values (values.py) have data of their own; rdflib, which would take minutes, is not asked. Answers are compared before
anything is timed. A time is that from the text of the query to its whole answer: as Python terms, each system's own, in
tuples of rows; and as text, JSON of rows or N-Triples of a graph, where no Python object stands between. The systems
take turns, so that what the machine does meanwhile falls on all, and have answered each query before it is timed.
rdflib is interrupted where it takes longer than PATIENCE_S.
"""

from __future__ import annotations

import gc
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import ROOT, Report, WrongAnswer, summary
from wukongs.bench.lsbench.data import LsbenchData, find_folder, generate_lsbench, read_lsbench
from wukongs.bench.lsbench.queries import S_CONSTANTS
from wukongs.bench.oneshot.engines import Answer, Peer, ours, oxigraph, rdflib_graph
from wukongs.bench.oneshot.estimates import bench_citybench_windows, bench_estimates, bench_lsbench_windows, summarize
from wukongs.bench.oneshot.parse import bench_parse
from wukongs.bench.oneshot.queries import OTHER_QUERIES, S_QUERIES, OneShotQuery
from wukongs.bench.oneshot.values import ITEMS, QUICK_ITEMS, VALUE_QUERIES, value_lines
from wukongs.bench.oneshot.values import PREFIXES as VALUE_PREFIXES
from wukongs.bench.peers import TooSlow, at_most

ABSORBED = ("PO", "PO-L", "PH", "PH-L")
GENERATED = NetworkSettings(users=1000, duration_ms=10_000, positions_per_s=1)
QUICK = NetworkSettings(users=60, friends=8, duration_ms=1000, posts_per_s=40, photos_per_s=30, positions_per_s=1)
PATIENCE_S = 5.0
"""How long rdflib may take for one answer."""
BUDGET_S = 2.0
"""How long one system is asked one question again and again; LEAST times at least, if it is not slower still."""
LEAST = 3
OURS, OXIGRAPH, RDFLIB = "wukongs", "pyoxigraph", "rdflib"
VALUES_TERMS = "Queries over values, text to rows of Python terms, medians in ms"
VALUES_TEXTS = "Queries over values, text to JSON, medians in ms"
TERMS = "One-shot queries, text to rows of Python terms, medians in ms"
TEXTS = "One-shot queries, text to JSON or N-Triples, medians in ms"


def main(report: Path | None = None, data: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark. data: a folder of LSBench files; quick: tiny generated data, few repeats.

    Returns the exit status: 1 for a wrong answer or data that cannot be read, after one line on standard error."""
    try:
        found = _read(data, quick)
        lines = b"".join([found.stored, *(found.streams[name].lines for name in ABSORBED)])
        constants = (
            dict(S_CONSTANTS) if found.is_sample else {"user": found.user, "person": found.person, "group": "g0"}
        )
        constants.setdefault("other", constants["person"])
        results = Report("oneshot", {"source": found.source, "triples": lines.count(b"\n")})
        logging.getLogger("rdflib").setLevel(logging.ERROR)  # what it says of literals that are no dates
        us, engine = ours(lines)
        with engine:
            peers = (us, oxigraph(lines), rdflib_graph(lines))
            gc.collect()
            gc.freeze()  # rdflib's graph need not be walked before each measurement
            for query in (*S_QUERIES, *OTHER_QUERIES):
                print(f"bench oneshot: {query.name}", file=sys.stderr, flush=True)
                _bench_query(results, query, query.text(constants), peers, 2 if quick else 30, (TERMS, TEXTS))
            for title in (TERMS, TEXTS):
                _add_ratios(results, title)
            bench_estimates(results, engine, constants)
            bench_lsbench_windows(results, found)
            _bench_city(results)
            summarize(results)
            bench_parse(results, engine, 20 if quick else 2000)
        _bench_values(results, quick)
    except (WrongAnswer, OSError, ValueError) as error:
        print(f"wukongs: bench oneshot: {error}", file=sys.stderr)
        return 1
    finally:
        gc.unfreeze()
    results.publish(report)
    if report is not None:
        plot(results, report / "oneshot.png")
    return 0


def _read(data: Path | None, quick: bool) -> LsbenchData:
    if quick and data is None:
        return generate_lsbench(QUICK)
    folder = find_folder(data)
    return generate_lsbench(GENERATED) if folder is None else read_lsbench(folder)


def _bench_city(report: Report) -> None:
    folder = ROOT.parent / "shared" / "data" / "citybench"
    if folder.is_dir():
        bench_citybench_windows(report, folder)
    else:
        report.notes.append(f"No estimates of C1-C11: no data in {folder}.")


def _bench_values(report: Report, quick: bool) -> None:
    lines = value_lines(QUICK_ITEMS if quick else ITEMS)
    us, engine = ours(lines)
    with engine:
        peers = (us, oxigraph(lines))
        for query in VALUE_QUERIES:
            print(f"bench oneshot: {query.name}", file=sys.stderr, flush=True)
            text = VALUE_PREFIXES + query.body
            _bench_query(report, query, text, peers, 2 if quick else 10, (VALUES_TERMS, VALUES_TEXTS))
    for title in (VALUES_TERMS, VALUES_TEXTS):
        _add_ratios(report, title)


def _bench_query(
    report: Report, query: OneShotQuery, text: str, peers: Sequence[Peer], repeats: int, titles: tuple[str, str]
) -> None:
    wanted, others = peers[0].answer(text), list(peers[1:])
    for peer in peers[1:]:
        if peer.name in query.wrong:
            report.notes.append(f"{query.name}: {peer.name} is left out: it {query.wrong[peer.name]}.")
            others.remove(peer)
            continue
        try:
            with at_most(PATIENCE_S if peer.name == RDFLIB else math.inf):
                _compare(report, query, peer.name, wanted, peer.answer(text))
        except TooSlow:
            others.remove(peer)
    asked = (peers[0], *others)
    for title, calls in (
        (titles[0], {peer.name: peer.rows for peer in asked}),
        (titles[1], {peer.name: peer.text for peer in asked}),
    ):
        medians = {name: summary(times)["median"] * 1e3 for name, times in _in_turns(text, calls, repeats).items()}
        row: dict[str, Any] = {"query": query.name, "about": query.about, "rows": len(wanted), **medians}
        for name in (OXIGRAPH, RDFLIB):
            row[f"{name} / {OURS}"] = medians[name] / medians[OURS] if name in medians else ""
        if RDFLIB in {peer.name for peer in peers}:
            row.setdefault(RDFLIB, "wrong" if RDFLIB in query.wrong else f"> {PATIENCE_S * 1e3:,.0f}")
        report.add(title, row)


def _compare(report: Report, query: OneShotQuery, name: str, ours: Answer, theirs: Answer) -> None:
    what = f"{query.name}, rows as {name} has them"
    report.check(f"{what}, how many", len(theirs), len(ours))
    if query.compared == "count":
        return
    if query.compared == "sequence" and ours != theirs:
        place = next(place for place, row in enumerate(ours) if row != theirs[place])
        raise WrongAnswer(f"{what}: row {place} is {theirs[place]}, ours {ours[place]}. No time is reported")
    extra, missing = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    if extra or missing:
        raise WrongAnswer(f"{what}: {list(extra)[:3]} is ours alone, {list(missing)[:3]} theirs. No time is reported")
    report.check(what, True, True)


def _in_turns(text: str, calls: dict[str, Callable[[str], Any]], repeats: int) -> dict[str, list[float]]:
    """Time each call, one after the other, until it has been called often enough or long enough.

    Each is called once before, unseen: what compiles or fills a cache then would be the only sample."""
    for call in calls.values():
        call(text)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    open_calls = dict(calls)
    gc.collect()
    gc.disable()
    try:
        while open_calls:
            for name, call in list(open_calls.items()):
                began = time.perf_counter()
                answer = call(text)
                samples[name].append(time.perf_counter() - began)
                del answer
                count, spent = len(samples[name]), sum(samples[name])
                if count >= repeats or spent > BUDGET_S or (spent > BUDGET_S / 4 and count >= LEAST):
                    del open_calls[name]
    finally:
        gc.enable()
    return samples


def _add_ratios(report: Report, title: str) -> None:
    """Add geometric means over all queries, and name where we are slower."""
    rows = report.tables[title]
    names = [f"{name} / {OURS}" for name in (OXIGRAPH, RDFLIB)]
    ratios = {name: [row[name] for row in rows if row[name] != ""] for name in names}
    means = {name: math.exp(sum(map(math.log, found)) / len(found)) for name, found in ratios.items() if found}
    report.add(title, {"query": "geometric mean", **means})
    slower = [row["query"] for row in rows[:-1] if row[names[0]] != "" and row[names[0]] < 1]
    report.notes.append(f"{title}: slower than pyoxigraph: {', '.join(slower) or 'none'}.")


def plot(report: Report, path: Path) -> None:
    """Draw how many times longer pyoxigraph and rdflib take, query by query."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = report.tables[TERMS][:-1]
    figure, axes = pyplot.subplots(figsize=(12, 5))
    for name, mark in ((OXIGRAPH, "o"), (RDFLIB, "^")):
        column = f"{name} / {OURS}"
        places = [place for place, row in enumerate(rows) if row[column] != ""]
        axes.plot(places, [rows[place][column] for place in places], mark, label=name)
    axes.axhline(1, color="black", linewidth=1)
    axes.axhline(5, color="grey", linewidth=1, linestyle="--", label="5 times")
    axes.set_xticks(range(len(rows)), [row["query"] for row in rows], rotation=70)
    axes.set(yscale="log", ylabel="time / wukongs' time", title="Text to rows of Python terms, LSBench sample")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)

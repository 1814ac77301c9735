"""How far bad queries go beyond what they are given: time after the deadline, and memory over query_bytes_max.

Each query of bad_queries.py runs under some deadlines; the time from the deadline to its error is its overshoot. Then
it runs under a budget of bytes, while Linux notes the peak of the process's resident memory: the growth of that peak is
compared with the budget. A query that ends by a budget before the deadline, or by itself, has no overshoot: the table
says so.
"""

from __future__ import annotations

import ctypes
import gc
import io
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import wukongs
from wukongs.bench.harness import Report, Row, WrongAnswer, summary
from wukongs.bench.memory import status_bytes
from wukongs.bench.oneshot.bad_queries import PREFIX, QUERIES, UPDATES, WORDS, BadQuery
from wukongs.settings import Settings

MEBIBYTE = 1 << 20
TIME = "Time after the deadline"
MEMORY = "Resident memory that an execution adds"
WARM_UP = 3
"""So many times the longest deadline a query runs unseen: on a busy machine it may get further once, to kernels that
are not compiled yet."""
DEADLINE, BUDGET, ANSWER = "deadline", "budget", "answer"


@dataclass(frozen=True, slots=True)
class Size:
    """every: of the queries, each so-manieth is asked; budget_bytes: query_bytes_max of the runs for memory, which take
    patience_s at most."""

    nodes: int
    every: int
    deadlines_s: tuple[float, ...]
    repeats: int
    budget_bytes: int
    patience_s: float


FULL = Size(2000, 1, (0.1, 1.0), 5, 256 * MEBIBYTE, 20.0)
QUICK = Size(100, 6, (0.03,), 1, 16 * MEBIBYTE, 0.5)


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark. quick: few queries and nodes, short deadlines.

    Returns the exit status: 1 if data are not there or memory cannot be read, after one line on standard error."""
    size = QUICK if quick else FULL
    results = Report("overshoot", {"source": f"{size.nodes} nodes in a ring and a hub"})
    lines = make_data(size.nodes)
    try:
        for query in (*QUERIES, *UPDATES)[:: size.every]:
            print(f"bench overshoot: {query.name}", file=sys.stderr, flush=True)
            with _engine(lines, Settings()) as engine:
                results.check(f"{query.name}, triples", lines.count(b"\n"), len(engine.graph()))
                _end(engine, query, WARM_UP * size.deadlines_s[-1])
                for deadline_s in size.deadlines_s:
                    results.add(TIME, overshoot_of(engine, query, deadline_s, size.repeats))
            with _engine(
                lines, Settings(query_bytes_max=size.budget_bytes, rows_max=1 << 40, spill_bytes_max=0)
            ) as engine:
                results.add(MEMORY, _growth(engine, query, size))
        _summarize(results)
    except (WrongAnswer, OSError) as error:
        print(f"wukongs: bench overshoot: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def make_data(nodes: int) -> bytes:
    """Return N-Triples of nodes in a ring and in one hub, three random edges from each, numbers and texts."""
    draw = random.Random(4)
    lines = []
    for number in range(nodes):
        node = f"<http://ex/n{number}>"
        lines += [
            f"{node} <http://ex/p> <http://ex/n{(number + 1) % nodes}> .",
            f"{node} <http://ex/in> <http://ex/hub> .",
        ]
        lines += [f"{node} <http://ex/to> <http://ex/n{other}> ." for other in draw.sample(range(nodes), 3)]
        lines.append(f'{node} <http://ex/n> "{draw.randrange(nodes)}"^^<http://www.w3.org/2001/XMLSchema#integer> .')
        lines.append(f'{node} <http://ex/text> "{" ".join(draw.choices(WORDS, k=20))}" .')
    return "\n".join([*lines, ""]).encode()


@contextmanager
def _engine(lines: bytes, settings: Settings) -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=settings) as engine:
        engine.load(io.BytesIO(lines), format="nt")
        yield engine


def _end(engine: wukongs.Engine, query: BadQuery, timeout_s: float) -> str:
    """Ask, and return how it ended. Errors that are not about budgets pass."""
    ask: Callable[..., object] = engine.update if query.is_update else engine.query
    try:
        ask(PREFIX + query.text, timeout_s=timeout_s)
    except wukongs.QueryTimeout:
        return DEADLINE
    except wukongs.BudgetExceeded:
        return BUDGET
    return ANSWER


def overshoot_of(engine: wukongs.Engine, query: BadQuery, deadline_s: float, repeats: int) -> Row:
    late_ms: list[float] = []
    ends = set()
    for _ in range(repeats):
        gc.collect()
        began_s = time.monotonic()
        end = _end(engine, query, deadline_s)
        if end == DEADLINE:
            late_ms.append((time.monotonic() - began_s - deadline_s) * 1e3)
        ends.add(end)
    row: Row = {"query": query.name, "deadline ms": round(deadline_s * 1e3), "ended by": ", ".join(sorted(ends))}
    found = summary(late_ms)
    return {**row, "median ms": found["median"], "worst ms": found["max"]} if late_ms else row


def _growth(engine: wukongs.Engine, query: BadQuery, size: Size) -> Row:
    _end(engine, BadQuery("anything", "ASK { ?s ?p ?o }"), size.patience_s)
    before = reset_peak()
    end = _end(engine, query, size.patience_s)
    grown, budget = (status_bytes("VmHWM") - before) / MEBIBYTE, size.budget_bytes / MEBIBYTE
    return {"query": query.name, "ended by": end, "MiB": grown, "of the budget": grown / budget}


def reset_peak() -> int:
    """Give back freed memory, let Linux forget the peak so far; return what is resident, in bytes."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def _summarize(report: Report) -> None:
    late = [row for row in report.tables[TIME] if "worst ms" in row]
    if late:
        medians = summary([row["median ms"] for row in late])
        worst = max(late, key=lambda row: row["worst ms"])
        report.notes.append(
            f"After the deadline: median {medians['median']:.0f} ms, 90 of 100 medians within {medians['p90']:.0f} ms, "
            f"latest {worst['worst ms']:.0f} ms ({worst['query']}, deadline {worst['deadline ms']} ms)."
        )
    grown = max(report.tables[MEMORY], key=lambda row: row["MiB"])
    report.notes.append(f"Most memory: {grown['query']}, {grown['MiB']:.0f} MiB.")

"""Does a window cost the same whatever its length and whatever is stored, and does any closing stall for its blocks?

A stream of 100 ms stream batches over an hour; each probed user has posted once in the last three seconds, so that
every window has the same answer. Beside it, the same posts with their times in one stored batch, together with older
ones: without a stream index the value lists of the users have to be walked.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.bench.harness import Report, repeat, summary
from wukongs.bench.kernels.loop_kernels import run_group
from wukongs.bench.kernels.social import STREAM, name_id, random_ids
from wukongs.bench.kernels.steps import Prepared
from wukongs.bench.store.windows_kernels import walk_values
from wukongs.csparql.algebra import Bgp, Project
from wukongs.csparql.parser import parse_query
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.plans.plan_runner import run
from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import WINDOW_GRAPH, Int64Array
from wukongs.store.slice_ring import SliceRing

BATCH_MS = 100
SLICE_TUPLES = 20
USERS = 1000
PROBED = 100
RECENT = 30
"""The stream batches of the shortest window: each probed user posts in one of them."""
TITLE_READ = "Posts of k users in a window, us of CPU time (medians)"
TITLE_STALL = "One closed slice, ms of CPU time"
TITLE_CCDF = "Closed slices that take longer, ms of CPU time"
USER = Variable("user")
NO_IDS = np.empty(0, np.int64)


class Posts:
    """The posts of one stream: users : int64[n]; posts : int64[n]; times : int64[n] in ms, in order."""

    def __init__(self, batch_count: int, stored_max: int, rng: np.random.Generator) -> None:
        self.users = random_ids(USERS, rng)
        self.probed = self.users[:PROBED]
        self.predicate = name_id("creator_of")
        numbers = np.repeat(np.arange(1, batch_count + 1), SLICE_TUPLES)
        recent = np.repeat(np.arange(batch_count - RECENT + 1, batch_count + 1), -(-PROBED // RECENT))[:PROBED]
        by = np.concatenate((rng.choice(self.users[PROBED:], len(numbers)), rng.permutation(self.probed)))
        numbers = np.concatenate((numbers, recent))
        order = np.argsort(numbers, kind="stable")
        self.subjects, self.numbers = by[order], numbers[order]
        self.posts = random_ids(len(by), rng)
        self.starts = np.searchsorted(self.numbers, np.arange(1, batch_count + 2))
        older = max(0, stored_max - len(by))
        self.older_subjects = rng.choice(self.users, older)
        self.older_posts = random_ids(older, rng)

    def add(self, ring: SliceRing, number: int) -> None:
        """Add and close one stream batch."""
        rows = slice(self.starts[number - 1], self.starts[number])
        subjects = self.subjects[rows]
        predicates = np.full(len(subjects), self.predicate)
        ring.add(number, subjects, predicates, self.posts[rows], self.numbers[rows] * BATCH_MS, NO_IDS)

    def stored(self, count: int) -> Batch:
        """Return the newest `count` posts as one batch with times; those before the stream batches have time 0."""
        older = max(0, count - len(self.subjects))
        subjects = np.concatenate((self.older_subjects[:older], self.subjects))
        posts = np.concatenate((self.older_posts[:older], self.posts))
        times = np.concatenate((np.zeros(older, np.int64), self.numbers * BATCH_MS))
        graph = np.full(len(subjects), WINDOW_GRAPH, np.int64)
        return build_batch(graph, subjects, np.full(len(subjects), self.predicate), posts, times)


class Firing:
    """One plan step over a window, as a registered query executes it: the window's blocks, a dataset, the kernel."""

    def __init__(self, ring: SliceRing, batch_count: int) -> None:
        text = (
            f"PREFIX : <http://example.org/bench/> REGISTER QUERY q AS SELECT * FROM NAMED STREAM <{STREAM}> "
            f"[RANGE {batch_count * BATCH_MS}ms STEP 100ms] WHERE {{ GRAPH <{STREAM}> {{ ?user :creator_of ?post }} }}"
        )
        query = rewrite(parse_query(text))
        pattern = query.pattern
        while isinstance(pattern, Project):
            pattern = pattern.pattern
        assert isinstance(pattern, Bgp)
        self._pattern, self._clause = pattern, query.dataset
        self._ring, self._batch_count = ring, batch_count
        self._memo = PlanMemo()

    def window(self) -> BatchSet:
        """Find the blocks anew."""
        to = self._ring.closed_to
        assert to is not None
        self._ring._windows.clear()
        return self._ring.window(to - self._batch_count, to)

    def prepared(self) -> Prepared:
        """Plan over the window."""
        dataset = Dataset(self._clause, EMPTY, {self._clause.windows[0]: self.window()}, _resolve)
        lowered = self._memo.route(FilteredBgp(self._pattern), (USER,), 1, dataset).segments[0].lowered
        return Prepared(lowered, dataset, USER)

    def run(self, users: Int64Array) -> BindingTable:
        """Explore from these users over the window."""
        prepared = self.prepared()
        return run(prepared.plan, BindingTable((USER,), (users,), len(users)), prepared.dataset, Limits())


def _resolve(term: Term) -> int:
    return name_id(term.text[1:-1])


def measure(found: Report, quick: bool) -> None:
    """Read windows of three lengths beside stored graphs of three sizes; time every closing of the stream."""
    windows = {"3 s": RECENT, "6.4 s": 64} if quick else {"3 s": RECENT, "1 min": 600, "1 h": 36_000}
    sizes = (2_000, 6_000) if quick else (1_000_000, 3_000_000, 10_000_000)
    widest = max(windows.values())
    posts = Posts(widest, max(sizes), np.random.default_rng(1))
    ring = _measure_stalls(found, posts, widest)
    for name, batch_count in windows.items():
        _measure_window(found, ring, posts, name, batch_count, 3 if quick else 50)
    for size in sizes:
        _measure_walk(found, posts, size, windows, 3 if quick else 20)
    found.notes.append(
        "k = 1, 10, 100 are the times of the kernels alone, of the plan step and of walking; window() finds the blocks "
        "anew, and a firing is window(), dataset, plan and kernel together."
    )


def _measure_stalls(found: Report, posts: Posts, widest: int) -> SliceRing:
    """Fill one ring with blocks merged at once, one with blocks that closings pay for; return the second."""
    warm_up = SliceRing()
    warm_up.index_windows(16)
    for number in range(1, 17):
        posts.add(warm_up, number)
        warm_up.work(1000)
    rings: dict[str, SliceRing] = {}
    samples: dict[str, list[float]] = {}
    gc.collect()
    gc.disable()  # as harness.repeat: a full collection would fall on one of the samples
    for name in ("at once", "fuelled"):
        ring = rings[name] = SliceRing()
        ring.index_windows(widest)
        samples[name] = []
        for number in range(1, widest + 1):
            began = time.thread_time()
            posts.add(ring, number)
            while name == "at once" and ring.work(1 << 60):
                pass
            samples[name].append((time.thread_time() - began) * 1e3)
    gc.enable()
    counts = {name: sum(map(len, ring.window(0, widest).batches)) for name, ring in rings.items()}
    found.check("tuples in the widest window, blocks merged at once", len(posts.subjects), counts["at once"])
    found.check("tuples in the widest window, fuelled", len(posts.subjects), counts["fuelled"])
    for name, times in samples.items():
        row = summary(times)
        p999 = float(np.percentile(times, 99.9))
        found.add(
            TITLE_STALL,
            {
                "blocks": name,
                "slices": len(times),
                **{key: row[key] for key in ("median", "p99")},
                "p99.9": p999,
                "max": row["max"],
                "mean": float(np.mean(times)),
                "slice and block MB": rings[name].size_bytes / 1e6,
            },
        )
    for share in np.logspace(0, -4.5, 19):
        slowest = {name: float(np.quantile(times, 1 - share)) for name, times in samples.items()}
        found.add(TITLE_CCDF, {"share that takes longer": float(share), **slowest})
    return rings["fuelled"]


def _measure_window(found: Report, ring: SliceRing, posts: Posts, name: str, batch_count: int, repeats: int) -> None:
    firing = Firing(ring, batch_count)
    expected = np.sort(posts.posts[np.isin(posts.subjects, posts.probed)])
    answer = firing.run(posts.probed)
    is_same = np.array_equal(np.sort(answer.column(Variable("post"))), expected)
    found.check(f"posts of the probed users in the window of {name} are theirs", True, is_same)
    prepared = firing.prepared()
    row: dict[str, Any] = {"path": f"window of {name}", "stored": "any", "blocks": len(prepared.dataset.descriptors)}
    row["window()"] = _us(firing.window, repeats)
    for k in (1, 10, 100):
        arguments = prepared.arguments(posts.probed[:k])
        found.check(f"rows of {k} users in the window of {name}", k, int(run_group(*arguments)))
        row[f"k = {k}"] = _us(partial(run_group, *arguments), repeats)
    row["firing, k = 1"] = _us(partial(firing.run, posts.probed[:1]), repeats)
    found.add(TITLE_READ, row)


def _measure_walk(found: Report, posts: Posts, size: int, windows: dict[str, int], repeats: int) -> None:
    batch = posts.stored(size)
    last_ms = int(posts.numbers[-1]) * BATCH_MS
    out = np.empty(len(posts.subjects), np.int64)
    for name, batch_count in windows.items():
        start_ms = last_ms - batch_count * BATCH_MS
        walk = partial(walk_values, batch.descriptor, end_ms=last_ms, start_ms=start_ms, out=out)
        rows = int(walk_values(batch.descriptor, posts.probed, start_ms, last_ms, out))
        found.check(f"posts found by walking {size:,} for {name}", len(posts.probed), rows)
        row: dict[str, Any] = {"path": f"walking, {name}", "stored": len(batch), "blocks": 1}
        for k in (1, 10, 100):
            row[f"k = {k}"] = _us(partial(walk, keys=posts.probed[:k]), repeats)
        found.add(TITLE_READ, row)


def _us(function: Callable[[], Any], repeats: int) -> float:
    return summary(repeat(function, repeats, clock=time.thread_time))["median"] * 1e6


def plot(found: Report, path: Path) -> None:
    """Draw the cost of 100 keys over what is stored, and how often a closing takes longer than a time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    rows = found.tables[TITLE_READ]
    sizes = sorted({row["stored"] for row in rows if row["stored"] != "any"})
    for row in (row for row in rows if row["stored"] == "any"):
        left.plot(sizes, [row["k = 100"]] * len(sizes), marker="o", label=f"{row['path']} ({row['blocks']} blocks)")
    for name in sorted({row["path"] for row in rows if row["stored"] != "any"}):
        left.plot(sizes, [row["k = 100"] for row in rows if row["path"] == name], "k--", marker="s", label=name)
    left.set(xscale="log", yscale="log", xlabel="stored triples", ylabel="us for 100 keys", title="Reading a window")
    left.legend(fontsize="small")
    shares = found.tables[TITLE_CCDF]
    for name in ("at once", "fuelled"):
        right.plot([row[name] for row in shares], [row["share that takes longer"] for row in shares], label=name)
    right.set(
        xscale="log", yscale="log", xlabel="ms of one closed slice", ylabel="share that takes longer", title="Closing"
    )
    right.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)

"""`make fuzz`: random queries over random datasets until the count is reached; status 1 if a disagreement stays open.

Each dataset has its own seed, made of the run's and its number: `--seed S --only N` repeats one.

With `--views N`, lives of live views (tests/fuzzing/views.py) in the place of these, until N contents were compared.

With `--windows N`, lives of continuous queries in the place of these (tests/fuzzing/continuous.py), until so many
windows were compared. Then the status is 1 as well if a mechanism has found too few of them.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.fuzzing import continuous, updates, views, windows
from tests.fuzzing.graphs import Data, nquads, random_data
from tests.fuzzing.judge import Open, Tally, World
from tests.fuzzing.queries import random_query, text_of
from tests.fuzzing.trees import Tree, shrunk

QUERIES_PER_WORLD = 100
UPDATES_PER_WORLD = 3
WINDOWS_PER_WORLD = 25
PLAIN_SHARE = 0.85
PROGRESS_S = 10


def fuzz_world(seed: str, count: int = QUERIES_PER_WORLD, shrinks: bool = True) -> Tally:
    """Ask one random dataset so many queries."""
    rng = random.Random(seed)
    plain = rng.random() < PLAIN_SHARE
    blank = rng.random() < 0.8
    data = random_data(rng, plain, blank)
    tally = Tally()
    world = World(data, plain)
    try:
        for _ in range(count):
            query = random_query(rng, data)
            found = world.judge(query, tally, random.Random(rng.random()))
            if isinstance(found, Open):
                tally.opened.append(report(seed, data, plain, query, found, shrinks))
        if not blank:
            asked = [pair for pair in world.agreed if windows.fits(pair[0])][:WINDOWS_PER_WORLD]
            tally.verdicts["windows"] += len(asked)
            for query, found in windows.disagreements(data, asked, rng):
                tally.opened.append(described(seed, data, query, found))
    finally:
        world.close()
    for _ in range(UPDATES_PER_WORLD if plain else 0):
        failed = updates.disagreement(data, rng, tally)
        if failed is not None:
            tally.opened.append(described(seed, data, *failed))
    return tally


def described(seed: str, data: Data, query: Tree, found: Open) -> str:
    return f"seed {seed}\n{text_of(query)}\n{nquads(data).decode()}{found.reason}\n"


def report(seed: str, data: Data, plain: bool, query: Tree, found: Open, shrinks: bool) -> str:
    """Describe an open disagreement by its smallest case."""
    if shrinks:
        query, data = smallest(data, plain, query)
        world = World(data, plain)
        found = world.judge(query, Tally()) or found
        world.close()
    return described(seed, data, query, found)


def smallest(data: Data, plain: bool, query: Tree) -> tuple[Tree, Data]:
    """Take triples and pieces of the query away as long as the verdict stays open for the same kind of reason."""

    def kind(data: Data, tree: Tree) -> str:
        world = World(data, plain)
        try:
            found = world.judge(tree, Tally())
        finally:
            world.close()
        return "" if found is None else found.kind

    wanted = kind(data, query)
    for _ in range(2):
        world = World(data, plain)

        def fails(tree: Tree, world: World = world) -> bool:
            found = world.judge(tree, Tally())
            return found is not None and found.kind == wanted

        query = shrunk(query, fails)
        world.close()
        for graph in list(data):
            for triple in list(data[graph]):
                less = {name: [t for t in rest if (name, t) != (graph, triple)] for name, rest in data.items()}
                if kind(less, query) == wanted:
                    data = less
    return query, data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--windows", type=int, default=0, help="compare so many windows of continuous queries instead")
    parser.add_argument("--mix", choices=continuous.MIXES, help="windows of one mix alone")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, default=None, help="repeat one dataset of the seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--open-max", type=int, default=10, help="stop after so many open disagreements")
    parser.add_argument("--views", type=int, default=0, help="compare so many contents of live views instead")
    options = parser.parse_args()
    if options.views:
        return main_views(options)
    if options.windows or options.mix:
        return main_windows(options)
    numbers = range(-(-options.queries // QUERIES_PER_WORLD)) if options.only is None else [options.only]
    return run(options, fuzz_world, numbers, Tally(), "")


_Tally = TypeVar("_Tally", bound=Tally)


def run(
    options: argparse.Namespace, fuzz: Callable[[str], _Tally], numbers: Sequence[int], tally: _Tally, again: str
) -> int:
    """Try the seeds of the run with some numbers; return the status. again: what repeats one beside its seed."""
    seeds = [f"{options.seed}/{number}" for number in numbers]
    print(f"seed {options.seed}", flush=True)
    started = shown = time.monotonic()
    # Spawned, not forked: an engine has threads.
    with multiprocessing.get_context("spawn").Pool(max(1, min(options.processes, len(seeds)))) as pool:
        for done in pool.imap_unordered(fuzz, seeds):
            tally.add(done)
            for each in done.opened:
                print(f"\n--- open disagreement, {each}", flush=True)
                seed, number = each.split("\n")[0].removeprefix("seed ").split("/")
                print(f"repeat it: python -m tests.fuzzing.run {again}--seed {seed} --only {number}", flush=True)
            if time.monotonic() - shown > PROGRESS_S:
                shown = time.monotonic()
                rate = tally.queries / (shown - started)
                print(f"{tally.queries} queries, {rate:.0f}/s, {len(tally.opened)} open", file=sys.stderr, flush=True)
            if len(tally.opened) >= options.open_max:
                break
    show(tally, time.monotonic() - started)
    return 1 if tally.opened else 0


def main_views(options: argparse.Namespace) -> int:
    """Live lives of live views; the status is 1 as well if an operator has moved too few of them."""
    lives = range(-(-options.views // views.CONTENTS)) if options.only is None else [options.only]
    tally = views.Lives()
    status = run(options, views.fuzz_life, lives, tally, "--views 1 ")
    print(f"\n{tally.bound} contents of one argument, {tally.written} of them with its terms in the text")
    print("views that a change has moved, by operator")
    for name, count in tally.moved.most_common():
        print(f"{count:9} {name}")
    faults = tally.faults() if options.only is None else []
    for fault in faults:
        print(f"too rarely used: {fault}")
    return 1 if faults else status


LIVES_AT_ONCE = 4
"""Lives that a process lives before it tells of them."""


def main_windows(options: argparse.Namespace) -> int:
    """Live lives of continuous queries until so many windows were compared."""
    print(f"seed {options.seed}", flush=True)
    tally, started = continuous.Tally(), time.monotonic()
    shown = started
    lives = [options.only] if options.only is not None else range(10 * options.windows)
    mixes = itertools.cycle([options.mix] if options.mix else continuous.drawn(str(options.seed), 1 << 10))
    seeds = ((f"{options.seed}/{number}", mix) for number, mix in zip(lives, mixes, strict=False))
    with multiprocessing.get_context("spawn").Pool(max(1, options.processes)) as pool:
        # No more than is needed is asked for, so that the run can end where it is to end.
        while chunk := list(itertools.islice(seeds, LIVES_AT_ONCE * options.processes)):
            for done in pool.imap_unordered(_lived, chunk):
                tally.add(done)
                for each in done.opened:
                    print(f"\n--- open disagreement, {each}", flush=True)
                    seed, mix = (line.split(" ")[1] for line in each.split("\n")[:2])
                    base, number = seed.split("/")
                    again = f"--windows 1 --seed {base} --only {number} --mix {mix}"
                    print(f"repeat it: python -m tests.fuzzing.run {again}", flush=True)
            count = tally.windows.total()
            if time.monotonic() - shown > PROGRESS_S:
                shown = time.monotonic()
                rate = count / (shown - started)
                print(f"{count} windows, {rate:.0f}/s, {len(tally.opened)} open", file=sys.stderr, flush=True)
            if count >= options.windows or len(tally.opened) >= options.open_max:
                break
    print(f"\n{tally.shown()}\n\nin {time.monotonic() - started:.0f} s, {len(tally.opened)} open disagreements")
    faults = tally.faults() if options.only is None and options.mix is None else []
    for fault in faults:
        print(f"too rarely used: {fault}")
    return 1 if tally.opened or faults else 0


def _lived(given: tuple[str, str]) -> continuous.Tally:
    return continuous.fuzz_life(*given)


def show(tally: Tally, seconds: float) -> None:
    print(
        f"\n{tally.queries} queries in {seconds:.0f} s ({tally.queries / seconds:.0f}/s), {tally.not_empty} not empty"
    )
    for title, counts in (("verdicts", tally.verdicts), ("operators", tally.operators)):
        print(f"\n{title}")
        for name, count in counts.most_common():
            print(f"{count:9} {name}")
    print(f"\n{len(tally.opened)} open disagreements")


if __name__ == "__main__":
    sys.exit(main())

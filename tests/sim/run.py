"""`python -m tests.sim.run --seeds N --from S [--nodes n]`: run seeds; status 1 with those that fail, and why."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from functools import partial

from tests.sim.world import Report, World


def run_seed(seed: int, node_count: int | None = None) -> Report:
    return World(seed, node_count).run()


def failure(seed: int) -> str | None:
    """Run a seed; return what went wrong, if anything, and the story of the nodes concerned."""
    report = run_seed(seed)
    return None if report.failure is None else f"{report.failure}\n{report.story}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--nodes", type=int, help="nodes in the cluster; 1 to 5, by the seed, if not given")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    started, failed, messages = time.perf_counter(), [], 0
    with multiprocessing.Pool(options.jobs) as pool:
        for report in pool.imap_unordered(partial(run_seed, node_count=options.nodes), seeds):
            messages += report.messages
            if report.failure is not None:
                failed.append(report.seed)
                nodes = "" if options.nodes is None else f" --nodes {options.nodes}"
                print(f"seed {report.seed}: {report.failure}\n{report.story}", flush=True)
                print(f"repeat it: python -m tests.sim.run --seeds 1 --from {report.seed}{nodes}\n", flush=True)
    seconds = time.perf_counter() - started
    print(f"{len(seeds)} seeds, {len(failed)} failed {sorted(failed)[:50]}; {messages} messages, {seconds:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.model.run`: explore every state; status 1 and a story if an invariant breaks or a state is stuck.

The small instances run in `make test`; the full ones have 3 nodes, 2 streams and 2 stream batches of each, or something
larger in one dimension and smaller in another. Together they take some minutes. The count `states` is the one in
decision 0017; another count is another model.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.model.dropping import Dropping
from tests.model.late import Late
from tests.model.membership import Membership
from tests.model.minors import LATE, Minors, Size
from tests.model.progress import Progress
from tests.model.sealing import Sealing
from tests.model.search import Explored, Model, explore, story_of, stuck


def healed(label: str) -> bool:
    """Tell whether a step is the protocol's, and needs no fault and no message that a fallen leader left behind."""
    return "restarts" not in label and LATE not in label and "exposes" not in label


def without_node_0(label: str) -> bool:
    return healed(label) and "node 0" not in label


def without_the_late_stream(label: str) -> bool:
    return "of late" not in label


@dataclass(frozen=True, slots=True)
class Instance:
    """A model to explore. A `goal` has to be reachable from each state by steps whose labels are `allowed`."""

    name: str
    model: Model[Any]
    states: int
    goal: Callable[[Any], bool] | None = None
    allowed: Callable[[str], bool] = healed


def settling(name: str, model: Sealing | Progress | Minors | Membership | Dropping | Late, states: int) -> Instance:
    return Instance(name, model, states, model.settled)


def not_held_back(model: Late, states: int) -> Instance:
    """The ticks go on without a late stream for good, until it counts."""
    return Instance(f"ticks without the {_size(model)}", model, states, model.goes_on, without_the_late_stream)


def _size(model: Late) -> str:
    return f"late stream, stream batches of each {model.batches}, records {model.records_max}"


def minors(size: Size, states: int) -> Instance:
    return settling(f"minors, {said(size)}", Minors(size), states)


def going_on(size: Size, states: int) -> Instance:
    """The log goes on without a node for good (node 0, as all are alike here), unless that node leads the last term."""
    model = Minors(size, symmetry=False, exposes=False)

    def goal(state: Any) -> bool:
        leads_last = state.nodes[0].leads and state.nodes[0].term == size.terms
        return leads_last or model.goes_on(state)

    return Instance(f"log without one node, {said(size)}", model, states, goal, without_node_0)


def said(size: Size) -> str:
    return (
        f"streams {size.streams}, stream batches of each {size.batches}, leaders {size.terms}, updates {size.updates}"
    )


SMALL = (
    settling("sealing, partitions 2, stream batches 2", Sealing(), 464),
    settling("sealing, rows out of order", Sealing((0, 1, 3, 4), order=(2, 1, 3, 2)), 1_924),
    settling("progress, streams 2, stream batches of each 1, logging apart", Progress(2, 1, splits_log=True), 1_550),
    minors(Size(1, 1, 2, 1), 2_591),
    going_on(Size(1, 1, 2, 1), 5_020),
    settling("membership, ticks 1, updates 0, observer 2", Membership(observer=2, updates=0), 5_773),
    settling("dropping, stream batches 1", Dropping(1), 3_019),
    settling(_size(Late(2)), Late(2), 8_097),
    not_held_back(Late(2), 8_097),
)

FULL = (
    settling("progress, streams 2, stream batches of each 2", Progress(), 90_756),
    minors(Size(2, 1, 2, 1), 9_930),
    minors(Size(2, 2, 2, 1), 241_678),
    minors(Size(1, 4, 2, 1), 256_863),
    minors(Size(1, 1, 3, 1), 30_325),
    minors(Size(1, 2, 2, 2), 184_910),
    going_on(Size(1, 2, 2, 1), 38_808),
    settling("membership, ticks 1, updates 1, observer 0", Membership(observer=0), 84_900),
    settling("membership, ticks 1, updates 1, observer 2", Membership(observer=2), 44_064),
    settling("dropping, stream batches 2", Dropping(2), 38_471),
    settling(_size(Late(3)), Late(3), 284_234),
    not_held_back(Late(3), 284_234),
)


def problem(instance: Instance, found: Explored[Any]) -> str | None:
    """Say what is wrong with what was found, by its story."""
    if found.story is not None:
        return str(found.story)
    if instance.goal is not None:
        ends = stuck(instance.model, found, instance.goal, instance.allowed)
        if ends:
            title = f"{len(ends)} states from which what is wanted cannot be reached; the nearest"
            return str(story_of(instance.model, found, ends[0], title))
    if found.state_count != instance.states:
        return (
            f"{found.state_count} states, expected {instance.states}: the model has changed, and decision 0017 has not"
        )
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="only the instances of `make test`")
    failed = False
    for instance in SMALL if parser.parse_args(arguments).small else SMALL + FULL:
        began = time.process_time()
        found = explore(instance.model)
        wrong = problem(instance, found)
        seconds = time.process_time() - began
        figures = f"{found.state_count} states, {found.step_count} steps, depth {found.depth}, {seconds:.1f} s of CPU"
        print(f"{instance.name}: {figures}", flush=True)
        if wrong is not None:
            print(wrong)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

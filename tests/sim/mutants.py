"""Wrong variants of the protocol, each a line away from the right one: the checkers must catch every one of them.

A mutant is a replacement in one module's text. The modules are loaded anew from the changed text, and the simulator's
own as well, since they name the protocol's types; nothing of this process changes for good.
`python -m tests.sim.mutants NAME --seeds N` runs one.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PROTOCOL = Path(__file__).resolve().parents[2] / "wukongs" / "protocol"
LOADED_ANEW = ("wukongs.protocol", "tests.sim.")


@dataclass(frozen=True)
class Mutant:
    """module: in wukongs/protocol. old occurs in its text once. first: the seed from which on to look.
    simulator: of tests/sim."""

    name: str
    module: str
    old: str
    new: str
    first: int = 0
    simulator: str = "run"


MUTANTS = (
    Mutant(
        "the stable VTS is the maximum",
        "progress",
        "min(report.vts.get(stream, 0) for report in reports) for stream in control.streams",
        "max(report.vts.get(stream, 0) for report in reports) for stream in control.streams",
    ),
    Mutant(
        "the stable VTS follows the minimum down",
        "progress",
        "max(batch, progress.stable.get(stream, 0))",
        "batch",
        first=5,
    ),
    Mutant(
        "a report is used before what it requires is committed",
        "progress",
        "if latest.required <= committed:",
        "if True:",
    ),
    Mutant(
        "a leader appends behind the stable tick",
        "snapshots",
        "return max(control.last_sn.tick, tick_in(control, LIVE, vts))",
        "return control.last_sn.tick",
        first=1,
    ),
    Mutant(
        "a stream that begins holds nothing back",
        "snapshots",
        "if stream.group == group and stream.began is not None]",
        "if stream.group == group and stream.began is not None and vts.get(stream.name)]",
    ),
    Mutant(
        "a stream batch counts before it is inserted",
        "sealing",
        "return {stream: intake.inserted for stream, intake in intakes.items() if intake.inserted}",
        "return {stream: intake.sealed for stream, intake in intakes.items() if intake.sealed}",
    ),
    Mutant(
        "sealing does not wait for terms",
        "sealing",
        "return batch if is_closed and not intake.unconfirmed.get(batch) else None",
        "return batch if is_closed else None",
    ),
    Mutant(
        "sealing waits for one partition",
        "sealing",
        "is_closed = all(",
        "is_closed = any(",
        first=2,
    ),
    Mutant(
        "a gap between pieces is let through",
        "sealing",
        "if piece.first_offset != partition.offset or",
        "if",
    ),
    Mutant(
        "one replica's word is enough for a term",
        "terms",
        "if not remaining[text] and text not in refused)",
        "if text not in refused)",
    ),
    Mutant(
        "a node confirms terms before it has what the others agreed to",
        "membership",
        "return role in (Role.HOLDING, Role.IN) or (role is Role.JOINING and stay.is_installed)",
        "return role is not Role.OUT",
        first=10,
    ),
    Mutant(
        "a joining node is IN before it has caught up",
        "membership",
        "case Role.HOLDING if has_caught_up(progress, control, me.node, vts):",
        "case Role.HOLDING:",
        first=9,
    ),
    Mutant(
        "nobody waits for a HOLDING node",
        "progress",
        "waited_for = control.with_role(Role.HOLDING, Role.IN)",
        "waited_for = control.with_role(Role.IN)",
        first=10,
        simulator="stories",
    ),
    Mutant(
        "a shard without replica is forgotten",
        "progress",
        "if not all(waited_for.intersection(shard) for shard in control.shards):",
        "if not waited_for:",
        first=10,
    ),
    Mutant(
        "the last replica may go",
        "control",
        "member.role is not Role.OUT and control.is_covered_without(record.node)",
        "member.role is not Role.OUT",
        first=42,
    ),
    Mutant(
        "a lost disk's node is believed to be what it was",
        "control",
        "return member.role if member.disk == voter.disk else Role.OUT",
        "return member.role",
        first=3,
    ),
    Mutant(
        "a vote goes to any log",
        "log",
        "is_as_new = (message.last_term, message.last_index) >= (log.last_term, log.last)",
        "is_as_new = True",
        first=1,
    ),
    Mutant(
        "a minority elects and commits",
        "log",
        "return 2 * len(those & log.voters) > len(log.voters)",
        "return 2 * len(those & log.voters) >= len(log.voters) - 1",
        first=1,
        simulator="log_world",
    ),
    Mutant(
        "old terms are committed by count",
        "log",
        "if log.term_at(index) == log.term and _is_majority(log, holders):",
        "if _is_majority(log, holders):",
        first=2,
        simulator="log_stories",
    ),
    Mutant(
        "a vote is forgotten in a crash",
        "log",
        "return log, [SaveVote(log.term, sender), Send(sender.node, Vote(log.term, True))]",
        "return log, [Send(sender.node, Vote(log.term, True))]",
        first=0,
        simulator="log_stories",
    ),
    Mutant(
        "an entry is acknowledged before it is saved",
        "log",
        "return log, [*actions, Send(sender.node, Appended(log.term, True, shared))]",
        "return log, [Send(sender.node, Appended(log.term, True, shared)), *actions]",
        first=1,
        simulator="log_stories",
    ),
    Mutant(
        "what a log has held is forgotten when it is cut off",
        "log",
        "high = max(log.high, Position(entries[-1].term, after + len(entries)))",
        "high = Position(entries[-1].term, after + len(entries))",
        first=3,
        simulator="log_stories",
    ),
    Mutant(
        "voters change while the last change is not committed",
        "log",
        "return log.may_propose and not any(",
        "return log.may_propose or not any(",
        first=4,
        simulator="log_stories",
    ),
    Mutant(
        "voters change before an entry of the own term is committed",
        "log",
        "return log.may_propose and not any(",
        "return not any(",
        first=4,
        simulator="log_stories",
    ),
    Mutant(
        "a node that has lost its disk is read",
        "state",
        "return self.role is Role.IN and self.control.index >= index and has_all",
        "return self.control.index >= index and has_all",
        first=7,
        simulator="stories",
    ),
    Mutant(
        "answers of another view count",
        "terms",
        "if view != terms.view:",
        "if False:",
        first=0,
        simulator="stories",
    ),
    Mutant(
        "what was compared in another view is told",
        "node",
        "if event.view != node.control.view:",
        "if False:",
        first=1,
        simulator="stories",
    ),
    Mutant(
        "askers of another view are answered",
        "node",
        "if view != node.control.view or not membership.may_agree(node.control, node.stay, node.me):",
        "if not membership.may_agree(node.control, node.stay, node.me):",
        first=1,
        simulator="stories",
    ),
    Mutant(
        "a report's disk is not looked at",
        "progress",
        "return report.incarnation.disk == control.members[report.incarnation.node].disk",
        "return True",
        first=2,
        simulator="stories",
    ),
    Mutant(
        "what an earlier life said counts",
        "node",
        "if known is not None and sender < known:",
        "if False:",
        first=3,
        simulator="stories",
    ),
    Mutant(
        "a replaced writer is let in",
        "sealing",
        "if piece.epoch < partition.epoch:",
        "if False:",
        first=4,
        simulator="stories",
    ),
    Mutant(
        "newer reports push out those that wait",
        "progress",
        "elif waiting.setdefault(node, latest).required <= committed:",
        "elif waiting.update({node: latest}) or latest.required <= committed:",
        first=6,
        simulator="stories",
    ),
    Mutant(
        "an update does not look at the one before it",
        "control",
        "and change.after in (None, control.last_update())",
        "",
        first=1,
    ),
    Mutant(
        "a repeated change is applied twice",
        "control",
        "return change.number > control.requests.get(change.client, 0) and",
        "return",
        first=1,
    ),
    Mutant(
        "another group's streams are not waited for",
        "snapshots",
        "if advance.sn <= sn and not _covers(control, advance.group, advance.tick, stable):",
        "if False:",
        first=11,
        simulator="stories",
    ),
)


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, with another text."""

    def __init__(self, mutant: Mutant) -> None:
        self.name = f"wukongs.protocol.{mutant.module}"
        self.path = PROTOCOL / f"{mutant.module}.py"
        text = self.path.read_text("utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.name}: {text.count(mutant.old)} places in {self.path.name}"
        self.text = text.replace(mutant.old, mutant.new)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)


@contextmanager
def loaded(mutant: Mutant) -> Iterator[Any]:
    """Give the simulator of the mutant, whose protocol it is."""
    finder = _Changed(mutant)
    aside = {name: module for name, module in sys.modules.items() if name.startswith(LOADED_ANEW) and name != __name__}
    for name in aside:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(f"tests.sim.{mutant.simulator}")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(LOADED_ANEW) and name != __name__]:
            del sys.modules[name]
        sys.modules.update(aside)


def caught_by(mutant: Mutant, seeds: range) -> tuple[int, str] | None:
    """Return the first seed that catches the mutant and what goes wrong there, None if none does."""
    with loaded(mutant) as simulator:
        found = ((seed, simulator.failure(seed)) for seed in seeds)
        return next(((seed, failure) for seed, failure in found if failure is not None), None)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description="Run wrong variants.")
    parser.add_argument("part", nargs="?", default="", help="part of the mutants' names")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--from", type=int, default=0, dest="first")
    options = parser.parse_args(arguments)
    survivors = 0
    for mutant in MUTANTS:
        if options.part in mutant.name:
            first = options.first or mutant.first
            caught = caught_by(mutant, range(first, first + options.seeds))
            survivors += caught is None
            told = "SURVIVES" if caught is None else f"seed {caught[0]}: {caught[1].splitlines()[0][:150]}"
            print(f"{mutant.name}: {told}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

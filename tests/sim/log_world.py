"""The majority log by itself, in any order of events: no clock decides which message comes when, so leaders overlap,
old entries win and lose, and nodes crash between any two actions, far more often than in the whole simulator.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from wukongs.protocol import log as raft
from wukongs.protocol.actions import SaveControl, SaveEntries, SaveVote, Send
from wukongs.protocol.control import Control, apply, genesis
from wukongs.protocol.records import BEGINNING, DropQuery, Entry, Position, Voter, Voters

STEPS = 150
NODES = 5


class LogWorld:
    """Five logs and the messages between them. Raises AssertionError with the story's end where an invariant breaks."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.first = frozenset(Voter(node, 0) for node in range(self.rng.choice((3, 5))))
        self.disks: list[dict[str, Any]] = [
            {"term": 0, "vote": None, "entries": (), "high": BEGINNING, "control": None, "voters": frozenset()}
            for _ in range(NODES)
        ]
        self.genesis = genesis(NODES, 1, 1)
        self.controls: dict[int, Control] = {0: self.genesis}
        self.logs = [self._start(node) for node in range(NODES)]
        self.messages: list[tuple[Voter, int, Any]] = []
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, Entry] = {}
        self.story: list[str] = []
        self.count = 0
        self.changes_voters = self.rng.random() < 0.4
        self.cut_share = self.rng.choice((0, 0.02, 0.2))

    def run(self) -> None:
        """Let things happen; then, in one of eight runs, nothing but what is right, until all logs are the same."""
        weights = [self.rng.choice((8, 16)), self.rng.choice((2, 6)), self.rng.choice((1, 4)), self.rng.choice((1, 4))]
        eager = self.rng.random()
        for _ in range(STEPS):
            self.rng.choices((self._deliver, self._pulse, self._propose, self._crash), weights)[0](eager)
            if self.rng.random() < self.cut_share:
                self._cut()
            self._check()
        if self.seed % 8 == 0:
            self._agree()

    def _start(self, node: int) -> raft.Log:
        return raft.open_log(Voter(node, 0), NODES, self.first, **self.disks[node], entries_max=1)

    def _carry_out(self, node: int, log: raft.Log, actions: list[Any], crashes: bool) -> None:
        cut = self.rng.randint(0, len(actions)) if crashes and self.rng.random() < 0.15 else None
        for action in actions[:cut]:
            match action:
                case Send(node=target, body=body):
                    self.messages.append((Voter(node, 0), target, body))
                case SaveVote(term=term, vote=vote):
                    self.disks[node].update(term=term, vote=vote)
                case SaveEntries(after=after, entries=entries, high=high):
                    disk = self.disks[node]
                    base = disk["control"].index if disk["control"] else 0
                    disk.update(entries=disk["entries"][: after - base] + entries, high=high)
                case SaveControl(control=control, voters=voters, entries=entries, high=high):
                    self.disks[node].update(control=control, voters=voters, entries=entries, high=high)
        log = replace(log, applied=self._applied(log))
        self.logs[node] = log if cut is None else self._start(node)
        if cut is not None:
            self.story.append(f"{node} crashes after {cut} of {len(actions)} actions")

    def _applied(self, log: raft.Log) -> Control:
        """Return the control state of all that is committed."""
        control = log.applied or self.genesis
        for entry in log.up_to(log.commit)[control.index - log.base :]:
            control = apply(control, entry)
            known = self.controls.setdefault(control.index, control)
            assert known == control, self._told(f"{log.me} has another control state at {control.index}")
        return control

    def _cut(self) -> None:
        """Let a node cut off what it has committed, some of it or all, and maybe crash at it."""
        node = self.rng.randrange(NODES)
        log = self.logs[node]
        control = self.controls[self.rng.randint(log.base, log.commit)]
        self.story.append(f"{node} cuts off what is up to {control.index}")
        self._carry_out(node, *raft.cut(log, control), crashes=True)

    def _deliver(self, eager: float) -> None:
        if not self.messages:
            return
        rng = self.rng
        place = (
            rng.randrange(len(self.messages)) if rng.random() < 0.5 else max(0, len(self.messages) - rng.randint(1, 4))
        )
        sender, target, body = self.messages[place]
        if rng.random() < 0.9:
            del self.messages[place]
        if rng.random() < eager * 0.5:
            return
        self.story.append(f"{sender.node} -> {target}: {body}")
        self._carry_out(target, *raft.receive(self.logs[target], sender, body), crashes=True)

    def _pulse(self, _: float) -> None:
        node = self.rng.randrange(NODES)
        self.story.append(f"{node} waits")
        for _ in range(self.rng.choice((1, 12))):
            self._carry_out(node, *raft.pulse(self.logs[node], self.rng.getrandbits(16)), crashes=True)

    def _propose(self, _: float) -> None:
        leaders = [node for node, log in enumerate(self.logs) if log.standing is raft.LogRole.LEADER]
        if not leaders:
            return
        node = self.rng.choice(leaders)
        log = self.logs[node]
        self.count += 1
        record: Any = DropQuery(f"q{self.count}")
        if self.changes_voters and self.rng.random() < 0.5 and raft.may_change_voters(log):
            other = Voter(self.rng.randrange(NODES), 0)
            voters = log.voters ^ {other}
            record = Voters(voters) if len(voters) >= 2 else record
        self.story.append(f"{node} proposes {record}")
        self._carry_out(node, *raft.propose(log, record), crashes=True)

    def _crash(self, _: float) -> None:
        node = self.rng.randrange(NODES)
        self.story.append(f"{node} crashes")
        self.logs[node] = self._start(node)

    def _check(self) -> None:
        for node, log in enumerate(self.logs):
            if log.standing is raft.LogRole.LEADER:
                assert self.leaders.setdefault(log.term, node) == node, self._told(f"two leaders in term {log.term}")
            for index in range(log.base + 1, log.commit + 1):
                entry = log.at(index)
                told = self.committed.setdefault(index, entry)
                assert told == entry, self._told(f"{node} has committed {entry} at {index}, another one {told}")
            ends = Position(log.last_term, log.last)
            assert log.high >= ends, self._told(f"{node} has held more than it knows: {log.high}, {ends}")

    def _agree(self) -> None:
        """Let nothing go wrong any more."""
        for _ in range(400):
            for node in range(NODES):
                self._carry_out(node, *raft.pulse(self.logs[node], self.rng.getrandbits(16)), crashes=False)
            pending, self.messages = self.messages[-200:], []
            for sender, target, body in pending:
                self._carry_out(target, *raft.receive(self.logs[target], sender, body), crashes=False)
            self._check()
            if len({(log.commit, log.last, self._applied(log).position) for log in self.logs}) == 1 and all(
                log.commit == log.last for log in self.logs
            ):
                return
        raise AssertionError(self._told("no agreement"))

    def _told(self, reason: str) -> str:
        return "\n".join([reason, *self.story[-40:]])


def failure(seed: int) -> str | None:
    """Run a seed; return what went wrong, if anything."""
    try:
        LogWorld(seed).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None

"""Rules come and go while a simulated cluster runs, and its leaders follow streams: what is stored, and what follows,
is none of the protocol's business, so most records of theirs have nothing in them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.sim.agenda import Agenda
from tests.sim.data import payload_of
from tests.sim.machine import Machine
from wukongs.protocol.events import Submitted
from wukongs.protocol.followed import to_follow
from wukongs.protocol.log import LogRole
from wukongs.protocol.records import NO_RULES, Change, Role

FOLLOWING = 3.0
ASKING = 15.0


class Ruled:
    """left: how often rules are still to come or go. At the end there are none."""

    def __init__(
        self, hosts: Sequence[Machine], entries: Any, agenda: Agenda, rng: random.Random, until: float
    ) -> None:
        self._hosts, self._entries, self._agenda, self._rng = hosts, entries, agenda, rng
        self._number = 0
        times = sorted(rng.uniform(5, until) for _ in range(rng.choice((1, 1, 3))))
        times.append(until + rng.uniform(0, 100))
        self.left = len(times)
        for number, time in enumerate(times):
            rules = "" if number % 2 else NO_RULES
            agenda.after(time, lambda number=number, rules=rules: self._ask(number, rules))  # type: ignore[misc]
        agenda.after(FOLLOWING, self._follow)

    def _ask(self, number: int, rules: str) -> None:
        """Ask some node for other rules, until they are in the log."""
        change = Change(f"rules {number}", 1, "", None, 0, rules=rules)
        records = [entry.record for entry, _ in self._entries.values()]
        if any(isinstance(one, Change) and one.client == change.client for one in records):
            self.left -= 1
            return
        host = self._rng.choice(self._hosts)
        if host.is_alive:
            host.handle(Submitted(change))
        self._agenda.after(ASKING, lambda: self._ask(number, rules))

    def _follow(self) -> None:
        for host in self._hosts:
            if host.is_alive and host.node.log.standing is LogRole.LEADER and host.node.role is Role.IN:
                self._follow_at(host)
        self._agenda.after(FOLLOWING, self._follow)

    def _follow_at(self, host: Machine) -> None:
        node, rng = host.node, self._rng
        due = to_follow(node.control, node.progress.stable)
        is_waiting = any(isinstance(one, Change) and one.follows for one in node.pending)
        if not due or is_waiting or node.exposed is None:
            return
        end = min(one.stream.end_of(one.after + 1) for one in due) + rng.choice((0, 0, 0, 1, 3, 10))
        batches = {one.stream.key: (one.after, min(one.to, one.stream.batch_before(end))) for one in due}
        follows = tuple(sorted((key, batch) for key, (after, batch) in batches.items() if batch > after))
        stores = rng.random() < 0.5
        payload, read = (payload_of((), ()), node.exposed) if stores else ("", None)
        self._number += 1
        host.handle(Submitted(Change(f"leader {host.me}", self._number, payload, None, 0, read=read, follows=follows)))

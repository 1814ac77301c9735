"""The wrong variants of leases."""

from __future__ import annotations

from tests.sim.wrong_logs import Mutant

WRONG_LEASES = (
    Mutant(
        "a leader grants what a minority has answered",
        "leasing",
        "confirmed = numbers[len(numbers) // 2]",
        "confirmed = leases.number",
        simulator="lease_stories",
    ),
    Mutant(
        "a lease lasts longer for its holder than for the leader",
        "leasing",
        "asked_ms + int(lease_ms * (1 - DRIFT))",
        "asked_ms + int(lease_ms * (1 + DRIFT))",
        simulator="lease_stories",
    ),
    Mutant(
        "a lease counts from when it is heard of",
        "leasing",
        "until_ms = asked_ms + int",
        "until_ms = leases.now_ms + int",
        simulator="lease_stories",
    ),
    Mutant(
        "a node gets a lease without what was acknowledged without it",
        "leasing",
        "leases.seen[life] >= max(first, leases.floor)",
        "leases.seen[life] >= first",
        simulator="lease_stories",
    ),
    Mutant(
        "a node gets its first lease whatever it lacks",
        "leasing",
        "leases.seen[life] >= max(first, leases.floor)",
        "leases.seen[life] >= leases.floor",
        simulator="lease_stories",
    ),
    Mutant(
        "a new leader does not ask what earlier ones have granted",
        "leasing",
        "if leases.now_ms < leases.earlier_ms:",
        "if False:",
        simulator="lease_stories",
    ),
    Mutant(
        "a leader that may have been replaced is believed",
        "leasing",
        "return self.term == before.term and self.confirmed > before.number",
        "return True",
        simulator="lease_stories",
    ),
    Mutant(
        "a node is taken out while it has a lease",
        "leasing",
        "return leases.now_ms < max(leases.earlier_ms, *own, 0)",
        "return False",
        simulator="lease_stories",
    ),
    Mutant(
        "a new leader begins without a floor",
        "leasing",
        "floor=node.control.last_sn",
        "floor=THE_FIRST",
        simulator="lease_stories",
    ),
    Mutant(
        "a node that is alone has a lease whatever it shows",
        "leasing",
        " and leases.reached >= leases.floor",
        "",
        simulator="lease_stories",
    ),
    Mutant(
        "a node that thinks it is alone has a lease before it leads",
        "leasing",
        " and leases.term > 0",
        "",
        simulator="lease_stories",
    ),
    Mutant(
        "a node takes what was granted to its earlier life",
        "leasing",
        "not leases.born_ms <= asked_ms <= leases.now_ms",
        "asked_ms > leases.now_ms",
        simulator="lease_stories",
    ),
)

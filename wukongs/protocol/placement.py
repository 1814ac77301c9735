"""Placement: how a node's shards go to other nodes while the cluster runs.

    Drain(node, to) --(each of `to` joins: membership.py)--> Drained(node)

Within a stay, from JOINING to OUT, the shards of a node only become fewer. It gets shards while it is OUT, and only
with a disk that has never held any; then it joins, and takes all of them over from in-sync replicas. So what it takes
of streams and changes in a stay was divided by a placement in which it held what it holds now, or more. Hosts divide
rows by the control state of which they say the index, and take a share only between their own JOINING record and
their place in the log.

`Drained` waits until nobody is JOINING or HOLDING: the donors of such a node are those that hold its shards by its
JOINING record. Neither record begins a new view (claims.py): by the first one nobody more is asked for terms, since
nodes that are OUT are not, and the replicas that stay behind the second one were asked with the one that goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wukongs.protocol.control import Control, is_news
from wukongs.protocol.records import Drain, Drained, Role, host_of


def drained(control: Control) -> list[Drained]:
    """Return the records that a leader is to propose now."""
    records = (Drained(node, renews_view=True) for node in sorted(control.drains))
    return [record for record in records if is_news(control, record)]


def machines_of(control: Control, hosts: Sequence[str]) -> dict[int, str]:
    """Return the machine of each node, by its host. hosts: of the nodes of the beginning, in the order of numbers."""
    return dict(enumerate(hosts)) | {number: host_of(one.peers) for number, one in control.added.items()}


def best_first(control: Control, machines: Mapping[int, str], node: int, spares: Iterable[int]) -> list[int]:
    """Return spare nodes, those first on whose machine no other replica is of the shards of the node that they may take
    the place of."""
    others = {other for nodes in control.replica_sets if node in nodes for other in nodes if other != node}
    taken = {machines[other] for other in others if other in machines}
    return sorted(spares, key=lambda spare: (machines.get(spare) in taken, spare))


def on_one_machine(control: Control, machines: Mapping[int, str]) -> list[tuple[int, ...]]:
    """Return the nodes of shards all replicas of which are on one machine, though there are several machines."""
    if len({machines.get(node) for node in control.nodes}) < 2:
        return []
    return sorted(
        nodes for nodes in control.replica_sets if len(nodes) > 1 and len({machines.get(node) for node in nodes}) == 1
    )


def replacements(control: Control, lost: Iterable[int], heard: Iterable[int], hosts: Sequence[str] = ()) -> list[Drain]:
    """Return the records by which spare nodes take over the shards of nodes that are lost. lost: those that are not
    heard for long; heard: those that are; hosts: as in machines_of."""
    spares = [node for node in sorted(heard) if control.is_spare(node)]
    found = []
    for node in sorted(lost):
        takers = control.drains.get(node, ())
        is_waiting = node not in control.drains or set(takers).issubset(lost)
        is_lost = control.members[node].role is Role.OUT and control.holds(node) and is_waiting
        if is_lost and spares and control.is_covered_without(node):
            spares = best_first(control, machines_of(control, hosts), node, spares)
            found.append(Drain(node, (spares.pop(0),)))
    return found

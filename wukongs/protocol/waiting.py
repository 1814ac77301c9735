"""Waiting: the records that a node asks the leader to append, and whether anybody waits for its next pulse.

A host pulses less often while nobody does, so a cluster in which nothing happens is quiet. With each of these pulses
the leader still says that it is there, and each node that it is alive.
"""

from __future__ import annotations

from msgspec import structs

from wukongs.protocol import dropping, gossip, leasing, membership, placement
from wukongs.protocol.leading import has_voters_to_change, late_joins
from wukongs.protocol.log import LogRole
from wukongs.protocol.records import BeginStream, Change, EndStream, Record, Role
from wukongs.protocol.state import Node


def is_waited_for(node: Node) -> bool:
    """Whether the next pulse brings something on: news, a record to be proposed, a question to be asked again."""
    log = node.log
    return (
        log.leader is None
        or (log.standing is LogRole.LEADER and _has_to_lead(node))
        or bool(node.pending)
        or any(claim.unasked for claim in node.claims.values())
        or (node.role is not Role.IN and not node.is_spare)
        or bool(node.control.with_role(Role.JOINING, Role.HOLDING))
        or any(stream.is_dropped for stream in node.control.live_streams)
        or gossip.has_news(
            node.talk,
            node.progress,
            node.me.node,
            len(node.control.nodes),
            node.vts,
            dropping.frozen(node.control, node.intakes),
        )
        or bool(wanted(node))
        or leasing.is_waited_for(node)
    )


def _has_to_lead(node: Node) -> bool:
    log, control = node.log, node.control
    return (
        log.last > log.commit
        or not control.life
        or has_voters_to_change(log, control)
        or bool(control.homeless)
        or bool(placement.drained(control))
        or bool(late_joins(log, control, node.progress, node.vts))
        or _has_to_take_out(node)
    )


def _has_to_take_out(node: Node) -> bool:
    """Whether a member is to be taken out at one of the next pulses, unless it is heard: writes wait for that."""
    members = node.control.with_role(Role.JOINING, Role.HOLDING, Role.IN)
    soon = node.cluster.silence_pulses_max - node.cluster.quiet_pulses
    silences = (node.watch.silence_of(member) for member in members)
    return any(soon <= pulses < soon + 3 * node.cluster.quiet_pulses for pulses in silences)


def wanted(node: Node) -> list[Record]:
    """Return the records that this node asks the leader to append."""
    found: list[Record] = wanted_of_streams(node)
    found += re_encodings(node)
    role = membership.next_role(node.control, node.progress, node.stay, node.me, node.vts, node.is_fetching)
    if role is not None and node.log.commit:
        found.append(role)
    return found + proposable(node)


def re_encodings(node: Node) -> list[Record]:
    """Return the records that this node's claims wait for."""
    return list(dict.fromkeys(one for claim in node.claims.values() for one in claim.wants(node.control)))


def wanted_of_streams(node: Node) -> list[Record]:
    """Return the records that are still missing: that a stream of which this node has rows has begun, or has ended."""
    found: list[Record] = []
    streams = node.control.streams
    for key, intake in node.intakes.items():
        stream = streams.get(key)
        if stream is None or stream.is_dropped:
            continue
        if stream.began is None:
            begun = [one.empty_to for one in intake.partitions.values() if not one.is_fresh]
            if begun:
                found.append(BeginStream(key, min(begun)))
        elif stream.last_batch is None and intake.has_ends:
            last_batch = intake.last_batch(stream.partitions)
            if last_batch is not None and last_batch == intake.inserted:
                found.append(EndStream(key, last_batch, partition_count=len(stream.partitions)))
    return found


def proposable(node: Node) -> list[Record]:
    """Return the pending records. Nodes that are not IN coordinate none: nobody would ask them for the terms that they
    know."""
    if node.role is not Role.IN:
        return []
    return [structs.replace(one, view=node.control.view) if isinstance(one, Change) else one for one in node.pending]

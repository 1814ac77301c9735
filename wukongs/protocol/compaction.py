"""Compaction: when a node cuts off the beginning of its log, and how it then serves nodes that still lack it.

The entries up to an index go when nobody needs them any more:

* *not this node's host*: their effects are in its data, where a restart finds them (events.Settled);
* *no member that is not OUT*: each has reported that it has applied them, and so has them on disk. A member must not
  miss a record: its data would lack what the record did.

A node that is OUT, or has lost its disk, may be further behind. It is sent the leader's newest control state (log.py).
The state tells it that it is OUT, or JOINING by a record that it has not seen. So nobody reads its data, and it gets
new data from nodes that have applied the log beyond that state (`Stay.index`). A node does not take a state in which it
is anything else: it would take part although its data lack the effects of the records that it skips. It answers how far
it is instead. By the rule above the leader has the entries after that, or the node has what is cut off: after a restart
it does not know how much of its log is committed. So the leader goes on behind what is cut off.

A state also forgets the data that only old SNs need (`control.forget`): those before the oldest SN at which any reader
is or may begin. Nothing before that SN is exposed here, also after a restart. This node has all stream batches of the
SNs up to there, so nobody asks any more when one of them became visible.
"""

from __future__ import annotations

from dataclasses import replace

from wukongs.protocol import log as raft
from wukongs.protocol.actions import Action
from wukongs.protocol.control import Control, forget
from wukongs.protocol.membership import Stay
from wukongs.protocol.messages import InstallControl
from wukongs.protocol.progress import Progress, held_anywhere
from wukongs.protocol.records import Role
from wukongs.protocol.snapshots import stable_sn
from wukongs.protocol.state import Node

Outcome = tuple[Node, list[Action]]


def needless(control: Control, progress: Progress) -> int:
    """Return the index up to which all members that are not OUT have applied the log."""
    indexes = [control.index]
    for node in control.with_role(Role.JOINING, Role.HOLDING, Role.IN):
        report = progress.latest.get(node)
        is_members = report is not None and report.incarnation.disk == control.member(node).disk
        indexes.append(report.committed if report is not None and is_members else 0)
    return min(indexes)


def compact(node: Node) -> Outcome:
    """Cut the log if it is long: first choose the place, then wait until nobody needs the entries before it."""
    control = node.control
    if node.to_cut is None and control.index - node.log.base >= node.cluster.log_entries_max:
        node = replace(node, to_cut=control)
    if node.to_cut is None or min(node.settled, needless(control, node.progress)) < node.to_cut.index:
        return node, []
    oldest_sn = held_anywhere(node.progress, control).oldest_sn or control.floor
    floor = min(oldest_sn, stable_sn(control, node.vts))
    log, actions = raft.cut(node.log, forget(node.to_cut, floor))
    control = forget(control, floor)
    return replace(node, log=replace(log, applied=control), control=control, to_cut=None), actions


def may_jump(node: Node, control: Control) -> bool:
    """Whether this node may go on from a control state, without the records before it."""
    role, member = control.role_of(node.me.voter), control.member(node.me.node)
    return role is Role.OUT or (role is Role.JOINING and node.control.index < member.since)


def installed(node: Node, message: InstallControl) -> Node:
    """Go on from a control state that the log has taken."""
    control = message.control
    intakes = {key: one for key, one in node.intakes.items() if control.takes_in(key)}
    return replace(
        node,
        control=control,
        intakes=intakes,
        stay=Stay(control.member(node.me.node).since, control.index),
        settled=control.index,
        to_cut=None,
    )

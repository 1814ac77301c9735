"""A node that goes through its earlier life again comes to where it was."""

from __future__ import annotations

from dataclasses import replace

from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol.messages import Append, Incarnation, Message
from wukongs.protocol.node import step
from wukongs.protocol.records import DeclareStream, Entry, Nothing, OpenPartition, Voter
from wukongs.protocol.state import Cluster, Kept, Node, boot

ME, LEADER, NEXT_LEADER = Incarnation(1, 0, 1), Incarnation(0, 0, 1), Incarnation(2, 0, 1)


def lived(events: list[ev.Event]) -> tuple[Node, list[ev.Event | int]]:
    """Return a node after some events, and what its disk has noted: what it saved and took, and commit indexes."""
    node, noted = boot(Cluster(3), ME, Kept()), list[ev.Event | int]()
    for event in events:
        if isinstance(event, ev.Marker):
            noted.append(event)
        node, actions = step(node, event)
        for action in actions:
            if isinstance(action, act.SaveVote | act.SaveEntries | act.SaveControl):
                noted.append(ev.SavedBefore(action))
            elif isinstance(action, act.Apply):
                noted.append(action.index)
    return node, noted


def resumed(noted: list[ev.Event | int]) -> Node:
    node = boot(Cluster(3), ME._replace(boot=2), Kept())
    for note in noted:
        if isinstance(note, int):
            node, note = replace(node, log=replace(node.log, commit=note)), ev.Settled(0)
        node, _ = step(node, note)
    return node


def test_what_a_record_held_back_that_was_overwritten_is_sealed_again() -> None:
    """Others have heard of it: without it this node would hold back what they show."""
    declared = Entry(1, DeclareStream("s", ("p",)), 0, Voter(0, 0))
    joining = Entry(1, OpenPartition("s", "q"), 0, Voter(0, 0))
    node, noted = lived(
        [
            ev.Received(Message(LEADER, Append(1, 0, 0, (declared,), 1))),
            ev.Received(Message(LEADER, Append(1, 1, 1, (joining,), 1))),
            ev.Marker("s", "p", 1, 3, 0),
            ev.Received(Message(NEXT_LEADER, Append(2, 1, 1, (Entry(2, Nothing()),), 1))),
        ]
    )
    assert node.intakes["s"].sealed == 3
    assert resumed(noted).intakes == node.intakes

"""Stories of source partitions that join an open stream. Each raises AssertionError."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.sim.stories import begun, hears, node_with
from tests.sim.telling import outcome
from wukongs.protocol import sealing
from wukongs.protocol.actions import SealBatch, Send, TakePiece
from wukongs.protocol.control import is_valid
from wukongs.protocol.events import Inserted, Marker, PieceOffered, Pulse
from wukongs.protocol.messages import Append, Incarnation, Propose
from wukongs.protocol.node import step
from wukongs.protocol.records import DeclareStream, EndStream, Entry, Nothing, OpenPartition
from wukongs.protocol.state import Node


def _with_another_partition() -> tuple[Node, Node]:
    """Return a node that has sealed one stream batch when it comes to hold that a partition joins, and when it applies
    that."""
    node = begun(PieceOffered("s", "a", 1, 1, 0, 1), Marker("s", "a", 1, 1, 1))
    entry = Entry(1, OpenPartition("s", "b"), 0, Incarnation(2, 0, 1).voter)
    holding = replace(node, log=replace(node.log, entries=(*node.log.entries, entry)))
    applying, _ = step(replace(holding, log=replace(holding.log, commit=holding.log.last)), Pulse(0))
    return holding, applying


def a_partition_that_joins_brings_nothing_of_what_is_sealed() -> None:
    _, node = _with_another_partition()
    node, actions = step(node, PieceOffered("s", "b", 1, 1, 0, 1, piece="rows"))
    assert (actions, node.refused) == ([], {"a refused piece": 1}), "stream batch 1 was sealed without it"
    node, actions = step(node, PieceOffered("s", "b", 1, 2, 0, 1, piece="rows"))
    assert actions == [TakePiece("s", "b", 0, "rows")]


def a_partition_that_joins_holds_the_stream_from_when_its_record_is_held() -> None:
    for node in _with_another_partition():
        node, actions = step(node, Marker("s", "a", 1, 2, 1))
        assert not any(isinstance(action, SealBatch) for action in actions), "others may have rows of it in 2"
    _, actions = step(node, Marker("s", "b", 1, 2, 0))
    assert SealBatch("s", 1, 2, {"a": 1, "b": 0}) in actions


def a_partition_whose_record_is_overwritten_holds_nothing_back() -> None:
    node, _ = _with_another_partition()
    node, _ = step(node, Marker("s", "a", 1, 2, 1))
    shared = node.log.last - 1
    overwrites = Append(2, shared, node.log.entries[shared - 1].term, (Entry(2, Nothing()),), shared)
    _, actions = hears(node, Incarnation(1, 0, 1), overwrites)
    assert SealBatch("s", 1, 2, {"a": 1}) in actions, "nothing else may come that lets it be looked at"


def what_comes_before_its_partition_has_joined_is_refused() -> None:
    node, _ = _with_another_partition()
    for event in (PieceOffered("s", "b", 1, 2, 0, 1, piece="rows"), Marker("s", "b", 1, 2, 1)):
        node, actions = step(node, event)
        assert not actions
    assert node.refused == {"a piece of a partition that is not open": 1, "a marker of a partition that is not open": 1}


def nothing_closes_of_a_stream_without_partitions() -> None:
    node = node_with([DeclareStream("s", ())])
    for _ in range(2):
        node, actions = step(node, Pulse(0))
        assert not any(isinstance(action, SealBatch) for action in actions)
    node = replace(node, intakes={"s": sealing.StreamIntake()})
    node, actions = step(node, Pulse(0))
    assert (sealing.sealable(node.intakes["s"], ()), node.intakes["s"].last_batch(())) == (None, None)


def a_stream_ends_only_with_all_that_have_joined() -> None:
    _, node = _with_another_partition()
    node = replace(node, log=replace(node.log, leader=2))
    node, _ = step(node, Inserted("s", 1))
    node, _ = step(node, Marker("s", "a", 1, 1, 1, is_last=True))
    node, _ = step(node, Marker("s", "b", 1, 1, 0, is_last=True))
    _, actions = step(node, Pulse(0))
    asked = [one.body.records for one in actions if isinstance(one, Send) and isinstance(one.body, Propose)]
    end = EndStream("s", 1, partition_count=2)
    assert asked == [(end,)]
    leader = Incarnation(2, 0, 1).voter
    assert is_valid(node.control, Entry(1, end, 0, leader))
    assert not is_valid(node.control, Entry(1, EndStream("s", 1), 0, leader)), "that was said of a alone"


STORIES = (
    a_partition_that_joins_brings_nothing_of_what_is_sealed,
    a_partition_that_joins_holds_the_stream_from_when_its_record_is_held,
    a_partition_whose_record_is_overwritten_holds_nothing_back,
    what_comes_before_its_partition_has_joined_is_refused,
    nothing_closes_of_a_stream_without_partitions,
    a_stream_ends_only_with_all_that_have_joined,
)

failure = partial(outcome, STORIES)

"""A node's intake of streams: the pieces and markers that it takes, and its sealing (sealing.py has the rules)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wukongs.protocol import sealing
from wukongs.protocol.actions import Action, SealBatch, TakePiece
from wukongs.protocol.dropping import takes_in
from wukongs.protocol.events import Marker, PieceOffered
from wukongs.protocol.records import DropStream, OpenPartition
from wukongs.protocol.sealing import StreamIntake, Verdict
from wukongs.protocol.state import Node

Outcome = tuple[Node, list[Action]]


def offer_piece(node: Node, offered: PieceOffered) -> Outcome:
    if refusal := _refusal(node, offered):
        return node.counting(f"a piece of {refusal}"), []
    if offered.view not in (None, node.control.view):
        return node.counting("a piece of another view"), []
    intake, verdict = sealing.add_piece(node.intakes.get(offered.stream, StreamIntake()), offered)
    if verdict is not Verdict.TAKEN:
        return node.counting(f"a {verdict.value} piece"), []
    node = replace(node, intakes={**node.intakes, offered.stream: intake})
    if offered.piece is None:
        return node, []
    return node, [TakePiece(offered.stream, offered.partition, offered.first_offset, offered.piece)]


def take_marker(node: Node, marker: Marker) -> Outcome:
    if refusal := _refusal(node, marker):
        return node.counting(f"a marker of {refusal}"), []
    intake, verdict = sealing.take_marker(node.intakes.get(marker.stream, StreamIntake()), marker)
    if verdict is not Verdict.TAKEN:
        return node.counting(f"a {verdict.value} marker"), []
    return replace(node, intakes={**node.intakes, marker.stream: intake}), []


def to_seal(before: Node, node: Node) -> list[str]:
    """Return the streams of which more may be whole than before a change: those that something has come of, and those
    that entries in flight held back, which were overwritten. Records that are applied only hold more back."""
    names = list[str]()
    if node.intakes is not before.intakes:
        names += [name for name, intake in node.intakes.items() if before.intakes.get(name) is not intake]
    if node.log is not before.log or node.control is not before.control:
        in_flight = (entry.record for entry in before.log.behind(before.control.index))
        names += [one.stream for one in in_flight if isinstance(one, OpenPartition | DropStream)]
    return [name for name in dict.fromkeys(names) if name in node.intakes]


def seal(node: Node, names: Iterable[str]) -> Outcome:
    """Seal what is whole of these streams."""
    actions: list[Action] = []
    intakes = dict[str, StreamIntake]()
    for name in names:
        intake = node.intakes[name]
        if not takes_in(node.control, node.log, name):
            continue  # It was dropped; or this node has just started and has to hear of its streams first.
        if (batch := sealing.sealable(intake, _waited_for(node, name))) is not None:
            actions.append(SealBatch(name, intake.sealed, batch, sealing.ends_of(intake, batch)))
            intakes[name] = replace(intake, sealed=batch)
    return replace(node, intakes={**node.intakes, **intakes}) if actions else node, actions


def _waited_for(node: Node, key: str) -> tuple[str, ...]:
    """Return the partitions that close a stream's batches, with those that join it further on in this node's log."""
    in_flight = [entry.record for entry in node.log.behind(node.control.index)]
    joining = (one.partition for one in in_flight if isinstance(one, OpenPartition) and one.stream == key)
    return (*node.control.streams[key].partitions, *joining)


def _refusal(node: Node, event: PieceOffered | Marker) -> str | None:
    """Say why nothing is taken of a partition, if so."""
    key = event.stream
    if key not in node.control.streams:
        return "an undeclared stream"
    if not takes_in(node.control, node.log, key):
        return "a dropped stream"
    return None if event.partition in node.control.streams[key].partitions else "a partition that is not open"

"""A node's claims of new terms, and its answers to those of others (claims.py says why they are needed)."""

from __future__ import annotations

from dataclasses import replace

from wukongs.protocol import claims, membership
from wukongs.protocol.actions import Action, AnswerClaim, AskClaim, CompareTerms, SettleClaim
from wukongs.protocol.claims import Claim
from wukongs.protocol.events import (
    ClaimAnswered,
    ClaimBegun,
    ClaimGivenUp,
    ClaimReceived,
    ClaimUnanswered,
    TermsCompared,
)
from wukongs.protocol.state import Node

Outcome = tuple[Node, list[Action]]


def begin(node: Node, event: ClaimBegun) -> Outcome:
    return ask(_with(node, event.claim, claims.begun(event.shards, node.control)))


def ask(node: Node) -> Outcome:
    """Ask those that are not asked at the moment."""
    if not may_agree(node):
        return node, []
    found = {number: claim for number, claim in node.claims.items() if claim.unasked}
    if not found:
        return node, []
    node = replace(node, claims={**node.claims, **{number: claims.asked(claim) for number, claim in found.items()}})
    shards = node.control.shards
    return node, [AskClaim(number, one.view, tuple(sorted(one.unasked)), shards) for number, one in found.items()]


def answered(node: Node, event: ClaimAnswered) -> Outcome:
    claim = node.claims.get(event.claim)
    if claim is None:
        return node, []
    return _with(node, event.claim, claims.answered(claim, event.nodes, event.view, event.refused)), []


def unanswered(node: Node, event: ClaimUnanswered) -> Outcome:
    claim = node.claims.get(event.claim)
    if claim is None:
        return node, []
    return _with(node, event.claim, claims.unanswered(claim, event.nodes, event.view)), []


def give_up(node: Node, event: ClaimGivenUp) -> Outcome:
    return replace(node, claims={number: claim for number, claim in node.claims.items() if number != event.claim}), []


def received(node: Node, event: ClaimReceived) -> Outcome:
    if event.view != node.control.view or not may_agree(node):
        return node, [AnswerClaim(event.question, None)]
    return node, [CompareTerms(event.question, event.view)]


def compared(node: Node, event: TermsCompared) -> Outcome:
    """Answer the asker, unless there is a new view by now: under it a joining node may have asked this node for its
    terms before these were among them."""
    view = event.view if event.view == node.control.view else None
    return node, [AnswerClaim(event.question, view)]


def conclude(before: Node, node: Node) -> Outcome:
    """Settle the claims that are answered, and begin all anew where members have changed."""
    if not node.claims or (node.claims is before.claims and node.control is before.control):
        return node, []
    control = node.control
    if any(claim.view != control.view for claim in node.claims.values()):
        anew = {number: claims.begun(claim.shards, control) for number, claim in node.claims.items()}
        return replace(node, claims=anew), []
    settled = [number for number, claim in node.claims.items() if claims.is_settled(claim, control)]
    if not settled:
        return node, []
    left = {number: claim for number, claim in node.claims.items() if number not in settled}
    return replace(node, claims=left), [SettleClaim(number, control.view) for number in settled]


def may_agree(node: Node) -> bool:
    return membership.may_agree(node.control, node.stay, node.me)


def _with(node: Node, number: int, claim: Claim) -> Node:
    return replace(node, claims={**node.claims, number: claim})

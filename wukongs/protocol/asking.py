"""A node's questions about new terms, and the answers (terms.py has what they are good for)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wukongs.protocol import membership, sealing, terms
from wukongs.protocol.actions import Action, CompareTerms, Confirm, Send
from wukongs.protocol.events import TermsCompared
from wukongs.protocol.messages import ClaimTerms, Term, TermsClaimed
from wukongs.protocol.state import Node

Outcome = tuple[Node, list[Action]]


def not_re_encoded(node: Node, unknown: frozenset[Term]) -> frozenset[Term]:
    """Return the terms that need confirmation: the log may have re-encoded one since the host looked."""
    return frozenset(term for term in unknown if term.text not in node.control.exceptions)


def ask(node: Node, unknown: Iterable[Term]) -> Outcome:
    found = terms.ask(node.terms, unknown, node.control)
    if found is node.terms:
        return node, []
    node = replace(node, terms=found)
    return node, claims(node) if membership.may_agree(node.control, node.stay, node.me) else []


def compared(node: Node, event: TermsCompared) -> Outcome:
    """Answer the asker; unless there is a new view by now, under which somebody may have come to join and asked this
    node for its terms before these were among them."""
    if event.view != node.control.view:
        return node, []
    if event.asker == node.me.node:
        return answered(node, event.asker, event.view, event.equal, event.clashing)
    return node, [Send(event.asker, TermsClaimed(event.view, event.equal, event.clashing))]


def answered(node: Node, replica: int, view: int, equal: frozenset[str], clashing: frozenset[str]) -> Outcome:
    found, confirmed = terms.answered(node.terms, replica, view, equal, clashing)
    node = settled(replace(node, terms=found), confirmed)
    return node, [Confirm(confirmed)] if confirmed else []


def settled(node: Node, texts: frozenset[str]) -> Node:
    """Let nobody wait for these texts any more."""
    if not texts:
        return node
    intakes = {stream: sealing.settle_terms(intake, texts) for stream, intake in node.intakes.items()}
    pending = {record: waiting - texts for record, waiting in node.pending.items()}
    return replace(node, terms=terms.settled(node.terms, texts), intakes=intakes, pending=pending)


def claims(node: Node) -> list[Action]:
    asked = terms.requests(node.terms)
    view = node.control.view
    return [
        CompareTerms(other, view, texts) if other == node.me.node else Send(other, ClaimTerms(view, texts))
        for other, texts in asked.items()
    ]

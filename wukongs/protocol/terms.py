"""New terms: how a node learns that a text may stand under its hash, although hashes clash.

A text is confirmed when every replica of its hash's shard (JOINING, HOLDING or IN) has it under that hash, on disk:
the first text that a replica sees under a hash stays there. A refused text is re-encoded by a record of the log, and
never uses its hash. So under one hash there is one text in the whole cluster: of two, each replica refuses at least
one, and that one gets no confirmation.

Replicas come and go, and agreements outlive them:

* *A view* is the index of the last membership record. A replica answers only askers of its own view, an asker takes
  only answers of its own, and the record that re-encodes a text is void in another one. So all have asked the same
  replicas: a text is not refused by one set and confirmed by the next.
* *Who joins* takes over what the in-sync replicas have under its shards' hashes, and what all nodes know as confirmed,
  from nodes that know its joining, and answers no asker before that (membership.py). What they agreed to earlier is
  among it; later askers ask the joining one as well. That is why a shard may lose its only replica's disk: what is in
  use is known to those who use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from wukongs.protocol.control import Control
from wukongs.protocol.messages import Term

TEXTS_PER_REQUEST_MAX = 4096


@dataclass(frozen=True, slots=True)
class Terms:
    """shards: the texts that wait, with the shard of their hash. remaining: the replicas that have not agreed yet.
    refused: texts that some replica refused, in this view."""

    view: int = 0
    shards: Mapping[str, int] = field(default_factory=dict)
    remaining: Mapping[str, frozenset[int]] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()


def ask(terms: Terms, new: Iterable[Term], control: Control) -> Terms:
    """Let texts wait for confirmation."""
    added = {term.text: term.shard for term in new if term.text not in terms.shards}
    if not added:
        return terms
    remaining = {text: control.claimers(shard) for text, shard in added.items()}
    return replace(terms, shards={**terms.shards, **added}, remaining={**terms.remaining, **remaining})


def view_changed(terms: Terms, control: Control) -> Terms:
    """Ask everybody again: there are other replicas now."""
    remaining = {text: control.claimers(shard) for text, shard in terms.shards.items()}
    return replace(terms, view=control.view, remaining=remaining, refused=frozenset())


def answered(
    terms: Terms, node: int, view: int, equal: frozenset[str], clashing: frozenset[str]
) -> tuple[Terms, frozenset[str]]:
    """Take in a replica's answer; return what is confirmed by it."""
    if view != terms.view:
        return terms, frozenset()
    remaining = dict(terms.remaining)
    for text in equal & remaining.keys():
        remaining[text] -= {node}
    refused = terms.refused | (clashing & remaining.keys())
    confirmed = frozenset(text for text in equal & remaining.keys() if not remaining[text] and text not in refused)
    return settled(replace(terms, remaining=remaining, refused=refused), confirmed), confirmed


def settled(terms: Terms, texts: frozenset[str]) -> Terms:
    """Let confirmed or re-encoded texts wait no more."""
    if not texts:
        return terms
    shards = {text: shard for text, shard in terms.shards.items() if text not in texts}
    remaining = {text: nodes for text, nodes in terms.remaining.items() if text not in texts}
    return replace(terms, shards=shards, remaining=remaining, refused=terms.refused - texts)


def requests(terms: Terms) -> dict[int, frozenset[str]]:
    """Return what each replica is to be asked (again)."""
    found: dict[int, set[str]] = {}
    for text, nodes in terms.remaining.items():
        for node in nodes:
            texts = found.setdefault(node, set())
            if len(texts) < TEXTS_PER_REQUEST_MAX:
                texts.add(text)
    return {node: frozenset(texts) for node, texts in sorted(found.items())}

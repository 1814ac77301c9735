"""Claims: how a node learns that new texts may stand under their hashes, although hashes clash.

A text is agreed on when every replica of its hash's shard (JOINING, HOLDING or IN) has it under that hash, for good:
the first text that a replica sees under a hash stays there. A refused text is re-encoded by a record of the log, and
never uses its hash. So one hash stands for one text in the whole cluster: each replica refuses at least one of two
texts, and a refused text is not agreed on.

A claim is a number, for a table of as many texts as the host likes. The host has the table; the state here says which
nodes still have to answer, and which texts were refused. The host takes rows with new terms only once their claim is
settled, and names the view under which it was (`events.Piece.view`).

Replicas come and go, and agreements outlive them:

* *A view* is the index of the last record by which other nodes are to agree: of membership, or that a node gives up its
  shards. A replica answers only askers of its own view, and checks this before and after it has compared. An asker
  counts only answers of its own view, and begins anew when there is another one. A record that re-encodes a text is
  void in another view, and a piece is taken only in the view of its claim. So all have asked the same replicas: a text
  is not refused by one set and agreed on by the next.
* *A node that joins* takes over two sets of texts, from nodes that know its joining: those that the in-sync replicas
  have under its shards' hashes, and those that all nodes know as agreed on. It answers no asker before that
  (membership.py). All earlier agreements of these nodes are in the two sets; later askers ask the joining node as well.
  So a shard may lose its only replica's disk: a text in use is known to the nodes that use it. A node that others do
  not ask for its texts claims nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wukongs.protocol.control import Control
from wukongs.protocol.records import ReEncode


@dataclass(frozen=True, slots=True)
class Claim:
    """shards: those of its terms. remaining: the nodes that have not answered yet; unasked: those
    of them that the host does not ask at the moment; refused: texts that some node has refused. All in this view."""

    shards: frozenset[int]
    view: int
    remaining: frozenset[int]
    unasked: frozenset[int]
    refused: frozenset[str] = frozenset()

    def wants(self, control: Control) -> Iterable[ReEncode]:
        """Return the records that this claim waits for."""
        return (ReEncode(text, self.view) for text in sorted(self.refused - control.exceptions.keys()))


def begun(shards: frozenset[int], control: Control) -> Claim:
    """Return a claim that nobody has answered. shards: those of its terms."""
    nodes = control.claimers({control.shards[shard] for shard in shards})
    return Claim(shards, control.view, nodes, nodes)


def asked(claim: Claim) -> Claim:
    return replace(claim, unasked=frozenset())


def answered(claim: Claim, nodes: frozenset[int], view: int, refused: frozenset[str]) -> Claim:
    """Take in the answers of some nodes, and which texts they refuse."""
    if view != claim.view:
        return claim
    left, unasked = claim.remaining - nodes, claim.unasked - nodes
    return replace(claim, remaining=left, unasked=unasked, refused=claim.refused | refused)


def unanswered(claim: Claim, nodes: frozenset[int], view: int) -> Claim:
    """Note that some nodes have not answered: they are to be asked again."""
    if view != claim.view:
        return claim
    return replace(claim, unasked=claim.unasked | (nodes & claim.remaining))


def is_settled(claim: Claim, control: Control) -> bool:
    """Whether all texts are agreed on, or re-encoded."""
    return not claim.remaining and claim.refused <= control.exceptions.keys()

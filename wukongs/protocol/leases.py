"""Leases: which nodes may answer one-shot reads, and from when on a write need not wait for a node that is silent.

A read at a node with a lease misses no acknowledged write: a write is acknowledged once each holder of a lease has
exposed its SN, or its lease has run out. A lease is a time on the holder's own clock; clocks are never compared.

* *Request.* A node answers each Append of the leader with a request: the time on its own clock, and the newest SN that
  reads see there.
* *Grant.* The leader counts rounds; each pulse begins one, and each Append names the newest. A round is confirmed once
  a majority of the voters has answered it. Then the leader grants the requests that it had received before the round
  began, and its Appends repeat the time of the granted request. The lease ends lease_ms after that time.
* *Margin.* The holder counts DRIFT of lease_ms less than leader and voters do.

Why a lease holds:

* A request is made before it arrives at the leader. So a lease that is granted to it has run out lease_ms after that,
  by the leader's clock (`runs_out`).
* The leader grants nothing to a node that has not exposed the floor. The floor is the SN of each write that is to be
  acknowledged without that node (LeaseAsked). So a lease that has run out comes back only with that write.
* A leader answers such a question only after a later round was confirmed: no other leader had been elected then. A
  leader that is elected afterwards has the write in its log, and begins with a floor above it.
* A new leader does not know what earlier ones have granted. Each round that an earlier one had confirmed was answered
  by a voter that voted for the new one later. Voters remember when they answered a round, and say with their vote how
  long its leases may run (`Vote.left_ms`). Until the longest of these is over, the new leader counts each node as a
  holder.
* A voter that has started again does not remember: it says that leases may run for lease_ms from its start on.
* A node is taken out, or begins with another disk, only when its lease has run out (leasing.holds_back). A node that
  becomes IN gets its first lease once it has exposed all that was in the log at that time. So whoever writes needs to
  wait only for the nodes that are IN by the log at that time.
* A node that starts again has no lease. It gets its first one as a node that becomes IN does: what its earlier life has
  exposed counts for nothing. A node that is alone has a lease for good, but only once it leads and has exposed the
  floor. That the others were added is in its log, which it has not applied before.
* Each life counts its time from a beginning of its own (host.lease_clock): the time of a request of an earlier one,
  which the leader may still grant, is none of this one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from wukongs.protocol.control import THE_FIRST
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import Position, Sn, Voter

DRIFT = 0.02
"""The share of a lease that its holder leaves unused. Two clocks that are slewed by 500 ppm each, the most that NTP
does, differ by 0.1 %: this is 20 times as much, for clocks of virtual machines, and covers the rounding to
milliseconds."""


class Asked(NamedTuple):
    """The newest request of a node. at_ms: its time on the clock of that node; heard_ms: its arrival, by the leader's
    clock."""

    at_ms: int
    heard_ms: int


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a leader. asked: the newest request of each node that had arrived when it began."""

    number: int
    asked: Mapping[Incarnation, Asked]


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases that one node holds, has confirmed as a voter, and has granted as a leader. Times are milliseconds of
    this node's own clock, but for `Asked.at_ms` and `granted`.

    now_ms: the time of the last event; born_ms: the start of this life; reached: the newest SN that reads see here.
    until_ms: the end of this node's own lease.
    promised_ms: leases whose rounds this voter has answered have run out by then.
    earlier_ms: leases of earlier leaders have run out by then, as the voters of this one have said.

    term: that in which this node leads, 0 if it does not; the following fields are of this term.
    floor: nodes that have not exposed this SN are granted nothing.
    number, confirmed: the newest round, and the newest that a majority has answered; rounds: those that are open;
    answered: by voter, the newest round that it has answered; question: a round after this one is waited for.
    asked: by node, its newest request; seen: what reads see there; first: the floor of its first lease, by the position
    of the record that made it IN.
    granted: by node, its newest granted request; runs_out: when its lease has run out; leaving_ms: when a record last
    had to wait for that."""

    now_ms: int = 0
    born_ms: int = 0
    reached: Sn = THE_FIRST
    until_ms: int = 0
    promised_ms: int = 0
    earlier_ms: int = 0
    term: int = 0
    floor: Sn = THE_FIRST
    number: int = 0
    confirmed: int = 0
    rounds: tuple[Round, ...] = ()
    answered: Mapping[Voter, int] = field(default_factory=dict)
    question: int = -1
    asked: Mapping[Incarnation, Asked] = field(default_factory=dict)
    seen: Mapping[Incarnation, Sn] = field(default_factory=dict)
    first: Mapping[tuple[Incarnation, Position], Sn] = field(default_factory=dict)
    granted: Mapping[Incarnation, int] = field(default_factory=dict)
    runs_out: Mapping[Incarnation, int] = field(default_factory=dict)
    leaving_ms: Mapping[int, int] = field(default_factory=dict)

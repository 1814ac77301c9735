"""Things that the experiments of a run share: where figures go, which engines take part, how often, how busy it is."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from wukongs.bench.idle import IDLE_SHARE, OthersShare, wait_until_idle
from wukongs.bench.peers import CannotSay, Kind, Peer, PeerFailed, PeerMissing, Rows, TooSlow, at_most
from wukongs.bench.peers.external import ANSWER_S
from wukongs.bench.peers.in_process import OXIGRAPH, RDFLIB, RDFLIB_LOAD_S, RDFLIB_PATIENCE_S, Oxigraph
from wukongs.bench.record import MISSING, Record, say

REFERENCE = OXIGRAPH
"""The engine that answers are compared with. It is always asked, but timed only where it is one of the peers."""
PEER_S = 20.0
"""About how long one peer is asked one question, over all repetitions."""


@dataclass(slots=True)
class Machine:
    """idle_wait_s: how long a run waits for an idle machine. If it was busy all that time, what is measured later is
    only marked, by the share that others took."""

    idle_wait_s: float
    _share: Callable[[], float] = field(default=lambda: 0.0)

    def begin(self) -> None:
        if self.idle_wait_s > 0 and not wait_until_idle(self.idle_wait_s):
            self.idle_wait_s = 0.0
        gc.collect()
        self._share = OthersShare()

    def busy(self) -> float:
        return self._share()


@dataclass(frozen=True, slots=True)
class Session:
    """case: what all figures have in common; makers: the peers asked for, by name."""

    record: Record
    case: Mapping[str, Any]
    makers: Mapping[str, Kind]
    queries: tuple[str, ...]
    """Those that were asked for; none: all."""
    repeat: int
    is_quick: bool
    machine: Machine

    def with_case(self, **case: Any) -> Session:
        """Return the same with more in its case."""
        return replace(self, case={**self.case, **case})

    def wants(self, query: str) -> bool:
        return not self.queries or query in self.queries

    def open(
        self, experiment: str, query: str, engines: tuple[str, ...], case: Mapping[str, Any], last: str | None = None
    ) -> tuple[str, ...]:
        """Return those of the engines that are not done. One that has no part in the query is written down as such.
        last: as in Record.is_done."""
        found = []
        for engine in engines:
            if self.record.is_done(experiment, query, engine, case, last):
                continue
            why = self.makers[engine].abstains(query) if engine in self.makers else ""
            if why:
                self.record.skipped(experiment, query, engine, case, why)
            else:
                found.append(engine)
        return tuple(found)

    def begin(self, text: str) -> None:
        """Tell what is measured next, wait for an idle machine, and start to weigh what others take of it."""
        say(text)
        self.machine.begin()

    def busy(self) -> float:
        """Return the share of the cores that others took since `begin`."""
        share = self.machine.busy()
        if share > IDLE_SHARE and not self.is_quick:
            say(f"  others took {share:.0%} of the machine meanwhile: marked")
        return share

    @contextmanager
    def reference(self, ntriples: bytes) -> Iterator[Peer]:
        """The engine that answers are compared with, loaded."""
        peer = Oxigraph()
        try:
            peer.load(ntriples)
            yield peer
        finally:
            peer.close()


def in_turn(names: tuple[str, ...], repetition: int) -> tuple[str, ...]:
    """Return the engines, with another one first in each repetition."""
    first = repetition % max(1, len(names))
    return names[first:] + names[:first]


@dataclass(slots=True)
class Guest:
    """A peer in one experiment: asked until it fails, is too slow or answers otherwise; then `why` says so."""

    name: str
    peer: Peer | None = None
    why: str = ""

    def begin(self, make: Callable[[], Peer], ntriples: bytes) -> None:
        """Make the peer and load triples into it. If that fails there is no peer, but a reason."""
        peer = None
        try:
            peer = make()
            with at_most(RDFLIB_LOAD_S if self.name == RDFLIB else math.inf):
                peer.load(ntriples)
            self.peer = peer
        except PeerMissing as error:
            self.why = f"{MISSING}{error}"
        except PeerFailed as error:
            self.why = f"failed: {error}"
        except TooSlow:
            self.why = "too slow: loading took longer than allowed"
        finally:
            if peer is not None and self.peer is None:
                peer.close()

    def ask(self, call: Callable[[Peer], Rows | None]) -> Rows | None:
        """Call the peer; None if it cannot answer, now or before."""
        if self.peer is None:
            return None
        try:
            with at_most(RDFLIB_PATIENCE_S if self.name == RDFLIB else math.inf):
                return call(self.peer)
        except TooSlow:
            self.why = (
                f"too slow: more than {RDFLIB_PATIENCE_S if self.name == RDFLIB else ANSWER_S:g} s for one answer"
            )
        except CannotSay as error:
            self.why = f"cannot say it: {error}"
        except PeerFailed as error:
            self.why = f"failed: {error}"
        return None


@contextmanager
def guests(session: Session, ntriples: bytes, wanted: set[str]) -> Iterator[dict[str, Guest]]:
    """The peers of an experiment with the stored triples in them. One that is missing has no peer, but a reason."""
    found: dict[str, Guest] = {}
    try:
        for name, kind in session.makers.items():
            if name in wanted:
                guest = found[name] = Guest(name)
                say(f"  {name}: loading {ntriples.count(10):,} triples")
                guest.begin(kind.make, ntriples)
                if guest.peer is not None:
                    session.record.about["versions"][name] = guest.peer.version
        yield found
    finally:
        for guest in found.values():
            if guest.peer is not None:
                guest.peer.close()

"""Turns: changes under rules come between what the leader follows of streams (stream_following.py).

A change is void if another one came first, and streams bring changes all the time. So its node asks the leader to
follow nothing meanwhile, again and again until it is done. That is a kindness and no rule: without the leader's word
the change is evaluated anew. The leader goes on once the node says so, or says nothing for HOLD_S.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from wukongs.cluster.host import Host
from wukongs.errors import DataError, WukongsError
from wukongs.wire.packets import Packet, Peers

HOLD = "hold"
HOLD_S = 10.0
AGAIN_S = 3.0
ASK_S = 5.0


class Turns:
    """The turns of one node: asks the leader, and answers as one."""

    def __init__(self, host: Host, peers: Peers) -> None:
        self._host, self._peers = host, peers
        self._numbers = itertools.count(1)
        self._at_work = threading.Lock()
        """Held while something is followed here."""
        self._held: dict[tuple[int, str], float] = {}
        """A node and its name for a change -> until when nothing is followed."""
        self._first: set[tuple[int, str]] | None = None
        """Those that the next step waits for; others come behind it. None: no step waits."""

    @contextmanager
    def asked(self) -> Iterator[Callable[[], None]]:
        """Yield a function that asks the leader to follow no stream meanwhile: to call before a change is evaluated."""
        name, told, is_over = f"{self._host.me.boot}.{next(self._numbers)}", set[int](), threading.Event()
        threads = list[threading.Thread]()

        def tell() -> None:
            leader = self._host.node.log.leader
            if leader is not None:
                told.add(leader)
                self._tell(leader, name, True)

        def go_on() -> None:
            while not is_over.wait(AGAIN_S):
                tell()

        def ask() -> None:
            control = self._host.node.control
            if control.rules and any(one.stores for one in control.live_streams):
                tell()
                if not threads:
                    threads.append(threading.Thread(target=go_on, name="wukongs-turn", daemon=True))
                    threads[0].start()

        try:
            yield ask
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
            for leader in told:
                self._tell(leader, name, False)

    def answer(self, packet: Packet) -> Packet:
        """Handler of HOLD."""
        node, name, waits = (packet.fields.get(field) for field in ("node", "name", "waits"))
        if type(node) is not int or not isinstance(name, str) or not isinstance(waits, bool):
            raise DataError(f"{HOLD}: expected node, name and waits, found {dict(packet.fields)!r}")
        self._hold(node, name, waits)
        return Packet(HOLD)

    @contextmanager
    def step(self) -> Iterator[bool]:
        """Give whether something may be followed here now: nobody waits for a turn, but for those that have come since
        it waits itself. So a step and changes take turns, however many changes there are."""
        with self._at_work:
            now_s = time.monotonic()
            for who, until_s in list(self._held.items()):
                if until_s <= now_s:
                    self._held.pop(who, None)
            self._first = set(self._held) if self._first is None else self._first & self._held.keys()
            is_free = not self._first
            if is_free:
                self._first = None
            yield is_free

    def _tell(self, leader: int, name: str, waits: bool) -> None:
        me = self._host.me.node
        if leader == me:
            self._hold(me, name, waits)
            return
        with suppress(WukongsError):
            self._peers.ask([(leader, Packet(HOLD, {"node": me, "name": name, "waits": waits}))], ASK_S)

    def _hold(self, node: int, name: str, waits: bool) -> None:
        if not waits:
            self._held.pop((node, name), None)
            return
        self._held[node, name] = time.monotonic() + HOLD_S
        if self._at_work.acquire(timeout=ASK_S):  # what is under way comes first
            self._at_work.release()

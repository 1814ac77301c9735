"""Clients of a cluster that note what they call and what comes of it: registers, counters and sets of the stored graph,
written by updates and loads, and read at whatever node. tests/linearizability.py looks at the history.

Each client has one node, so those of a node that is cut off go on asking it.
"""

from __future__ import annotations

import io
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import wukongs
from tests.linearizability import Operation, TooLong, faults_of, write_history

EX = "http://ex/"
KEPT_IN = Path(__file__).resolve().parents[2] / "build" / "histories"
TURN_S = 4.0
"""How long the same objects are used: a search takes long where an object has many operations."""
READ_S, WRITE_S = 5.0, 20.0
ELEMENTS = 6


class History:
    """The operations of several clients of a cluster, from `begin` to `end`."""

    def __init__(self, addresses: Sequence[str], clients_per_node: int = 2, seed: int = 0) -> None:
        self.operations: list[Operation] = []
        self.is_over = threading.Event()
        self.began_s = time.monotonic()
        self._numbers = itertools.count(1)
        self._clients = [
            threading.Thread(
                target=self._run,
                args=(f"{node}.{number}", address, random.Random(f"{seed} {node} {number}")),
                daemon=True,
            )
            for node, address in enumerate(addresses)
            for number in range(clients_per_node)
        ]

    def begin(self) -> None:
        for client in self._clients:
            client.start()

    def end(self) -> None:
        self.is_over.set()
        for client in self._clients:
            client.join(3 * WRITE_S)
            assert not client.is_alive()

    def check(self, name: str) -> str:
        """Return what the history has, in words. Raises AssertionError if it is not linearizable: it is kept then."""
        try:
            wrong = faults_of(self.operations)
        except TooLong:
            self._keep(name)
            raise
        if wrong:
            path = self._keep(name)
            raise AssertionError(f"{path}: not linearizable: {', '.join(wrong)}: {next(iter(wrong.values()))}")
        known = [one for one in self.operations if one.returned_s is not None]
        keys, reads = {one.key for one in known}, sum(one.kind == "read" for one in known)
        return f"{len(keys)} objects linearizable: {reads} reads, {len(known) - reads} writes of known outcome"

    def _keep(self, name: str) -> Path:
        KEPT_IN.mkdir(parents=True, exist_ok=True)
        path = KEPT_IN / f"{name}-{os.getpid()}.jsonl"
        write_history(path, self.operations)
        return path

    def _run(self, name: str, address: str, rng: random.Random) -> None:
        while not self.is_over.is_set():
            try:
                with wukongs.connect(address, silence_s=READ_S) as client:
                    while not self.is_over.is_set():
                        self._operate(name, client, rng)
                        time.sleep(rng.uniform(0, 0.1))
            except wukongs.WukongsError:
                time.sleep(0.2)  # its node is away

    def _operate(self, name: str, client: Any, rng: random.Random) -> None:
        """Do one operation. Raises WukongsError, behind noting it."""
        key = f"{rng.choice(('register', 'counter', 'set'))}:{int((time.monotonic() - self.began_s) / TURN_S)}"
        kind, argument, call = _drawn(client, key, rng, next(self._numbers))
        called_s = time.monotonic()
        result, returned_s = None, None
        try:
            result = call()
            returned_s = time.monotonic()
        finally:
            self.operations.append(Operation(name, key, kind, argument, result, called_s, returned_s))


def _drawn(client: Any, key: str, rng: random.Random, number: int) -> tuple[str, Any, Callable[[], Any]]:
    """Return the kind and argument of an operation, and what does it."""
    subject, what = f"<{EX}{key}>", key.partition(":")[0]
    value = f"{subject} <{EX}value> ?old"

    def rows() -> list[int]:
        found = client.query(f"SELECT ?old {{ {value} }}", timeout_s=READ_S)
        return sorted(int(row[0]) for row in found)

    def alone() -> int | None:
        found = rows()
        assert len(found) < 2, (key, found)
        return found[0] if found else None

    def update(text: str) -> Callable[[], Any]:
        return lambda: client.update(text, timeout_s=WRITE_S) and None

    if rng.random() < 0.6:
        return "read", None, {"register": alone, "counter": lambda: alone() or 0, "set": rows}[what]
    if what == "register":
        put = f"DELETE {{ {value} }} INSERT {{ {subject} <{EX}value> {number} }} WHERE {{ OPTIONAL {{ {value} }} }}"
        return "write", number, update(put)
    if what == "counter":
        added = "BIND(COALESCE(?old, 0) + 1 AS ?new)"
        put = f"DELETE {{ {value} }} INSERT {{ {subject} <{EX}value> ?new }} WHERE {{ OPTIONAL {{ {value} }} {added} }}"
        return "add", 1, update(put)
    element = rng.randrange(ELEMENTS)
    triple = f"{subject} <{EX}value> {element}"
    if rng.random() < 0.3:
        return "delete", element, update(f"DELETE DATA {{ {triple} }}")
    if rng.random() < 0.3:
        document = f'{subject} <{EX}value> "{element}"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'.encode()
        return "insert", element, lambda: client.load(io.BytesIO(document), format="nt", timeout_s=WRITE_S) and None
    return "insert", element, update(f"INSERT DATA {{ {triple} }}")

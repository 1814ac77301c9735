"""The engine under measurement, embedded or a cluster's, with the nodes behind it, whose counters tell the traffic.

A cluster's nodes are processes, started as `wukongs cluster` starts them. All work goes through one client of one node;
further clients only read the counters of the other nodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wukongs
from wukongs.bench.harness import ROOT

START_S = 300.0
STOP_S = 60.0
EMBEDDED = "embedded"
_SENT = ("messages_out", "bytes_out", "told_out", "told_bytes_out")


@dataclass(frozen=True, slots=True)
class Bench:
    """engine: what is asked; nodes: all that have counters, `engine` or its node among them, first; cpu_s: seconds of
    CPU of the processes that all nodes are in, by default this one; pids: of these, where there is a /proc."""

    name: str
    engine: Any
    nodes: Sequence[Any] = ()
    cpu_s: Callable[[], float] = time.process_time
    pids: Sequence[int] = ()
    _spent: dict[str, float] = field(default_factory=lambda: {"messages_out": 0.0, "bytes_out": 0.0})
    """The traffic of reading the counters so far: nodes ask each other for the cluster's counts."""

    def counters(self) -> dict[str, float]:
        """Return what all nodes have sent so far, what the first one's reads have asked of the others, and the CPU time
        of all. A node alone is served without a network: it has sent nothing."""
        found, again = self._read(), self._read()
        without = {name: count - self._spent.get(name, 0) for name, count in found.items()}
        for name, told in (("messages_out", "told_out"), ("bytes_out", "told_bytes_out")):
            self._spent[name] += 2 * (again[name] - found[name] - (again[told] - found[told]))
        return without

    def _read(self) -> dict[str, float]:
        stats: list[Mapping[str, Any]] = [node.stats().get("this_node", {}) for node in self.nodes]
        found: dict[str, float] = {name: sum(one.get("network", {}).get(name, 0) for one in stats) for name in _SENT}
        reads = stats[0].get("reads_of_other_nodes", {}) if stats else {}
        found["requests"] = reads.get("requests", 0)
        found["rows"] = reads.get("rows_sent", 0) + reads.get("rows_received", 0)
        found["bytes"] = reads.get("bytes_sent", 0) + reads.get("bytes_received", 0)
        found["cpu_s"] = self.cpu_s()
        return found


OpenBench = Callable[[int], AbstractContextManager[Bench]]


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: now[name] - count for name, count in before.items()}


@contextmanager
def embedded() -> Iterator[Bench]:
    with wukongs.Engine() as engine:
        yield Bench(EMBEDDED, engine)


@contextmanager
def processes(node_count: int, options: Sequence[str] = ()) -> Iterator[Bench]:
    """Start a cluster of processes, and end it. options: of `wukongs cluster`.

    Raises RuntimeError (it does not start)."""
    command = [sys.executable, "-m", "wukongs", "cluster", "--nodes", str(node_count), *options]
    with ExitStack() as stack:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        stack.callback(_end, process)
        late = threading.Timer(START_S, process.terminate)
        late.start()
        assert process.stdout is not None
        addresses = [process.stdout.readline().strip() for _ in range(node_count)]
        late.cancel()
        if not all(addresses):
            raise RuntimeError(f"a cluster of {node_count} nodes did not start within {START_S:g} s")
        clients = [stack.enter_context(wukongs.connect(address, silence_s=STOP_S)) for address in addresses]
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        pids = [int(pid) for pid in listed.read_text().split()] if listed.exists() else []
        yield Bench(str(node_count), clients[0], clients, lambda: sum(map(cpu_s_of, pids)), pids)


def cpu_s_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    of_process = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(of_process[11]) + int(of_process[12])) / os.sysconf("SC_CLK_TCK")


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""The price of data folders in a cluster of two nodes that both hold everything: pushes, and how long a node that was
killed takes until it serves again.

A push is one call of a client with the tuples of one or five streams, and their progress; the same calls go by turns to
a cluster in memory and to one with folders, which both run all the time. `new terms`: each tuple has a subject that
came never before, on which the nodes have to agree first.

A restart is timed from the beginning of the process to the answer to a question that is asked at that node. `log`: no
checkpoint was made since the folder was new; `checkpoint`: as many triples, and what a node does by default. The other
node runs on. Checked: the rows.
"""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import wukongs
from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import ROOT, Report, WrongAnswer
from wukongs.bench.lsbench.data import generate_lsbench
from wukongs.bench.nodes.engines import START_S, processes
from wukongs.cli.cluster import file_of_node
from wukongs.cli.ports import free_ports
from wukongs.errors import WukongsError
from wukongs.settings import Settings

TRIPLES, QUICK_TRIPLES = 10_000_000, 20_000
TRIPLES_PER_USER = 171
"""About so many the generator gives."""
CALLS, QUICK_CALLS = 100, 4
WARM_UP = 20
BATCH_MS = 100
RESTARTS = 5
CHECKPOINT_S = 120.0
NEVER = 1 << 50
"""More bytes than any log: no checkpoint is made."""
KNOWN, NEW = "known terms", "new terms"
KINDS = ((KNOWN, 1, 20), (NEW, 1, 20), (KNOWN, 5, 20), (NEW, 5, 20), (KNOWN, 1, 1000))
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark; return the exit status: 1 for a wrong answer or a cluster that does not start."""
    found = Report("nodes-folders", {"nodes": 2, "replicas": 2, "sync": "each call"})
    try:
        with TemporaryDirectory(prefix="wukongs-bench-") as name:
            _measure_pushes(found, Path(name) / "pushed", QUICK_CALLS if quick else CALLS)
            _measure_restarts(found, Path(name), QUICK_TRIPLES if quick else TRIPLES, 1 if quick else RESTARTS)
    except (WrongAnswer, OSError, RuntimeError, WukongsError) as error:
        print(f"wukongs: bench nodes-folders: {error}", file=sys.stderr)
        return 1
    found.publish(report)
    return 0


# --- pushes -----------------------------------------------------------------------------------------------------------


def _measure_pushes(found: Report, folder: Path, calls: int) -> None:
    options = "--replicas", "2"
    with processes(2, options) as memory, processes(2, (*options, "--data-dir", str(folder))) as disk:
        clients = {"memory": memory.engine, "folders": disk.engine}
        for kind, (terms, stream_count, tuple_count) in enumerate(KINDS):
            streams = [f"urn:bench:folders:{kind}:{number}" for number in range(stream_count)]
            taken: dict[str, list[float]] = {name: [] for name in clients}
            for client in clients.values():
                for iri in streams:
                    client.stream(iri, batch_ms=BATCH_MS)
            for call in range(WARM_UP + calls):
                said = {iri: _tuples(call, tuple_count, terms == NEW) for iri in streams}
                for name, client in clients.items():
                    began = time.perf_counter()
                    client.push_many(said, (call + 1) * BATCH_MS)
                    taken[name].append(time.perf_counter() - began)
            for client in clients.values():
                client.settle(START_S)
            rows = [next(iter(client.query(COUNT)))[0].toPython() for client in clients.values()]
            found.check(f"triples in folders behind pushes of {kind}", rows[0], rows[1])
            in_memory, in_folders = (median(seconds[WARM_UP:]) * 1e3 for seconds in taken.values())
            row = {"terms": terms, "streams": stream_count, "tuples a stream": tuple_count}
            row |= {"memory ms p50": in_memory, "folders ms p50": in_folders, "ratio": in_folders / in_memory}
            found.add("A push", row)


def _tuples(call: int, count: int, is_new: bool) -> list[tuple[str, str, str, int]]:
    names = [f"{call}-{row}" if is_new else str((7 * call + row) % 500) for row in range(count)]
    ms = [call * BATCH_MS + 1 + row * BATCH_MS // count for row in range(count)]
    rows = zip(names, ms, strict=True)
    return [(f"<urn:bench:{name}>", "<urn:bench:p>", f"<urn:bench:{at % 50}>", at) for name, at in rows]


# --- restarts ---------------------------------------------------------------------------------------------------------


def _measure_restarts(found: Report, folder: Path, triple_count: int, restarts: int) -> None:
    file = folder / "stored.nt"
    people = NetworkSettings(users=max(60, triple_count // TRIPLES_PER_USER), duration_ms=1000)
    file.write_bytes(generate_lsbench(people).stored)
    for way, options in (("log", {"checkpoint_bytes": NEVER}), ("checkpoint", {})):
        with _nodes(folder / way, options) as run:
            run.start(1)
            client = run.start(0)
            client.load(file)
            _wait_for_checkpoint(client, options.get("checkpoint_bytes", Settings().checkpoint_bytes))
            rows, known = list(client.query(COUNT)), f"ASK {{ {_first_triple(file)} }}"
            client.close()
            seconds = []
            for _ in range(restarts):
                run.kill(0)
                began = time.perf_counter()
                client = run.start(0)
                is_there = bool(client.query(known))
                seconds.append(time.perf_counter() - began)
                found.check(f"a triple of a node that started again, from the {way}", True, is_there)
                found.check(f"triples of a node that started again, from the {way}", rows, list(client.query(COUNT)))
                log = _disk(client)["log_bytes"]
                client.close()
        row = {"from the": way, "triples": rows[0][0].toPython(), "log MB": log / 1e6}
        found.add("A restart", {**row, "s p50": median(seconds), "s max": max(seconds), "times": restarts})


def _first_triple(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next(lines).rstrip()


def _wait_for_checkpoint(client: Any, log_bytes_max: int) -> None:
    """Wait until a node has made the checkpoint that its log asks for, if it does."""
    until_s = time.monotonic() + CHECKPOINT_S
    while _disk(client)["log_bytes"] > log_bytes_max and time.monotonic() < until_s:
        time.sleep(0.5)


def _disk(client: Any) -> Mapping[str, Any]:
    """Return what the first node tells of its folder."""
    found: Mapping[str, Any] = client.stats()["durability"]["0"]
    return found


class _Nodes:
    """Two nodes with folders, each a process of its own, with files of their own."""

    def __init__(self, files: Sequence[Path], addresses: Sequence[str]) -> None:
        self._files, self._addresses = files, addresses
        self._running: dict[int, subprocess.Popen[str]] = {}

    def start(self, number: int) -> Any:
        """Start a node, and return a client of it once it serves; of the first one, which waits for the other, None."""
        command = [sys.executable, "-m", "wukongs", "node", "--until-stdin-ends", "--config", str(self._files[number])]
        pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = self._running[number] = subprocess.Popen(command, cwd=ROOT, **pipes)
        if len(self._running) == 1:
            return None
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"node {number} does not start: {self._files[number]}")
        return wukongs.connect(self._addresses[number])

    def kill(self, number: int) -> None:
        process = self._running[number]
        process.kill()
        process.communicate()

    def close(self) -> None:
        for number in self._running:
            self.kill(number)


@contextmanager
def _nodes(folder: Path, options: Mapping[str, int]) -> Iterator[_Nodes]:
    folder.mkdir()
    addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(4)]
    shape = Namespace(replicas=2, data_dir=folder, spares=0, silence=60.0)
    files = []
    for number in range(2):
        text = file_of_node(number, shape, list(zip(addresses[:2], addresses[2:], strict=True)), ())
        engine = [f"{name} = {value}" for name, value in options.items()]
        files.append(folder / f"node{number}.toml")
        files[-1].write_text("\n".join([text, "[engine]", *engine, ""]), encoding="utf-8")
    with ExitStack() as stack:
        nodes = _Nodes(files, addresses)
        stack.callback(nodes.close)
        yield nodes

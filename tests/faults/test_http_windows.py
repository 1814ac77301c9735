"""Windows over HTTP while nodes of a cluster are killed: subscribers go on at another node, and lack nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote

import pytest

import wukongs
from tests.faults.test_cluster_processes import NODE, Nodes
from tests.processes import child
from tests.unit.server.asking import QUERY, Client
from tests.unit.server.test_queries import Events
from wukongs.cli.ports import free_ports

S = "http://ex/s"
TEXT = f"REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{S}> [RANGE 200ms STEP 200ms] WHERE {{ ?s ?p ?o }}"
LAST_MS = 12_000


class Subscriber(threading.Thread):
    """Reads the windows of q at one of some nodes until the last one; goes on at the next when that is gone."""

    def __init__(self, clients: list[Client]) -> None:
        super().__init__(daemon=True)
        self.clients = clients
        self.windows: dict[int, list[str]] = {}
        self.repeats: list[int] = []
        self.others: list[str] = []

    def run(self) -> None:
        last: int | None = None
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and LAST_MS not in self.windows:
            try:
                headers = {} if last is None else {"Last-Event-ID": str(last)}
                for kind, id, data in Events(self.clients[0], "/queries/q/windows", **headers):
                    if kind != "window":
                        self.others.append(f"{kind} {data}")
                        continue
                    assert id is not None
                    if id in self.windows:
                        self.repeats.append(id)
                    self.windows[id] = sorted(row["s"]["value"] for row in data["results"]["bindings"])
                    last = id
                    if id == LAST_MS:
                        return
            except (OSError, HTTPException):
                pass
            self.clients = [*self.clients[1:], self.clients[0]]
            time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1], ids=["the home of the query", "the node of a subscriber"])
def test_subscribers_go_on_when_a_node_is_killed(tmp_path: Path, killed: int) -> None:
    nodes = Nodes(tmp_path, 3, "replicas = 2")
    ports = free_ports(3)
    with ExitStack() as stack:
        for number in range(3):
            file = Path(nodes.file(number))
            file.write_text(file.read_text() + f'[http]\nlisten = "127.0.0.1:{ports[number]}"\n')
            nodes.processes.append(stack.enter_context(child([*NODE, str(file)])))
        for process in nodes.processes:
            assert process.stdout is not None
            while not select.select([process.stdout], [], [], 0.2)[0]:
                assert all(one.poll() is None for one in nodes.processes)
            for line in process.stdout:
                if line.startswith("http:"):
                    break
        clients = [Client(f"http://127.0.0.1:{port}") for port in ports]
        told = json.dumps({"iri": S, "timing": True, "batch_ms": 100})
        assert clients[0].ask("POST", "/streams", body=told, content_type="application/json").status == 201
        assert clients[0].ask("POST", "/queries", body=TEXT, content_type=QUERY).status == 201
        subscribers = [Subscriber([*clients[n:], *clients[:n]]) for n in range(3)]
        for one in subscribers:
            one.start()

        def push(end_ms: int) -> None:
            row = (f"<http://ex/{end_ms}>", "<http://ex/p>", "<http://ex/o>", end_ms - 50)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    with wukongs.connect(nodes.clients[2], silence_s=10) as node:
                        stream = node.stream(S, timing=True, batch_ms=100)
                        stream.push([row])
                        stream.advance(end_ms)
                        return
                except wukongs.NodeUnavailable:
                    time.sleep(0.1)
            raise AssertionError(f"nobody takes what ends at {end_ms}")

        for end_ms in range(200, LAST_MS + 1, 200):
            push(end_ms)
            if end_ms == LAST_MS // 3:
                os.kill(nodes.processes[killed].pid, signal.SIGKILL)
        for one in subscribers:
            one.join(90)
        expected = {end_ms: [f"http://ex/{end_ms}"] for end_ms in range(200, LAST_MS + 1, 200)}
        for number, one in enumerate(subscribers):
            assert (number, one.others, one.repeats) == (number, [], [])
            assert one.windows == expected, (number, sorted(expected.keys() - one.windows.keys()))
        path = f"/streams/{quote(S, '')}"
        assert clients[2].ask("GET", path).status == 200

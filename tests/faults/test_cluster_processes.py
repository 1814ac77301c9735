"""Processes of a cluster that are killed, stopped, started anew or told something else; and strangers."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import wukongs
from tests.fuzz import first_and_rare
from tests.processes import child
from wukongs.cli.ports import free_ports
from wukongs.wire.keys import PUBLIC_FILE, SECRET_FILE, make_keys

EX = "http://ex/"
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 200ms STEP 200ms] WHERE {{ ?s <{EX}p> ?o }}"""
NODE = [sys.executable, "-m", "wukongs", "node", "--config"]
END_S = 60


class Nodes:
    """The files of a cluster, and its processes. count: of the nodes that all files name; added: of those behind them,
    which only their own files name."""

    def __init__(self, folder: Path, count: int, head: str = "", keys: Sequence[str] = (), added: int = 0) -> None:
        ports = free_ports(2 * (count + added))
        self.clients = [f"tcp://127.0.0.1:{port}" for port in ports[::2]]
        self.peers = [f"tcp://127.0.0.1:{port}" for port in ports[1::2]]
        self.processes: list[subprocess.Popen[str]] = []
        self._folder, self._keys, self.head, self._count = folder, keys, head, count

    def file(self, number: int, head: str | None = None) -> str:
        lines = [f"number = {number}", (self.head if head is None else head)]
        for at, (clients, peers) in enumerate(zip(self.clients, self.peers, strict=True)):
            if at >= self._count and at != number:
                continue
            table = "[[node]]" if at < self._count else "[added]"
            lines += [table, f'clients = "{clients}"', f'peers = "{peers}"']
            lines += [f'public_key = "{self._keys[at]}"'] if self._keys else []
        if self._keys:
            lines += ["[trust]", f'secret_key_file = "node{number}/{SECRET_FILE}"', 'allowed_nodes = "nodes"']
            lines += ['allowed_clients = "clients"', 'tokens_file = "tokens"']
        file = self._folder / f"node{number}.toml"
        file.write_text("\n".join(lines) + "\n")
        return str(file)

    def said_at_end(self, number: int) -> tuple[int, str]:
        """Return the status of a node that ends, and what it has said to standard error."""
        _, said = self.processes[number].communicate(timeout=END_S)
        return self.processes[number].returncode, said


@contextmanager
def running(
    folder: Path, count: int, head: str = "", keys: Sequence[str] = (), options: Sequence[str] = ()
) -> Iterator[Nodes]:
    nodes = Nodes(folder, count, head, keys)
    with ExitStack() as stack:
        for number in range(count):
            nodes.processes.append(stack.enter_context(child([*NODE, nodes.file(number), *options])))
        for number, process in enumerate(nodes.processes):
            assert process.stdout is not None
            while not select.select([process.stdout], [], [], 0.2)[0]:
                ended = [one.communicate()[1] for one in nodes.processes if one.poll() is not None]
                assert not ended, ended
            assert process.stdout.readline().strip() == nodes.clients[number]
            assert process.stdout.readline() == f"node {number} of {count}\n"
            assert process.stdout.readline() == f"clients: {nodes.clients[number]}\n"
            assert process.stdout.readline() == f"other nodes: {nodes.peers[number]}\n"
        yield nodes


def triples(name: str, count: int) -> io.BytesIO:
    return io.BytesIO("".join(f"<{EX}{name}{row}> <{EX}l> <{EX}o> .\n" for row in range(count)).encode())


@pytest.mark.slow
def test_a_node_that_was_paused_starts_itself_again_and_the_cluster_says_so(tmp_path: Path) -> None:
    with (
        running(tmp_path, 3, "replicas = 2", options=["--restart"]) as nodes,
        wukongs.connect(nodes.clients[0]) as client,
    ):
        client.load(triples("x", 40), format="nt")

        def wait_for(role: str) -> None:
            deadline = time.monotonic() + END_S
            while client.stats()["members"]["2"] != role:
                assert time.monotonic() < deadline, client.stats()["members"]
                time.sleep(0.05)

        assert client.stats()["taken_out"] == {}
        os.kill(nodes.processes[2].pid, signal.SIGSTOP)
        wait_for("out")
        os.kill(nodes.processes[2].pid, signal.SIGCONT)
        wait_for("in")
        assert client.stats()["taken_out"] == {"2": 1}
        assert nodes.processes[2].poll() is None
        process = nodes.processes[2]
        assert process.stdout is not None
        assert process.stdout.readline().strip() == nodes.clients[2], "it serves again"
        with wukongs.connect(nodes.clients[2]) as back:
            assert len(back.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 40
        process.terminate()
        status, said = nodes.said_at_end(2)
        assert (status, "node 2 was taken out of the cluster" in said) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("number", first_and_rare([signal.SIGKILL, signal.SIGSTOP]))
def test_clients_go_on_at_other_nodes_and_the_lost_one_comes_back(tmp_path: Path, number: int) -> None:
    with running(tmp_path, 3, "replicas = 2") as nodes, ExitStack() as stack:
        addresses = [nodes.clients[2], nodes.clients[0], nodes.clients[1]]
        client = stack.enter_context(wukongs.connect(addresses, silence_s=10))
        client.load(triples("x", 40), format="nt")
        stream = client.stream(EX + "s", batch_ms=100)
        query = client.register(QUERY)
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 1050)])
        stream.advance(2000)
        assert next(iter(query.results(timeout_s=END_S))).end_ms == 1200
        os.kill(nodes.processes[2].pid, number)

        deadline = time.monotonic() + END_S
        while True:
            try:
                assert len(client.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 40
                break
            except wukongs.NodeUnavailable:
                assert time.monotonic() < deadline
        client.load(triples("y", 20), format="nt")
        client.update(f"INSERT DATA {{ <{EX}z> <{EX}l> <{EX}o> }}")
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}c>", 9050)])
        stream.advance(10_000)
        last = next(window for window in query.results(timeout_s=END_S) if window.end_ms == 9200)
        assert [str(row[1]) for row in last] == [EX + "c"]
        assert len(client.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 61

        if number == signal.SIGSTOP:
            os.kill(nodes.processes[2].pid, signal.SIGCONT)
            status, said = nodes.said_at_end(2)
            assert status == 1
            assert "node 2 was taken out of the cluster" in said
        ran = subprocess.run([*NODE, nodes.file(2, "")], capture_output=True, text=True, timeout=END_S)
        assert ran.returncode in (1, 2)
        assert "replicas 1" in ran.stderr
        assert ran.stdout == ""
        assert len(client.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 61
        client.load(triples("w", 5), format="nt")

        for _ in range(2):  # the second time it is not the first disk that is lost
            with child([*NODE, nodes.file(2)]) as again:
                assert again.stdout is not None
                assert again.stdout.readline().strip() == nodes.clients[2]
                with wukongs.connect(nodes.clients[2]) as back:
                    assert len(back.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 66
                again.kill()
                again.communicate(timeout=END_S)
        nodes.processes[2] = stack.enter_context(child([*NODE, nodes.file(2)]))
        assert nodes.processes[2].stdout is not None
        assert nodes.processes[2].stdout.readline().strip() == nodes.clients[2]
        os.kill(nodes.processes[0].pid, signal.SIGKILL)
        with wukongs.connect(nodes.clients[2]) as back:
            deadline = time.monotonic() + END_S
            while True:
                try:
                    assert len(back.query(f"SELECT * {{ ?s <{EX}l> ?o }}", timeout_s=10)) == 66
                    assert len(back.query(f"SELECT * {{ ?s <{EX}p> ?o }}", timeout_s=10)) == 2
                    break
                except (wukongs.NodeUnavailable, wukongs.QueryTimeout):
                    assert time.monotonic() < deadline


def in_time(call: Callable[[], object]) -> None:
    """Repeat a call that a silent node keeps from being done, until that is out."""
    deadline = time.monotonic() + END_S
    while True:
        try:
            call()
            return
        except wukongs.NodeUnavailable:
            assert time.monotonic() < deadline


@pytest.mark.slow
def test_readers_miss_no_window_when_the_homes_of_their_queries_are_killed(tmp_path: Path) -> None:
    """A plain reader, one of a group, and on_result, each of a client of its own, while time goes on. The oracle is an
    embedded engine."""
    names = ["q", "g", "r"]
    texts = {name: QUERY.replace("QUERY q", f"QUERY {name}") for name in names}
    with running(tmp_path, 3, "replicas = 2") as nodes, ExitStack() as stack, wukongs.Engine() as engine:
        beginning_with_2 = [nodes.clients[2], nodes.clients[0], nodes.clients[1]]
        writer = stack.enter_context(wukongs.connect(nodes.clients[:2], silence_s=4))
        clients = {name: stack.enter_context(wukongs.connect(beginning_with_2, silence_s=20)) for name in names}
        streams = [one.stream(EX + "s", batch_ms=100) for one in (writer, engine)]
        found: dict[str, dict[int, list[str]]] = {name: {} for name in names}
        twice: list[tuple[str, int]] = []

        def note(name: str, window: wukongs.WindowResult) -> None:
            if window.end_ms in found[name]:
                twice.append((name, window.end_ms))
            found[name][window.end_ms] = sorted(str(row[1]) for row in window)

        def read(query: wukongs.RemoteQuery, group: str | None) -> None:
            for window in query.results(timeout_s=30, group=group):
                note(query.name, window)

        queries = {name: clients[name].register(texts[name]) for name in "qg"}
        clients["r"].register(texts["r"], partial(note, "r"))
        threads = [
            threading.Thread(target=read, args=(queries[name], group), daemon=True)
            for name, group in (("q", None), ("g", "readers"))
        ]
        for thread in threads:
            thread.start()
        beside = engine.register(QUERY)

        def push(seconds: float) -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                at_ms[0] += 100
                row = (f"<{EX}a>", f"<{EX}p>", f"<{EX}b{at_ms[0]}>", at_ms[0] - 50)
                for stream in streams:
                    in_time(lambda stream=stream, row=row: stream.push([row]))  # type: ignore[misc]
                    in_time(lambda stream=stream: stream.advance(at_ms[0]))  # type: ignore[misc]
                time.sleep(0.01)

        at_ms = [1000]
        push(3)
        os.kill(nodes.processes[2].pid, signal.SIGKILL)
        push(6)
        nodes.processes[2].wait(END_S)
        again = stack.enter_context(child([*NODE, nodes.file(2)]))
        assert again.stdout is not None
        assert again.stdout.readline().strip() == nodes.clients[2]
        push(2)
        home = writer.stats()["registered"]["q"][0]
        os.kill((again if home == 2 else nodes.processes[home]).pid, signal.SIGKILL)
        push(8)
        while at_ms[0] < 6000:  # a busy machine does not come as far in that time
            push(0.1)
        engine.settle()
        expected = {window.end_ms: sorted(str(row[1]) for row in window) for window in beside.results(timeout_s=0)}
        assert len(expected) > 20
        deadline = time.monotonic() + END_S
        while any(len(found[name]) < len(expected) for name in names) and time.monotonic() < deadline:
            time.sleep(0.1)
        for name in names:
            first_ms = min(found[name])
            assert first_ms <= 1600
            assert found[name] == {end_ms: rows for end_ms, rows in expected.items() if end_ms >= first_ms}
        assert not twice


@pytest.mark.slow
def test_without_replicas_a_node_that_is_started_again_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, 2) as nodes, wukongs.connect(nodes.clients[0], silence_s=20) as client:
        client.load(triples("x", 10), format="nt")
        os.kill(nodes.processes[1].pid, signal.SIGKILL)
        nodes.said_at_end(1)
        ran = subprocess.run([*NODE, nodes.file(1)], capture_output=True, text=True, timeout=END_S)
        assert ran.returncode == 1
        assert "node 1 is in the cluster already, or was and has lost what it had in memory" in ran.stderr
        assert "load again" in ran.stderr
        assert client.stats()["node"] == 0


@pytest.mark.slow
def test_a_cluster_with_keys_serves_whom_it_knows_and_goes_on_after_a_pause(tmp_path: Path) -> None:
    keys = [make_keys(tmp_path / f"node{number}") for number in range(2)]
    for name in ("alice", "mallory"):
        make_keys(tmp_path / name)
    (tmp_path / "nodes").write_text("".join(key + "\n" for key in keys))
    (tmp_path / "clients").write_text((tmp_path / "alice" / PUBLIC_FILE).read_text())
    (tmp_path / "tokens").write_text("open-sesame-open-sesame-open-sesame\n")
    with running(tmp_path, 2, keys=keys) as nodes:
        token = "open-sesame-open-sesame-open-sesame"

        def connect(number: int, who: str, shown: str | None, silence_s: float = 2) -> wukongs.RemoteEngine:
            own = tmp_path / who / SECRET_FILE, tmp_path / f"node{number}" / PUBLIC_FILE
            return wukongs.connect(nodes.clients[number], token=shown, keys=own, silence_s=silence_s)

        with connect(0, "alice", token, 20) as first, connect(1, "alice", token, 20) as second:
            first.load(triples("x", 40), format="nt")
            second.update(f"INSERT DATA {{ <{EX}z> <{EX}l> <{EX}o> }}")
            os.kill(nodes.processes[1].pid, signal.SIGSTOP)
            os.waitid(os.P_PID, nodes.processes[1].pid, os.WSTOPPED)  # until then its threads may still answer
            paused_s = time.monotonic()
            with pytest.raises(wukongs.WukongsError, match=r"node 1|no outcome"):
                first.query(f"SELECT * {{ ?s <{EX}l> ?o }}", timeout_s=1)
            while time.monotonic() < paused_s + 2.5:
                assert first.stats()["node"] == 0
            os.kill(nodes.processes[1].pid, signal.SIGCONT)
            first.load(triples("y", 20), format="nt")
            assert len(first.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 61
            for who, shown in (("mallory", token), ("alice", "open-sesame-open-sesame-open-sesamf"), ("alice", None)):
                with pytest.raises(wukongs.WukongsError):
                    connect(0, who, shown)
            with pytest.raises(wukongs.NodeUnavailable):
                wukongs.connect(nodes.clients[0], silence_s=1)
            own = tmp_path / "alice" / SECRET_FILE, tmp_path / "node0" / PUBLIC_FILE
            with pytest.raises(wukongs.NodeUnavailable):  # clients' keys and tokens are not for peers' addresses
                wukongs.connect(nodes.peers[0], token=token, keys=own, silence_s=1)
            assert len(first.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 61


@pytest.mark.slow
def test_the_rest_of_a_cluster_says_which_node_has_ended() -> None:
    command = [sys.executable, "-m", "wukongs", "cluster", "--nodes", "2"]
    with child(command) as process:
        assert process.stdout is not None
        addresses = [process.stdout.readline().strip() for _ in range(2)]
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
        pids = {}
        for pid in map(int, found.stdout.split()):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            pids[next(word for word in words if word.endswith(".toml"))[-6]] = pid
        with wukongs.connect(addresses[0], silence_s=20) as client:
            os.kill(pids["1"], signal.SIGKILL)
            assert process.stderr is not None
            said = process.stderr.readline()
            assert said == "wukongs: node 1 was ended by signal 9: start it again with `wukongs cluster start 1`\n"
            with pytest.raises(wukongs.NodeUnavailable, match="node 1"):
                client.query("SELECT * { ?s ?p ?o }", timeout_s=20)
            assert client.stats()["node"] == 0
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=END_S)

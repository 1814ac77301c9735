"""`wukongs node` and `wukongs cluster`: processes that serve, and how they end."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, windows
from tests.processes import child
from tests.unit.conftest import Ran
from tests.unit.wire.conftest import wait_until
from wukongs.cli import cluster, cluster_desk, node
from wukongs.cli.ports import free_ports
from wukongs.cluster.node_config import NodeConfig, load_node_config
from wukongs.errors import NodeUnavailable, SettingsError, StorageError
from wukongs.live.pieces import Piece
from wukongs.store.encoder import encode_columns
from wukongs.wire.keys import SECRET_FILE, make_keys
from wukongs.wire.link import IngestLink

WUKONGS = [sys.executable, "-m", "wukongs"]
INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }"


def config(folder: Path, more: str = "") -> str:
    file = folder / "node.toml"
    file.write_text(f'{more}\n[[node]]\nclients = "tcp://127.0.0.1:*"\n')
    return str(file)


@contextmanager
def running(*arguments: str, lines: int = 1) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Start a command; give its process and the first lines that it prints."""
    with child([*WUKONGS, *arguments]) as process:
        assert process.stdout is not None
        yield process, [process.stdout.readline().strip() for _ in range(lines)]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 0, marks=pytest.mark.slow)]
)
def test_a_node_serves_until_it_is_told_to_stop(tmp_path: Path, number: int, status: int) -> None:
    with running("node", "--config", config(tmp_path, 'data_dir = "db"'), lines=2) as (process, (address, named)):
        assert named == f"clients: {address}"
        with wukongs.connect(address) as client:
            assert client.update(INSERT) == 1
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == status
    with wukongs.Engine(tmp_path / "db") as engine:
        assert engine.query("ASK { ?s ?p ?o }")


@pytest.mark.slow
def test_a_node_serves_http_if_its_file_says_so(tmp_path: Path) -> None:
    """Its tokens are those of other clients, and are read again with them."""
    tokens, file = tmp_path / "tokens", tmp_path / "node.toml"
    tokens.touch(0o600)
    tokens.write_text("an-old-token-of-many-letters\n")
    more = '[http]\nlisten = "127.0.0.1:0"\n[trust]\ntokens_file = "tokens"\n'
    file.write_text(f'[[node]]\nclients = "tcp://127.0.0.1:*"\n{more}')

    def status_of(address: str, token: str) -> int:
        request = Request(address + "/sparql?query=ASK%7B%7D", headers={"Authorization": f"Bearer {token}"})
        try:
            with urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    with running("node", "--config", str(file), lines=3) as (process, (_, _, told)):
        assert told.startswith("http: http://127.0.0.1:")
        address = told.removeprefix("http: ")
        assert [status_of(address, token) for token in ("an-old-token-of-many-letters", "x")] == [200, 401]
        tokens.write_text("a-new-token-of-many-letters\n")
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        process.stderr.readline()
        assert status_of(address, "an-old-token-of-many-letters") == 401
        assert status_of(address, "a-new-token-of-many-letters") == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_what_a_killed_node_has_acknowledged_is_there_when_it_is_started_again(tmp_path: Path) -> None:
    file = config(tmp_path, 'data_dir = "db"')
    with running("node", "--config", file) as (process, (address,)), wukongs.connect(address) as client:
        client.update(INSERT)
        process.kill()
        process.wait(60)
        with pytest.raises(wukongs.NodeUnavailable):
            wukongs.connect(address, silence_s=0.3)
    with running("node", "--config", file) as (_, (address,)), wukongs.connect(address) as client:
        assert client.query("ASK { ?s ?p ?o }")


@pytest.mark.slow
def test_a_node_ends_with_its_standard_input(tmp_path: Path) -> None:
    command = [*WUKONGS, "node", "--config", config(tmp_path), "--until-stdin-ends"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().startswith("tcp://127.0.0.1:")
        process.stdin.close()
        assert process.wait(60) == 0


def test_what_a_node_refuses(ran: Ran, tmp_path: Path) -> None:
    assert (
        ran("node", "--config", "nowhere.toml")[2]
        == "wukongs: nowhere.toml: no such file; give the path of a TOML file\n"
    )
    (tmp_path / "n.toml").write_text("number = 1\n")
    status, out, err = ran("node", "--config", str(tmp_path / "n.toml"))
    assert (status, out) == (2, "")
    assert err == f"wukongs: {tmp_path / 'n.toml'}, node: expected 1 to 1024 nodes, each under [[node]], found 0\n"


@contextmanager
def taken_port(first: int = 0) -> Iterator[int]:
    """Give a port that somebody listens at. first: the first one to try, else one that the system gives to anybody."""
    with socket.socket() as taken:
        for port in range(first, first + 1000):
            with suppress(OSError):
                taken.bind(("127.0.0.1", port))
                break
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[[node]]\nclients = "tcp://127.0.0.1:{}"\n', "clients of [[node]] = 'tcp://127.0.0.1:{}'"),
        (
            'listen_clients = "tcp://127.0.0.1:{}"\n[[node]]\nclients = "tcp://127.0.0.1:7411"\n',
            "listen_clients = 'tcp://127.0.0.1:{}'",
        ),
        (
            '[[node]]\nclients = "tcp://127.0.0.1:*"\n[http]\nlisten = "127.0.0.1:{}"\n',
            "listen of [http] = '127.0.0.1:{}'",
        ),
    ],
)
def test_a_port_that_is_taken_is_told_by_the_key_that_names_it(ran: Ran, tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "n.toml"
    with taken_port() as port:
        file.write_text(text.format(port))
        status, out, err = ran("node", "--config", str(file))
    assert (status, out) == (2, "")
    assert err.startswith(f"wukongs: {file}: {key.format(port)}: cannot be had (Address already in use)")


def test_a_port_of_a_cluster_that_is_taken_is_told_by_its_option(ran: Ran) -> None:
    """Nobody has typed the port itself."""
    with taken_port(20_000) as port:  # the system gives those beside it to nobody
        status, out, err = ran("cluster", "--nodes", "2", "--base-port", str(port - 3))
    assert (status, out) == (2, "")
    assert err.startswith(f"wukongs: --base-port {port - 3}: node 1 would listen to other nodes at port {port}, which")
    assert f"The nodes need ports {port - 3} to {port}: name others" in err


def test_tokens_are_read_again_at_a_hangup(tmp_path: Path) -> None:
    """New ones are let in, old ones refused; a file that will not do changes nothing."""
    old, new = "an-old-token-of-many-letters", "a-new-token-of-many-letters"
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text(old + "\n")
    file = tmp_path / "node.toml"
    file.write_text('[[node]]\nclients = "tcp://127.0.0.1:*"\n[trust]\ntokens_file = "tokens"\n')
    with running("node", "--config", str(file)) as (process, (address,)):
        assert process.stderr is not None
        with wukongs.connect(address, token=old) as client:
            assert client.update(INSERT) == 1
            tokens.write_text("short\n")
            process.send_signal(signal.SIGHUP)
            said = process.stderr.readline()
            assert said.startswith(f"wukongs: {tokens}, line 1: expected a token of at least 16 characters, found 5: ")
            assert client.query("ASK { ?s ?p ?o }")
            tokens.write_text(new + "\n")
            process.send_signal(signal.SIGHUP)
            assert process.stderr.readline() == "wukongs: keys and tokens are read again\n"
            with pytest.raises(wukongs.WukongsError):
                client.query("ASK { ?s ?p ?o }")
        with wukongs.connect(address, token=new) as client:
            assert client.query("ASK { ?s ?p ?o }")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


# --- clusters ---------------------------------------------------------------------------------------------------------


def nodes_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that a process has started."""
    command = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def is_there(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_there(pid):
        assert time.monotonic() < deadline, pid
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 0)]
)
def test_a_cluster_of_one_serves_and_ends_its_node(tmp_path: Path, number: int, status: int) -> None:
    with running("cluster", "--nodes", "1", "--data-dir", str(tmp_path / "db")) as (process, (address,)):
        with wukongs.connect(address) as client:
            client.update(INSERT)
        (node,) = nodes_of(process)
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == status
        assert not is_there(node)
    with wukongs.Engine(tmp_path / "db" / "node0") as engine:
        assert engine.query("ASK { ?s ?p ?o }")


@pytest.mark.slow
def test_a_cluster_is_backed_up_and_restored_into_another_number_of_nodes(tmp_path: Path, ran: Ran) -> None:
    """Two nodes in memory, then three with data folders, then one of its own."""
    backups = [str(tmp_path / name) for name in ("first", "second")]
    with running("cluster", "--nodes", "2", lines=2) as (_, addresses):
        with wukongs.connect(addresses[1]) as client:
            client.update(f"{INSERT}; INSERT DATA {{ GRAPH <http://ex/g> {{ _:b <http://ex/p> _:b }} }}")
            client.stream(A, batch_ms=100)
            client.register(register_text("RANGE 100ms STEP 100ms"))
            before = client.query("SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }").texts()
        assert ran("backup", "--server", addresses[0], backups[0]) == (0, "", "")
        status, _, err = ran("backup", "--server", addresses[1], backups[0])
        assert (status, err.count("expected a folder that is empty or not there")) == (1, 1)
        status, _, err = ran("restore", "--server", addresses[1], backups[0])
        assert (status, err.count("not empty, but has 2 stored triples, 1 streams, 1 queries")) == (1, 1)
    data_dir = str(tmp_path / "db")
    three = ("cluster", "--nodes", "3", "--replicas", "2", "--data-dir", data_dir, "--restore", backups[0])
    with running(*three, lines=3) as (process, addresses):
        assert ran("backup", "--server", addresses[2], backups[1]) == (0, "", "")
        with wukongs.connect(addresses[0]) as client:
            check_restored(client, before)
            client.checkpoint()
            assert sorted(client.stats()["durability"]) == ["0", "1", "2"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    with running(*three, lines=1) as (process, _):
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert "not empty" in process.stderr.read()
    with (
        running("cluster", "--nodes", "1", "--restore", backups[1]) as (_, (address,)),
        wukongs.connect(address) as client,
    ):
        check_restored(client, before)
    status, _, err = ran("cluster", "--nodes", "2", "--restore", str(tmp_path / "none"))
    assert (status, err.count("there is no data folder")) == (2, 1)


def check_restored(client: wukongs.RemoteEngine, before: list[tuple[str | None, ...]]) -> None:
    found = client.query("SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }").texts()
    assert sorted(found, key=str) == sorted(before, key=str)
    stream = client.stream(A, batch_ms=100)
    query = client.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(100)
    client.settle(timeout_s=60)
    assert windows(query) == {100: ["a"]}


@pytest.mark.slow
@contextmanager
def sending(addresses: list[str]) -> Iterator[list[tuple[str]]]:
    """Send as a pipeline does until the block ends; give the subjects, all that are safe at the end of it."""
    is_over, subjects = threading.Event(), list[tuple[str]]()
    with IngestLink(addresses, timeout_s=60) as link, ThreadPoolExecutor(1) as thread:
        first = link.open(A, "p", 1).resume_offset

        def send() -> None:
            while not is_over.is_set():
                row = first + len(subjects)
                one = (f"<{A}/sent{row:06}>",)
                encoded = encode_columns(list(one), [f"<{A}p>"], [f"<{A}o>"], np.array([100 * row + 50]), scope=b"")
                link.send(Piece(A, "p", 1, row, row + 1, 0, row + 1, encoded, np.zeros(1, np.bool_)))
                link.close_batches(A, "p", 1, row + 1, 100 * row + 100)
                subjects.append(one)

        sent = thread.submit(send)
        try:
            yield subjects
        finally:
            is_over.set()
            sent.result(90)


@pytest.mark.slow
def test_a_spare_node_takes_the_place_of_one_that_is_drained(tmp_path: Path) -> None:
    file = tmp_path / "lines.nt"
    file.write_text("".join(f"<{A}{number}> <{A}p> <{A}o> .\n" for number in range(100)))
    text = "SELECT ?s { ?s ?p ?o } ORDER BY ?s"
    with running("cluster", "--nodes", "2", "--replicas", "2", "--spares", "1", lines=2) as (process, addresses):
        with wukongs.connect(addresses[1]) as client:
            client.load(file)
            before = client.query(text).texts()
            assert len(before) == 100
            client.stream(A, batch_ms=100)
            with sending(client.listen().split(",")) as sent:
                status = subprocess.run([*WUKONGS, "cluster", "drain", "0", "--server", addresses[1]], check=False)
            assert status.returncode == 0
            client.settle(timeout_s=60)
            before = sorted([*before, *sent], key=lambda row: row[0][:-1])
            assert client.query(text).texts() == before
        assert process.stdout is not None
        spare = process.stdout.readline().strip()
        with wukongs.connect(spare) as client:
            assert client.query(text).texts() == before
        again = [*WUKONGS, "cluster", "drain", "1", "--server", spare]
        refused = subprocess.run(again, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "no spare node is heard (of none)" in refused.stderr


@pytest.mark.slow
def test_a_node_is_added_and_another_one_removed_while_the_cluster_runs(tmp_path: Path, ran: Ran) -> None:
    ports = free_ports(6)
    addresses = [(f"tcp://127.0.0.1:{ports[at]}", f"tcp://127.0.0.1:{ports[at + 1]}") for at in (0, 2, 4)]
    listed = [f'[[node]]\nclients = "{clients}"\npeers = "{peers}"\n' for clients, peers in addresses]
    for number in range(2):
        (tmp_path / f"{number}.toml").write_text(
            f'number = {number}\nreplicas = 2\ndata_dir = "{number}"\n{listed[0]}{listed[1]}'
        )
    added = listed[2].replace("[[node]]", "[added]")
    (tmp_path / "2.toml").write_text(f'number = 2\nreplicas = 2\ndata_dir = "2"\n{listed[0]}{listed[1]}{added}')
    clients = [one for one, _ in addresses]
    server, text = ("--server", clients[1]), "SELECT ?s { ?s ?p ?o } ORDER BY ?s"
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(child([*WUKONGS, "node", "--config", str(tmp_path / f"{number}.toml")]))
            for number in range(3)
        ]
        for node_process in nodes[:2]:
            assert node_process.stdout is not None
            node_process.stdout.readline()
        with wukongs.connect(clients[1]) as client:
            client.update(f"INSERT DATA {{ <{A}1> <{A}p> <{A}o>. <{A}2> <{A}p> <{A}o> }}")
            client.stream(A, batch_ms=100)
            with sending(client.listen().split(",")) as sent:
                new = ("--clients", clients[2], "--peers", addresses[2][1])
                assert ran("cluster", "add", *new, *server) == (0, "2\n", "")
                assert nodes[2].stderr is not None
                said = next(line for line in nodes[2].stderr if "is a spare one" in line)
                assert all(address in said for address in addresses[2])
                assert client.listen().split(",") == clients
                assert ran("cluster", "drain", "0", *server) == (0, "", "")
                nodes[0].send_signal(signal.SIGTERM)
                nodes[0].communicate(timeout=60)
                assert ran("cluster", "remove", "0", *server) == (0, "", "")
            client.settle(timeout_s=60)
            expected = {(f"<{A}1>",), (f"<{A}2>",), *sent}
            assert set(client.query(text).texts()) == expected
        for stopped in nodes[1:]:
            stopped.send_signal(signal.SIGTERM)
        for stopped in nodes[1:]:
            stopped.communicate(timeout=60)
        again = [
            stack.enter_context(child([*WUKONGS, "node", "--config", str(tmp_path / f"{number}.toml")]))
            for number in (1, 2)
        ]
        for started, address in zip(again, clients[1:], strict=True):
            assert started.stdout is not None
            line = started.stdout.readline().strip()
            assert line == address, started.communicate()
        with wukongs.connect(clients[2]) as client:
            assert set(client.query(text).texts()) == expected


@pytest.mark.slow
def test_clients_of_several_nodes_work_on_one_graph_and_one_stream(ran: Ran) -> None:
    with running("cluster", "--nodes", "2", lines=2) as (process, addresses):
        nodes = nodes_of(process)
        with wukongs.connect(addresses[0]) as one, wukongs.connect(addresses[1]) as two:
            one.update(INSERT)
            two.update("INSERT DATA { <http://ex/c> <http://ex/p> <http://ex/d> }")
            text = "SELECT ?s { ?s ?p ?o } ORDER BY ?s"
            assert one.query(text).texts() == two.query(text).texts() == [("<http://ex/a>",), ("<http://ex/c>",)]
            stream, same = one.stream(A, batch_ms=100), two.stream(A, batch_ms=100)
            query = two.register(register_text("RANGE 100ms STEP 100ms"))
            stream.push([at("a", 50)])
            same.push([at("b", 150)])
            stream.advance(200)
            one.settle(timeout_s=60)
            status, out, _ = ran("watch", "--server", addresses[0], "q", "--windows", "2", "--timeout", "60")
            assert (status, out.count(" ms, 1 row\n")) == (0, 2)
            assert windows(query) == {100: ["a"], 200: ["b"]}
            assert one.listen().split(",") == addresses
            assert ran("queries", "--server", addresses[0]) == (0, f"q at {addresses[1]}\n", "")
            assert ran("queries", "--server", addresses[1]) == (0, "q\n", "")
            (row,) = json.loads(ran("queries", "--server", addresses[0], "--format", "json")[1])
            assert (row["name"], row["server"], row["windows"]) == ("q", addresses[1], 2)
            assert ran("queries", "pause", "--server", addresses[0], "q") == (0, "", "")
            assert ran("queries", "close", "--server", addresses[0], "q") == (0, "", "")
            assert ran("queries", "--server", addresses[1]) == (0, "", "")
            assert ran("streams", "drop", "--server", addresses[1], A) == (0, "", "")
            assert ran("streams", "declare", "--server", addresses[1], "http://ex/t", "--batch-ms", "50") == (0, "", "")
            assert ran("streams", "--server", addresses[1]) == (0, "http://ex/t\n", "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        for node in nodes:
            wait_until_gone(node)


def test_the_nodes_of_a_cluster_that_is_killed_end() -> None:
    with running("cluster", "--nodes", "1") as (process, _):
        (node,) = nodes_of(process)
        process.kill()
        wait_until_gone(node)


def test_a_node_that_ends_is_reported() -> None:
    with running("cluster", "--nodes", "1") as (process, _):
        (node,) = nodes_of(process)
        os.kill(node, signal.SIGKILL)
        assert process.communicate(timeout=60) == ("", "wukongs: node 0 was ended by signal 9\n")
        assert process.returncode == 1


@pytest.mark.slow
def test_a_node_of_a_cluster_that_has_died_is_brought_back(tmp_path: Path, ran: Ran) -> None:
    started = ("cluster", "--nodes", "2", "--replicas", "1", "--data-dir", str(tmp_path / "db"))
    with running(*started, lines=2) as (process, addresses):
        of_this = ("--server", addresses[0])
        with wukongs.connect(addresses[0]) as client:
            client.update(INSERT)
        status, out, err = ran("cluster", "start", "1", *of_this)
        assert (status, out, err.count("wukongs: node 1 still runs, as process ")) == (1, "", 1)
        status, out, err = ran("cluster", "start", "2", *of_this)
        assert (status, out, err) == (1, "", "wukongs: node 2: the nodes of this cluster are 0 to 1\n")
        dead = next(pid for pid in nodes_of(process) if b"node1.toml" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(dead, signal.SIGKILL)
        assert process.stderr is not None
        # Nodes may also say that they wait for each other.
        told = (line for line in process.stderr if line.startswith("wukongs: node 1 "))
        said = "wukongs: node 1 was ended by signal 9: start it again with `wukongs cluster start 1`\n"
        assert next(told) == said
        assert ran("cluster", "start", "1", *of_this) == (0, f"{addresses[1]}\n", "")
        assert next(told) == f"wukongs: node 1 is back at {addresses[1]}\n"
        with wukongs.connect(addresses[1]) as client:
            assert client.query("ASK { ?s ?p ?o }")
        (tmp_path / "db" / "node1").rename(tmp_path / "away")
        (tmp_path / "db" / "node1").write_text("no folder")
        os.kill(next(pid for pid in nodes_of(process) if b"node1.toml" in Path(f"/proc/{pid}/cmdline").read_bytes()), 9)
        assert next(told) == said
        status, out, err = ran("cluster", "start", "1", *of_this)
        assert (status, out) == (1, "")
        assert re.fullmatch(r"wukongs: node 1 has ended with status \d before it served: see what it says\n", err)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        status, out, err = ran("cluster", "start", "1", *of_this)
        assert (status, out, addresses[0] in err or "no cluster of yours runs" in err) == (1, "", True)


def test_a_cluster_that_is_not_there_starts_no_node(ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    status, out, err = ran("cluster", "start", "0")
    assert (status, out) == (1, "")
    assert err.startswith("wukongs: no cluster of yours runs on this machine")
    status, out, err = ran("cluster", "start", "first")
    assert (status, "expected the number of a node, from 0 on, found 'first'" in err) == (2, True)


def test_the_desk_of_a_cluster_with_a_long_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters: one of them has to be named, by an address."""
    place = tmp_path / ("long" * 30)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    started: list[tuple[str, int]] = []

    def start_node(name: str, number: int) -> str:
        if number > 1:
            raise NodeUnavailable(f"no node {number}")
        started.append((name, number))
        return f"tcp://{name}:{number}"

    with ExitStack() as stack:
        for port, name in ((7411, "a"), (7511, "b")):
            folder = place / f"{cluster_desk.FOLDER}{os.getpid()}-{name}"
            folder.mkdir(parents=True)
            (folder / "node0.toml").write_text(f'[[node]]\nclients = "tcp://127.0.0.1:{port}"\n')
            stack.enter_context(cluster_desk.Desk(folder, partial(start_node, name)))
        with pytest.raises(NodeUnavailable, match="2 clusters run: name one with --server"):
            cluster_desk.ask_to_start(0)
        with pytest.raises(NodeUnavailable, match="no cluster on this machine has this address"):
            cluster_desk.ask_to_start(0, "tcp://127.0.0.1:7400")
        assert cluster_desk.ask_to_start(1, "tcp://127.0.0.1:7511") == "tcp://b:1"
        with pytest.raises(NodeUnavailable, match="no node 7"):
            cluster_desk.ask_to_start(7, "tcp://127.0.0.1:7411")
    assert started == [("b", 1)]


def test_a_node_tells_systemd_that_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        monkeypatch.chdir(tmp_path)
        listening.bind("notify")
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", "/proc/self/cwd/notify")
        node.tell_systemd("READY=1")
        assert listening.recv(100) == b"READY=1"
    node.tell_systemd("READY=1")  # nobody listens any more


def test_a_node_that_does_not_start_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    command = [*WUKONGS, "cluster", "--nodes", "1", "--data-dir", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"cannot open {file}" in result.stderr
    assert result.stderr.endswith("wukongs: node 0 has ended with status 1\n")


@pytest.mark.slow
def test_a_cluster_of_two_that_is_started_again_has_its_data(tmp_path: Path) -> None:
    command = ("cluster", "--nodes", "2", "--data-dir", str(tmp_path / "db"))
    text = "SELECT ?s { ?s ?p ?o } ORDER BY ?s"
    with running(*command, lines=2) as (process, addresses):
        with wukongs.connect(addresses[0]) as client:
            client.update(INSERT)
            stream = client.stream(A, batch_ms=100)
            stream.push([at("b", 50)])
            stream.advance(100)
            client.settle(timeout_s=60)
            before = client.query(text).texts()
            assert len(before) == 2
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == ("", "")
    assert sorted(path.name for path in (tmp_path / "db").iterdir()) == ["node0", "node1"]
    with running(*command, lines=2) as (_, addresses), wukongs.connect(addresses[1]) as client:
        assert client.query(text).texts() == before


def test_the_files_of_the_nodes(tmp_path: Path) -> None:
    from wukongs.cluster.node_config import load_node_config

    data_dir = str(tmp_path / 'a "b')
    options = cluster.make_parser().parse_args(
        ["--nodes", "3", "--replicas", "2", "--data-dir", data_dir, "--silence", "5"]
    )
    files = []
    make_keys(tmp_path)
    addresses = [(f"tcp://127.0.0.1:{7000 + number}", f"tcp://127.0.0.1:{7003 + number}") for number in range(3)]
    trust = [f'cluster_key_file = "{tmp_path / SECRET_FILE}"']
    for number in range(3):
        file = tmp_path / f"{number}.toml"
        file.write_text(cluster.file_of_node(number, options, addresses, trust))
        files.append(load_node_config(file))
    assert [file.number for file in files] == [0, 1, 2]
    assert {file.nodes for file in files} == {files[0].nodes}
    assert [node.clients[-4:] for node in files[0].nodes] == ["7000", "7001", "7002"]
    assert [node.peers and node.peers[-4:] for node in files[0].nodes] == ["7003", "7004", "7005"]
    assert files[2].data_dir == tmp_path / 'a "b' / "node2"
    assert (files[2].replicas, files[2].silence_s) == (2, 5.0)
    assert {file.trust.cluster_key_file for file in files} == {str(tmp_path / SECRET_FILE)}
    assert (files[0].spares, files[0].replace_s) == (0, 60.0)
    file.write_text(f"spares = 1\nreplace_s = 5\n{file.read_text()}")
    assert (load_node_config(file).spares, load_node_config(file).replace_s) == (1, 5.0)
    file.write_text(file.read_text().replace("spares = 1", "spares = 3"))
    with pytest.raises(SettingsError, match="spares: expected an integer from 0 to 2"):
        load_node_config(file)


def test_what_a_killed_cluster_has_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    left, of_another, no_pid = (
        tmp_path / f"wukongs-cluster-{pid}-abc" for pid in (str(dead.pid), str(os.getpid()), "x")
    )
    for folder in (left, of_another, no_pid):
        folder.mkdir()
        (folder / "node0.toml").write_text("")
    cluster_desk.remove_folders_of_the_dead()
    assert [folder.exists() for folder in (left, of_another, no_pid)] == [False, True, True]


def test_a_cluster_whose_terminal_is_closed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running("cluster", "--nodes", "1") as (process, _):
        (node,) = nodes_of(process)
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
        wait_until_gone(node)
    assert not list(tmp_path.glob("wukongs-cluster-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: --nodes"),
        (("--nodes", "0"), "argument --nodes: expected an integer from 1 to 64, found '0'"),
        (("--nodes", "1", "--silence", "soon"), "argument --silence: expected seconds from 1 to 3600, found 'soon'"),
        (("--nodes", "1", "--replicas", "2"), "--replicas 2: there are only 1 nodes"),
        (("--nodes", "3", "--base-port", "65533"), "--base-port 65533: 6 ports from there on are too many"),
    ],
)
def test_wrong_usage(ran: Ran, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = ran("cluster", *arguments)
    assert (status, out) == (2, "")
    assert re.search(re.escape(message), err.splitlines()[-1])


class Fake:
    """A node that fails when it is told to."""

    def __init__(self, config: NodeConfig, closing: threading.Event) -> None:
        self.address, self.listens = config.me.clients, {"clients": config.me.clients}
        self._closing = closing
        self.is_closed = False

    def on_failure(self, tell: Callable[[BaseException], object]) -> None:
        self.fail = tell

    def reload_trust(self) -> None:
        pass

    def close(self) -> None:
        self._closing.wait(20)
        self.is_closed = True


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[int, Fake]:
    """The nodes that are started: they hang in closing if `hangs` is in their file's name."""
    found: dict[int, Fake] = {}

    def start(config: NodeConfig) -> Fake:
        closing = threading.Event()
        if "hangs" not in config.file:
            closing.set()
        return found.setdefault(config.number, Fake(config, closing))

    monkeypatch.setattr(node, "start", start)
    return found


def configs(folder: Path, count: int, name: str = "node") -> list[NodeConfig]:
    members = "".join(
        f'[[node]]\nclients = "tcp://127.0.0.1:{n}1"\npeers = "tcp://127.0.0.1:{n}2"\n' for n in range(7, 10)
    )
    found = []
    for number in range(count):
        file = folder / f"{name}{number}.toml"
        file.write_text(f"number = {number}\n{members}")
        found.append(load_node_config(file))
    return found


@pytest.mark.parametrize("name", ["node", "hangs"])
def test_a_node_that_has_failed_leaves_though_it_cannot_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: dict[int, Fake], name: str
) -> None:
    left: list[int] = []
    monkeypatch.setattr(node, "LEAVE_S", 0.05 if name == "hangs" else 20.0)
    monkeypatch.setattr(os, "_exit", left.append)
    nodes = node._Nodes(configs(tmp_path, 1, name))
    nodes.start()
    fakes[0].fail(NodeUnavailable("node 0: its injector hangs"))
    assert nodes.wait() == 1
    if name == "node":
        nodes.close()
    for thread in threading.enumerate():
        if thread.name == "wukongs-leave":
            thread.join(20)
    assert left == ([] if name == "node" else [1])


def test_one_of_several_nodes_ends_alone_and_the_process_with_the_last(
    tmp_path: Path, fakes: dict[int, Fake], capsys: pytest.CaptureFixture[str]
) -> None:
    """By errors with which a node is not started again."""
    nodes = node._Nodes(configs(tmp_path, 2))
    nodes.start()
    wait_until(lambda: len(fakes) == 2 and all(hasattr(one, "fail") for one in fakes.values()), "both serve")
    fakes[0].fail(StorageError("node 0 has no disk"))
    wait_until(lambda: fakes[0].is_closed, "it is closed")
    assert not fakes[1].is_closed
    ended = threading.Thread(target=nodes.wait)
    ended.start()
    ended.join(0.2)
    assert ended.is_alive()
    fakes[1].fail(StorageError("node 1 has no disk"))
    ended.join(20)
    assert nodes.wait() == 1
    nodes.close()
    assert fakes[1].is_closed
    said, errors = capsys.readouterr()
    told = [f"{fakes[n].address}\nnode {n} of 3\nclients: {fakes[n].address}\n" for n in (0, 1)]
    assert said in ("".join(told), "".join(told[::-1])), "the lines of a node stand together"
    assert errors.splitlines() == ["wukongs: node 0 has no disk", "wukongs: node 1 has no disk"]


def test_one_of_several_nodes_that_was_taken_out_is_started_again(
    tmp_path: Path, fakes: dict[int, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "PAUSE_S", 0.01)
    nodes = node._Nodes(configs(tmp_path, 2))
    nodes.start()
    wait_until(lambda: len(fakes) == 2 and all(hasattr(one, "fail") for one in fakes.values()), "both serve")
    first = fakes.pop(0)
    first.fail(NodeUnavailable("node 0 was taken out"))
    wait_until(lambda: 0 in fakes and hasattr(fakes[0], "fail"), "it serves again")
    assert first.is_closed
    tries = []
    monkeypatch.setattr(node, "start", lambda config: tries.append(config.number) or _raise("it is not let in"))
    fakes[0].fail(NodeUnavailable("node 0 was taken out"))
    wait_until(lambda: nodes._left == 1, "it is given up")
    assert tries == [0] * node.TRIES_MAX, "then it is given up"
    nodes.close()
    assert nodes.wait() == 1


def test_a_single_node_that_was_taken_out_is_started_again_if_that_is_wished(
    tmp_path: Path, fakes: dict[int, Fake], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node, "PAUSE_S", 0.01)
    nodes = node._Nodes(
        configs(tmp_path, 1), restarts=node.make_parser().parse_args(["--config", "a", "--restart"]).restart
    )
    nodes.start()
    wait_until(lambda: 0 in fakes and hasattr(fakes[0], "fail"), "it serves")
    first = fakes.pop(0)
    first.fail(NodeUnavailable("node 0 was taken out"))
    wait_until(lambda: 0 in fakes and hasattr(fakes[0], "fail"), "it serves again")
    assert first.is_closed
    fakes[0].fail(StorageError("node 0 has no disk"))
    assert nodes.wait() == 1
    nodes.close()
    assert capsys.readouterr().err.splitlines() == ["wukongs: node 0 was taken out", "wukongs: node 0 has no disk"]


def test_a_spare_node_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [config] = configs(tmp_path, 1)
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "told"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "told"))
    node._say_spare(config, "tcp://127.0.0.1:4711")
    said = "wukongs: node 0 is a spare one: other nodes reach it at tcp://127.0.0.1:4711; it serves clients at "
    assert capsys.readouterr().err == f"{said}{config.me.clients} once it has taken another node's place\n"
    assert told.recv(100) == b"READY=1"
    told.close()


def _raise(text: str) -> None:
    raise NodeUnavailable(text)


@pytest.mark.parametrize("error", [MemoryError("no room"), OSError(errno.EMFILE, "too many open files")])
def test_a_lack_of_the_process_ends_all_its_nodes(tmp_path: Path, fakes: dict[int, Fake], error: Exception) -> None:
    nodes = node._Nodes(configs(tmp_path, 2))
    nodes.start()
    wait_until(lambda: len(fakes) == 2 and all(hasattr(one, "fail") for one in fakes.values()), "both serve")
    fakes[1].fail(error)
    assert nodes.wait() == 1
    nodes.close()
    assert fakes[0].is_closed
    assert fakes[1].is_closed


def test_nodes_that_do_not_belong_together_are_refused(ran: Ran, tmp_path: Path) -> None:
    files = [config.file for config in configs(tmp_path, 2)]
    status, out, err = ran("node", "--config", files[0], files[0])
    assert (status, out) == (2, "")
    assert "number = 0 is that of another file: each node runs once" in err
    alone = tmp_path / "alone.toml"
    alone.write_text('number = 0\n[[node]]\nclients = "tcp://127.0.0.1:71"\n')
    status, out, err = ran("node", "--config", files[0], str(alone))
    assert (status, out) == (2, "")
    assert "expected the same [[node]] list" in err


def test_a_node_that_does_not_serve_for_long_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "START_S", 0.05)
    ended, waiting = [sys.executable, "-c", ""], [sys.executable, "-c", "import time; time.sleep(60)"]
    with cluster._Cluster() as processes, child(waiting) as silent:
        with child(ended) as first:
            first.wait()
        processes._processes = [first]
        monkeypatch.setattr(processes, "_run", lambda number: silent)
        with pytest.raises(NodeUnavailable, match=r"does not serve after 0\.05 s: one that was drained"):
            processes.start_again(0)

"""A node in a process of its own that is killed or paused under its clients, and clients that are interrupted."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, windows
from tests.processes import child
from wukongs.errors import NodeUnavailable

SLOW = (
    "SELECT (COUNT(*) AS ?n) { ?a <p:p> ?x . ?b <p:p> ?y . ?c <p:p> ?z . ?d <p:p> ?w FILTER(?x + ?y + ?z + ?w = -1) }"
)


@contextmanager
def node(folder: Path, name: str = "node", files_max: int | None = None) -> Iterator[tuple[Popen[str], str]]:
    """Run a durable node; give its process and its address. files_max: how many descriptors it may have."""
    file = folder / f"{name}.toml"
    file.write_text(f'data_dir = "{name}"\n[[node]]\nclients = "tcp://127.0.0.1:*"\n')
    limit = [] if files_max is None else ["sh", "-c", f'ulimit -n {files_max} && exec "$@"', "sh"]
    with child([*limit, sys.executable, "-m", "wukongs", "node", "--config", str(file)]) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def numbers(count: int) -> io.BytesIO:
    line = b'<s:%d> <p:p> "%d"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    return io.BytesIO(b"".join(line % (n, n) for n in range(count)))


class Endless(io.RawIOBase):
    """A file that has always one more line, and tells when some have been read."""

    def __init__(self) -> None:
        self.count = 0
        self.is_under_way = threading.Event()

    def read(self, size: int = -1) -> bytes:
        self.count += 1
        if self.count > 20:
            self.is_under_way.set()
        return b"".join(b"<s:%d> <p:p> <o:%d> .\n" % (self.count, n) for n in range(1000))


def when(is_so: Callable[[], object], do: Callable[[], object]) -> threading.Thread:
    """Do something in a thread as soon as something is so."""

    def run() -> None:
        while not is_so():
            time.sleep(0.01)
        do()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_node_that_is_killed_in_a_query_and_in_a_load(tmp_path: Path) -> None:
    for name in ("query", "load"):
        with node(tmp_path, name) as (process, address), wukongs.connect(address, silence_s=5) as client:
            client.load(numbers(300), format="nt")
            started = time.monotonic()
            if name == "query":
                with wukongs.connect(address) as other:
                    when(lambda other=other: other.stats()["handles"], process.kill)  # type: ignore[misc]
                    with pytest.raises(NodeUnavailable, match="no node answers"):
                        client.query(SLOW)
            else:
                source = Endless()
                when(source.is_under_way.is_set, process.kill)
                with pytest.raises(NodeUnavailable, match=r"cannot be read again: nothing was added|no node answers"):
                    client.load(source, format="nt")  # type: ignore[arg-type]
            assert time.monotonic() - started < 60
        with wukongs.Engine(tmp_path / name) as engine:
            assert engine.stats()["stored_triples"] == 300


@pytest.mark.slow
def test_a_client_does_not_go_on_with_a_node_that_never_heard_of_what_it_said(tmp_path: Path) -> None:
    with (
        node(tmp_path, "one") as (process, first),
        node(tmp_path, "two") as (_, second),
        wukongs.connect([first, second], silence_s=5) as client,
    ):
        client.update("INSERT DATA { <s:s> <p:p> 1 }")
        process.kill()
        for _ in range(2):
            with pytest.raises(wukongs.DataLost, match=second):
                client.update("INSERT DATA { <s:s> <p:p> 2 }")
        with wukongs.connect(second) as other:
            assert not other.query("ASK { ?s ?p ?o }")


@pytest.mark.slow
def test_a_node_that_is_paused_is_silent_and_goes_on(tmp_path: Path) -> None:
    with node(tmp_path) as (process, address), wukongs.connect(address, silence_s=60) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50)])
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # until then its threads may still answer
        client._connection.silence_s = 0.5  # during the pause only: a node on a slow machine is not a silent one
        try:
            with pytest.raises(NodeUnavailable, match="no node answers"):
                client.stats()
        finally:
            process.send_signal(signal.SIGCONT)
        client._connection.silence_s = 60
        stream.push([at("b", 150)])
        stream.advance(200)
        client.settle(60)
        assert windows(query, 5) == {100: ["a"], 200: ["b"]}


@pytest.mark.slow
def test_windows_that_a_killed_client_did_not_confirm_go_to_the_next_of_its_group(tmp_path: Path) -> None:
    program = """
import sys, time, wukongs
client = wukongs.connect(sys.argv[1])
(query,) = client.queries()
windows = query.results(group="g")
print(next(windows).end_ms, flush=True)
time.sleep(600)
"""
    with node(tmp_path) as (process, address), wukongs.connect(address) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(200)
        client.settle(60)
        with child([sys.executable, "-c", program, address]) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "100\n"
            reader.kill()
        assert [window.end_ms for window in query.results(5, group="g")] == [200], "the session has not ended yet"
        assert windows(query, 5) == {100: ["a"], 200: ["b"]}, "a reader of its own has all"
        process.terminate()  # what nobody has confirmed is there after a restart, too
        process.wait(60)
    with wukongs.Engine(tmp_path / "node") as engine:
        query = engine.register(register_text("RANGE 100ms STEP 100ms"))
        assert 100 in [window.end_ms for window in query.results(5, group="g")]


@pytest.mark.slow
def test_ctrl_c_ends_a_client_that_waits(tmp_path: Path) -> None:
    with node(tmp_path) as (_, address), wukongs.connect(address) as client:
        client.load(numbers(300), format="nt")
        command = [sys.executable, "-m", "wukongs", "query", "--server", address, SLOW]
        with child(command) as asking:
            deadline = time.monotonic() + 60
            while not client.stats()["handles"]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            asking.send_signal(signal.SIGINT)
            out, err = asking.communicate(timeout=30)
        assert (asking.returncode, out, err) == (130, "", "")
        stream = client.stream(A, batch_ms=100)
        client.register(register_text("RANGE 100ms STEP 100ms"))
        stream.advance(100)
        with child([sys.executable, "-m", "wukongs", "watch", "--server", address, "q"]) as watching:
            assert watching.stdout is not None
            assert watching.stdout.readline().startswith("q (0, 100] ms")
            watching.send_signal(signal.SIGINT)
            _, err = watching.communicate(timeout=30)
        assert (watching.returncode, err) == (130, "")


@pytest.mark.slow
def test_a_node_with_few_descriptors_serves_whatever_strangers_do(tmp_path: Path) -> None:
    with node(tmp_path, "few", files_max=96) as (process, address):
        assert address == ""
        _, said = process.communicate(timeout=60)
    assert "ulimit -n = 96: expected 512 open files or more" in said
    with node(tmp_path, files_max=512) as (process, address), wukongs.connect(address, silence_s=5) as client:
        client.update("INSERT DATA { <s:0> <p:p> 1 }")
        host, port = address.removeprefix("tcp://").split(":")
        strangers = []
        try:
            for _ in range(600):
                with contextlib.suppress(OSError):
                    strangers.append(socket.create_connection((host, int(port)), timeout=20))
            client.update("INSERT DATA { <s:1> <p:p> 2 }")
            with wukongs.connect(address, silence_s=20) as another:
                assert len(another.query("SELECT * { ?s <p:p> ?o }")) == 2
            assert process.poll() is None
        finally:
            for stranger in strangers:
                stranger.close()
        client.update("INSERT DATA { <s:2> <p:p> 3 }")

"""`wukongs cluster --http`: each node of a local cluster serves HTTP, and the addresses are printed."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.processes import child
from tests.unit.server.asking import Client
from wukongs.cli import main
from wukongs.cli.ports import free_ports

CLUSTER = [sys.executable, "-m", "wukongs", "cluster", "--nodes", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("has_port", [False, True])
def test_each_node_serves_http(has_port: bool) -> None:
    (base,) = free_ports(1)
    options = ["--http-base-port", str(base)] if has_port else ["--http"]
    with child([*CLUSTER, *options]) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(4)]
        assert [line.partition(":")[0] for line in lines] == ["tcp", "tcp", "http", "http"]
        first, second = (Client(line.removeprefix("http: ")) for line in lines[2:])
        if has_port:
            assert (first.port, second.port) == (base, base + 1)
        assert first.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }").status == 204
        assert second.get("SELECT ?s { ?s ?p ?o }").values == ["a"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--http-base-port", "65535"), "2 ports from there on are too many"),
        (("--http-base-port", "7412", "--base-port", "7411"), "the nodes have ports 7411 to 7414 for themselves"),
        (("--http", "--spark", "spark://h:1", "--base-port", "7411"), "--http is for nodes of this machine"),
    ],
)
def test_ports_that_will_not_do(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], expected: str) -> None:
    assert main(["cluster", "--nodes", "2", *options]) == 2
    assert expected in capsys.readouterr().err

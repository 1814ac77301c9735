"""`wukongs serve`: a process that serves HTTP, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.processes import child
from wukongs.cli import main

PROGRAM = [sys.executable, "-m", "wukongs", "serve"]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command at a free port; give its process and its address."""
    with child([*PROGRAM, "--port", "0", *arguments]) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def ask(address: str, query: str) -> bool:
    with urlopen(f"{address}/sparql?query={quote(query)}", timeout=60) as answer:
        return bool(json.load(answer)["boolean"])


def update(address: str, text: str) -> None:
    kind = {"Content-Type": "application/sparql-update"}
    urlopen(Request(address + "/sparql", text.encode(), kind), timeout=60).close()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 0, marks=pytest.mark.slow)]
)
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: int, status: int) -> None:
    folder, data = str(tmp_path / "db"), tmp_path / "a.ttl"
    data.write_text("<http://ex/a> <http://ex/p> 1 .")
    with serving("--data-dir", folder, "--data", str(data)) as (process, address):
        assert ask(address, "ASK { <http://ex/a> ?p 1 }")
        update(address, "INSERT DATA { <http://ex/b> <http://ex/p> 2 }")
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors.count("Traceback")) == (status, "", 0), errors
    assert f"loaded {data}" in errors
    with serving("--data-dir", folder, "--rules", "rdfs") as (_, address):
        assert ask(address, "ASK { <http://ex/a> ?p 1 . <http://ex/b> ?p 2 }")
        below = "<http://www.w3.org/2000/01/rdf-schema#subPropertyOf>"
        update(address, f"INSERT DATA {{ <http://ex/p> {below} <http://ex/q> }}")
        assert ask(address, "ASK { <http://ex/a> <http://ex/q> 1 . <http://ex/b> <http://ex/q> 2 }")
        assert not ask(address, "ASK FROM <urn:x-wukongs:explicit> { ?x <http://ex/q> ?y }")


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--host", "0.0.0.0"], 2, "is not loopback"),
        (["--port", "70000"], 2, "--port 70000: expected a port from 0 to 65535"),
        (["--tls-key", "k.pem"], 2, "expected a certificate and its key"),
        (["--data", "nothing.ttl"], 1, "nothing.ttl: no such file; give the path of an RDF file"),
        (["--tokens", "nothing", "--port", "0"], 2, "nothing"),
        (["--timeout", "x"], 2, "--timeout"),
        (["--prot", "1"], 2, "unrecognized arguments: --prot"),
    ],
)
def test_wrong_arguments(arguments: list[str], status: int, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *arguments]) == status
    errors = capsys.readouterr().err
    assert expected in errors
    assert "Traceback" not in errors


def test_what_is_wrong_is_said_before_data_are_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "a.ttl"
    data.write_text("<http://ex/a> <http://ex/p> 1 .")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        for wrong in (["--port", taken], ["--port", "0", "--cors", "a.example"], ["--port", "0", "--tls-key", "k.pem"]):
            assert main(["serve", "--data", str(data), "--data-dir", str(tmp_path / "db"), *wrong]) == 2
    told = capsys.readouterr().err
    assert f"127.0.0.1:{taken}: Address already in use: give another --port" in told
    assert "loaded" not in told
    assert not (tmp_path / "db").exists()


def test_a_malformed_file_is_named_before_anything_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "a.ttl"
    data.write_text("<http://ex/a> <http://ex/p> .")
    assert main(["serve", "--port", "0", "--data", str(data)]) == 1
    found = capsys.readouterr()
    assert (found.out, f"{data}, line 1" in found.err) == ("", True)

"""The command line: what it prints where, and its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import wukongs
from tests.processes import child
from tests.unit.conftest import Ran
from wukongs.cli import COMMANDS, query

# --- wukongs itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["--help", "-h", "help"])
def test_help_lists_the_commands_that_are_there(ran: Ran, argument: str) -> None:
    status, out, err = ran(argument)
    assert (status, err) == (0, "")
    listed = [line.split()[0] for line in out.partition("commands:\n")[2].partition("\n\n")[0].splitlines()]
    assert listed == list(COMMANDS)


def test_no_command_is_wrong_usage(ran: Ran) -> None:
    status, out, err = ran()
    assert (status, out) == (2, "")
    assert err.startswith("usage: wukongs COMMAND")


def test_version(ran: Ran) -> None:
    assert ran("--version") == (0, f"wukongs {wukongs.__version__}\n", "")


def test_an_unknown_command_is_wrong_usage(ran: Ran) -> None:
    expected = f"wukongs: 'frobnicate' is no command: expected one of {', '.join(COMMANDS)}\n"
    assert ran("frobnicate") == (2, "", expected)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(ran: Ran, command: str) -> None:
    status, out, err = ran(command, "--help")
    assert (status, err) == (0, "")
    assert f"usage: wukongs {command}" in out
    assert "examples:\n" in out


# --- the other commands -----------------------------------------------------------------------------------------------


def test_run_refuses_a_file_that_is_not_there(ran: Ran) -> None:
    expected = "wukongs: nowhere.toml: no such file; give the path of a TOML file\n"
    assert ran("run", "nowhere.toml") == (1, "", expected)


@pytest.mark.parametrize(("option", "value"), [("--users", "0"), ("--seconds", "x"), ("--seed", "-1")])
def test_demo_refuses_what_is_no_number(ran: Ran, option: str, value: str) -> None:
    status, out, err = ran("demo", option, value)
    assert (status, out) == (2, "")
    assert f"argument {option}: expected an integer from " in err.splitlines()[-1]


def test_bench_wants_a_known_benchmark(ran: Ran) -> None:
    status, out, err = ran("bench", "tpch")
    assert (status, out) == (2, "")
    assert "invalid choice: 'tpch'" in err.splitlines()[-1]


# --- ends -------------------------------------------------------------------------------------------------------------


def start(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_ctrl_c_ends_with_130_and_no_traceback() -> None:
    program = """
import sys, time, wukongs.cli, wukongs.cli.query
def wait(argv):
    print("ready", flush=True)
    time.sleep(60)
wukongs.cli.query.main = wait
sys.exit(wukongs.cli.main(["query", "ASK {}"]))
"""
    with child([sys.executable, "-c", program]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = """
import sys, wukongs.cli, wukongs.cli.query
def pour(argv):
    sys.stdout.buffer.write(b"first\\n")
    sys.stdout.flush()
    while True:
        sys.stdout.buffer.write(b"x" * 65536)
wukongs.cli.query.main = pour
sys.exit(wukongs.cli.main(["query", "ASK {}"]))
"""
    with start(program) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=30) == 0
    assert err == b""


def test_an_error_of_several_lines_is_said_on_one(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(argv: Sequence[str]) -> int:
        raise wukongs.DataError("expected a dot,\n   found\tnothing", "a.nt", 3)

    monkeypatch.setattr(query, "main", refuse)
    assert ran("query", "ASK {}") == (1, "", "wukongs: a.nt, line 3: expected a dot, found nothing\n")


@pytest.mark.parametrize("descriptor", [1, 2])
def test_closed_outputs_are_no_traceback(descriptor: int) -> None:
    command = f"exec '{sys.executable}' -m wukongs --version {descriptor}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    if descriptor == 1:
        said = "wukongs: standard output is closed: expected a terminal, a file or a pipe\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, f"wukongs {wukongs.__version__}\n", "")


@pytest.mark.parametrize("command", ["query @-", "load --data-dir {folder} -"])
def test_a_closed_input_is_no_traceback(command: str, tmp_path: Path) -> None:
    command = f"exec '{sys.executable}' -m wukongs {command.format(folder=tmp_path / 'db')} <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "standard input: is closed: expected something to read" in done.stdout + done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["query", "--help"], ["query", "--explain", "ASK {}"]]
)
def test_a_full_disk_under_what_is_no_result_is_named_too(arguments: list[str]) -> None:
    program = f"import sys, wukongs.cli; sys.exit(wukongs.cli.main({arguments!r}))"
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, timeout=120)
    *_, last = done.stderr.splitlines()
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    message = b"No space left on device: what was written is incomplete; make room or write elsewhere"
    assert last == b"wukongs: standard output: " + message


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["qurey", "ASK {}"], "'qurey' is no command: did you mean query? Expected one of query, load"),
        (["query", "--dta", "x.ttl", "ASK {}"], "unrecognized arguments: --dta; did you mean --data for --dta?"),
        (["watch", "--sever=tcp://127.0.0.1:1", "q"], "required: --server; did you mean --server for --sever?"),
        (["serve", "--frobnicate"], "unrecognized arguments: --frobnicate\n"),
    ],
)
def test_a_misspelt_name_is_told_the_nearest_one(ran: Ran, arguments: list[str], hint: str) -> None:
    status, out, err = ran(*arguments)
    assert (status, out) == (2, "")
    assert hint in err

"""Ctrl-C ends `wukongs query` with status 130 and no traceback, whatever it is at."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import wukongs.cli.demo
from tests.processes import child

# A thread of the command's own process says where it is: SIGINT comes once the work has begun.
PROGRAM = """
import os, signal, sys, threading
import wukongs.cli
import {module} as module
begun = module.{function}
def told(*arguments, **options):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    return begun(*arguments, **options)
module.{function} = told
sys.exit(wukongs.cli.main(sys.argv[1:]))
"""
ENDLESS = "SELECT (COUNT(*) AS ?n) { ?a ?p ?b . ?c ?p ?d . ?e ?p ?f . ?g ?p ?h . ?i ?p ?j . ?k ?p ?l }"
LISTED = f"SELECT * {{ VALUES ?x {{ {'1 ' * 140_000} }} }}"
CASES = {
    "while a query runs": ("wukongs.live.reading", "answer", ENDLESS),
    "while results are written": (
        "wukongs.query.output.serialize",
        "write",
        "SELECT * { ?a ?p ?b . ?c ?p ?d . ?e ?p ?f }",
    ),
    "while a text is parsed": ("wukongs.csparql.parser", "parse_query", LISTED),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_ctrl_c_ends_a_query(case: str, tmp_path: Path) -> None:
    module, function, text = CASES[case]
    data, query = tmp_path / "x.nt", tmp_path / "x.rq"
    data.write_text("".join(f"<http://ex/{i}> <http://ex/p> <http://ex/o{i}> .\n" for i in range(120)))
    query.write_text(text)
    program = PROGRAM.format(module=module, function=function)
    command = [sys.executable, "-c", program, "query", "--format", "json", "--data", str(data), f"@{query}"]
    with child(command) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: [None for _ in process.stdout or ()])
        reader.start()
        assert process.wait(timeout=120) == 130
        reader.join()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_ctrl_c_inside_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a kernel's result is boxed comes out as SystemError; any other one is a defect, and shows."""

    def boxed(_: object) -> int:
        raise SystemError("returned a result with an exception set") from cause

    monkeypatch.setattr(wukongs.cli.demo, "main", boxed)
    cause: BaseException = SystemError("the same")
    cause.__cause__ = KeyboardInterrupt()
    assert wukongs.cli.main(["demo"]) == 130
    cause = ValueError()
    with pytest.raises(SystemError):
        wukongs.cli.main(["demo"])


def test_ctrl_c_while_a_class_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataclass executes a text, and so does what is imported when it is needed: the status is 130 even then."""
    program = """
import sys
import wukongs.cli.demo
def made(_):
    exec("raise KeyboardInterrupt")
wukongs.cli.demo.main = made
sys.exit(wukongs.cli.main(["demo"]))
"""
    (tmp_path / "interrupted.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with child([sys.executable, "-m", "interrupted"]) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")

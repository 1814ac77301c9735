"""tools/check_machine.py: what is said on a machine that lacks something, before anything is installed."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ADVICE = "install one (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_machine.py"


@pytest.fixture
def machine() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_machine", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_java(folder: Path, said: str) -> Path:
    """Write a program that answers `-version` as Java does (on standard error); return its JAVA_HOME."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.2" 2022-01-18', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 1),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.9" 2023-10-17', 17),
        ("no version here", None),
    ],
)
def test_the_version_of_java_is_read(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: int | None
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path, said)))
    assert machine.java_version() == version


def test_java_home_that_holds_no_java_is_no_java(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert machine.java_version() is None


def test_java_is_found_on_the_path(machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert machine.java_version() == 21


def test_an_old_java_is_refused(machine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "java_version", lambda: 11)
    assert machine.problems() == [f"Java 17 or newer is needed for Spark, found Java 11: {ADVICE}"]


def test_a_python_without_venv_is_refused(machine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "java_version", lambda: 17)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert machine.problems() == [
        "Python's venv and pip are missing: install them (Debian: apt-get install python3-venv)"
    ]


def test_an_old_python_is_refused(machine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "java_version", lambda: 17)
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    monkeypatch.setattr(sys, "version", "3.10.4 (main)")
    assert machine.problems() == [
        "Python 3.11 or newer is needed, this is 3.10.4: install one and call make PYTHON=/path/to/python3"
    ]


def test_a_machine_without_java_ends_with_one_line_and_status_1(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"wukongs: Java 17 or newer is needed for Spark, none was found: {ADVICE}\n"


def test_a_fit_machine_says_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(make_java(tmp_path, 'openjdk version "17.0.2"'))}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_old_pythons_can_read_the_script() -> None:
    """It has to tell them that they are old: nothing in it may be newer than Python 3.4, annotations included."""
    tree = ast.parse(SCRIPT.read_text("utf-8"), feature_version=(3, 4))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    assert not any(node.returns or any(one.annotation for one in node.args.args) for node in functions)
    assert not any(isinstance(node, ast.AnnAssign | ast.JoinedStr) for node in ast.walk(tree))

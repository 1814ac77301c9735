"""An installation without compiled kernels: small calls are interpreted, until another process has compiled all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT_ROOT

KERNELS = """
import numpy as np
from wukongs.store import jit
from wukongs.store.jit import njit

@njit
def twice(value):
    return value * 2

@njit
def sum_of(values, parts):
    found = np.uint64(0)
    for value in values:
        found += np.uint64(twice(value))
    return found + np.uint64(len(parts[0]))

def ask(count):
    values = np.arange(count, dtype=np.uint64)
    return int(sum_of(values, (values,))), len(sum_of.signatures), len(twice.signatures)
"""
SMALL_THEN_LARGE = """
from kernels import ask, jit
print(ask(10), ask(100_000), ask(9_000), ask(10))
"""
UNTIL_COMPILED = """
from kernels import ask, jit
jit._meanwhile._compiles = True
jit._meanwhile._goes_on = lambda: True
before = ask(10)
jit._meanwhile._look_at = 0.0
jit.COMPILED.touch()
print(before, ask(10))
"""
FORKED = """
import fcntl, os, subprocess
from kernels import ask, jit
jit._meanwhile._compiles = True
with jit.COMPILING.open("a") as compiling, subprocess.Popen(["sleep", "60"]) as compiler:
    fcntl.flock(compiling, fcntl.LOCK_EX)
    jit._meanwhile._compiler, jit._meanwhile._began_by = compiler, os.getpid()
    ask(10)
    if os.fork() == 0:
        jit._meanwhile._look_at = 0.0
        print(ask(10), flush=True)
        os._exit(0)
    os.wait()
    compiler.kill()
"""
ENGINE = """
import wukongs
EX = "http://example.org/"
with wukongs.Engine() as engine:
    engine.load("examples/xlab.ttl")
    stream = engine.stream(EX + "s", batch_ms=100)
    query = engine.register(f'''REGISTER QUERY q AS SELECT ?a (SUM(?n) AS ?sum) (MAX(?n) AS ?most)
        FROM STREAM <{EX}s> [RANGE 1s STEP 500ms] FROM <urn:x-wukongs:default>
        WHERE {{ ?a <{EX}fo> ?b . ?b <{EX}says> ?n }} GROUP BY ?a''')
    for number in range(20):
        who = ("Erik", "Logan")[number % 2]
        value = f'"{number * 7 % 5}.5"^^<http://www.w3.org/2001/XMLSchema#decimal>'
        stream.push([(f"<{EX}{who}>", f"<{EX}says>", value, 100 * number + 1)])
    stream.advance(2000)
    engine.settle()
    print([(window.end_ms, sorted(window.texts())) for window in query.results(timeout_s=0)])
    engine.update(f"DELETE {{ ?s <{EX}po> ?o }} INSERT {{ ?o <{EX}by> ?s }} WHERE {{ ?s <{EX}po> ?o }}")
    for text in (
        f"SELECT * {{ ?s (<{EX}fo>|<{EX}by>)+ ?o }} ORDER BY ?s ?o",
        f"SELECT ?s (COUNT(*) AS ?n) {{ ?s ?p ?o FILTER(STRLEN(STR(?o)) > 5) }} GROUP BY ?s ORDER BY ?s",
        f"SELECT * {{ ?s <{EX}ht> ?tag OPTIONAL {{ ?s <{EX}by> ?who }} MINUS {{ ?s <{EX}no> ?x }} }} ORDER BY ?s",
    ):
        print(engine.query(text).texts())
"""


def run(text: str, cache: Path, how: str) -> str:
    environment = os.environ | {
        "WUKONGS_KERNEL_CACHE": str(cache),
        "WUKONGS_KERNELS": how,
        "PYTHONPATH": f"{cache}:{PROJECT_ROOT}",
    }
    (cache / "kernels.py").write_text(KERNELS)
    command = [sys.executable, "-c", text]
    return subprocess.run(
        command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=True, timeout=240
    ).stdout


def test_small_calls_are_interpreted_and_large_ones_compiled(tmp_path: Path) -> None:
    found = run(SMALL_THEN_LARGE, tmp_path, "interpret").strip()
    expected = [
        (n * (n - 1) + n, n_compiled, n_compiled) for n, n_compiled in ((10, 0), (100_000, 1), (9_000, 1), (10, 1))
    ]
    assert found == " ".join(map(str, expected))


def test_compiled_kernels_are_used_once_they_are_there(tmp_path: Path) -> None:
    assert run(UNTIL_COMPILED, tmp_path, "interpret").strip() == "(100, 0, 0) (100, 1, 1)"


def test_a_forked_process_interprets_on_while_kernels_are_compiled(tmp_path: Path) -> None:
    """Popen takes a compiler that is no child of this process for one that has ended."""
    assert run(FORKED, tmp_path, "interpret").strip() == "(100, 0, 0)"


@pytest.mark.slow
def test_an_engine_answers_as_with_compiled_kernels_and_compiles_nothing(tmp_path: Path) -> None:
    found = run(ENGINE, tmp_path, "interpret")
    assert not list(tmp_path.rglob("*.nbi"))
    environment = os.environ | {"WUKONGS_KERNELS": "compile"}
    compiled = subprocess.run(
        [sys.executable, "-c", ENGINE], cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert found == compiled.stdout
    assert len(found.splitlines()) == 4

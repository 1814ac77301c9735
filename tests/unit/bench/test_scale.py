"""The network of bench/scale by its rules: what is written, what is counted, and what queries find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT_ROOT

# Un-jitted, so that no test waits for kernels that only the scale run needs; tiny, so that it is quick all the same.
_ENVIRONMENT = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
_COUNT = """
from wukongs.bench.scale.network import Network
network = Network(5)
lines = b"".join(bytes(piece) for piece in network.text()).splitlines()
assert (len(lines), len(set(lines))) == (network.line_count, network.triple_count), network.__dict__
parts = [list(network.text(first, last)) for first, last in ((0, 2), (2, 5))]
assert b"".join(bytes(piece) for part in parts for piece in part).splitlines() == lines
assert network.like_count == sum(b"vocabulary/like>" in line for line in lines)
"""


def test_the_text_holds_what_the_rules_say() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNT], cwd=PROJECT_ROOT, env=_ENVIRONMENT, check=False, timeout=300)
    assert done.returncode == 0


@pytest.mark.rare
@pytest.mark.slow
def test_a_small_scale_run_answers_as_the_rules_say(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "wukongs.bench",
        "lsbench",
        "--experiment",
        "scale",
        "--quick",
        "--queries",
        "graph",
    ]
    command += ["--report", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=_ENVIRONMENT, capture_output=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr.decode()
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert not [line for line in lines if "skipped" in line]
    for users in (5, 12):
        found = {(line["query"], line["metric"]): line for line in lines if line["case"] == {"users": users}}
        queries = [f"S{number}" for number in range(1, 7)]
        assert set(found) == {
            *(("graph", metric) for metric in ("load", "reopen", "reopen, cold", "size", "disk", "peak")),
            *((query, metric) for query in queries for metric in ("first", "execution")),
        }
        assert found["graph", "load"]["rows"] > 100
        assert all(found["graph", metric]["median"] > 0 for metric in ("load", "size", "disk", "peak"))

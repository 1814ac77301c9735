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


@pytest.mark.slow
def test_a_small_scale_run_answers_as_the_rules_say(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wukongs.bench.scale.run", "--triples", "1500", "--report", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=_ENVIRONMENT, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads((tmp_path / "scale.json").read_text())
    assert [row["query"] for row in found["tables"]["one-shot queries"]] == ["S1", "S2", "S3", "S4", "S5", "S6"]
    assert found["tables"]["load"][0]["lines"] == found["data"]["distinct triples"] + found["data"]["users"]

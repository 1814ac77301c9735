"""A log that the system refuses to let grow, as on a full disk, and that may grow again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import wukongs

WRITER = """
import resource, sys
import wukongs

def may_grow_to(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

engine = wukongs.Engine(sys.argv[1])
refused = 0
for number in range(200):
    if number % 50 == 20:
        (log,) = __import__("pathlib").Path(sys.argv[1], "log").glob("*.log")
        may_grow_to(log.stat().st_size + 300)
    try:
        engine.update(f"INSERT DATA {{ <http://ex/{number}> <http://ex/p> 'some text that is no id, {number}' }}")
        print(number)
    except wukongs.StorageError as error:
        assert "File too large" in str(error) and "writing goes on" in str(error), error
        refused += 1
        if refused % 5 == 0:
            may_grow_to(resource.RLIM_INFINITY)
assert refused == 20, refused
sys.stdout.flush()
__import__("os")._exit(0)
"""


def test_a_log_that_could_not_grow_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    run = subprocess.run([sys.executable, "-c", WRITER, str(folder)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    said = sorted(run.stdout.split())
    assert len(said) == 180
    with wukongs.Engine(folder) as engine:
        kept = [str(row[0]).removeprefix("http://ex/") for row in engine.query("SELECT ?s { ?s ?p ?o }")]
    assert sorted(kept) == said

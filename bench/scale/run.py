"""How large a graph this machine holds: LSBench-shaped triples from files to answers, in a data folder.

`python -m wukongs.bench.scale.run --triples 100000000 --report DIR`. The network is written as N-Triples, loaded by
`wukongs load` in a process of its own, opened again, and asked S1 to S6; every count is compared with what the
network's rules say. The files go into a temporary folder (about 180 bytes a triple at once), which is removed.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wukongs.bench.harness import ROOT, Report, WrongAnswer, repeat, summary
from wukongs.bench.scale.network import Network
from wukongs.bench.scale.queries import one_shot_queries
from wukongs.cli.folder_query import open_folder
from wukongs.engine import Engine

PARTS = 8
REPEATS = 20
_GIB = 1 << 30


def measure(found: Report, triples: int, folder: Path, threads: int = 2) -> None:
    """Generate, load, open and ask; fill the report."""
    network = Network.of_triples(triples)
    text, data = folder / "text", folder / "data"
    text.mkdir()
    began_s = time.perf_counter()
    files = network.write(text, PARTS, threads)
    _say(f"{network.line_count:,} lines written in {time.perf_counter() - began_s:.0f} s")
    found.data = {**found.data, "users": network.users, "distinct triples": network.triple_count}
    row: dict[str, Any] = {
        "lines": network.line_count,
        "text GB": sum(path.stat().st_size for path in files) / 1e9,
        "generate s": time.perf_counter() - began_s,
    }
    row |= _load(found, network, files, data, threads)
    shutil.rmtree(text)
    # Not read from the page cache alone: the batches were written, so they are there; see the question `restart`.
    began_s = time.perf_counter()
    engine = open_folder(data)
    row["reopen s"] = time.perf_counter() - began_s
    with engine:
        _ask(found, engine, network)
        stats = engine.stats()
        row["batches"], row["terms"] = stats["stored_batches"], stats["terms"]
        row["B/triple"] = stats["stored_bytes"] / stats["stored_triples"]
        found.check("stored triples", network.triple_count, stats["stored_triples"])
    found.add("load", row)


def _load(found: Report, network: Network, files: Sequence[Path], data: Path, threads: int) -> dict[str, Any]:
    """Load with the command, in a process of its own; return its figures."""
    command = [sys.executable, "-m", "wukongs", "load", "--workers", str(threads), "--data-dir", str(data)]
    began_s = time.perf_counter()
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - began_s
    sys.stderr.write(done.stdout)
    counts = re.search(r"^triples: ([\d,]+) read, ([\d,]+) new, ([\d,]+) duplicates", done.stdout, re.MULTILINE)
    numbers = [int(number.replace(",", "")) for number in counts.groups()] if counts else []
    expected = [network.line_count, network.triple_count, network.line_count - network.triple_count]
    found.check("exit status of the load", 0, done.returncode)
    found.check("read, new and duplicate triples", expected, numbers)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "load s": seconds,
        "M triples/s": network.line_count / seconds / 1e6,
        "load CPU s": usage.ru_utime + usage.ru_stime,
        "peak GiB": usage.ru_maxrss * 1024 / _GIB,
        "disk GB": sum(path.stat().st_size for path in data.iterdir()) / 1e9,
    }


def _ask(found: Report, engine: Engine, network: Network) -> None:
    """Ask S1 to S6 for one user and one group, and compare the rows with the network's rules."""
    user = network.users // 2
    group = user // 25
    expected = network.answers(user, group)
    likes = "SELECT (COUNT(*) AS ?n) WHERE { ?s <http://www.ins.cwi.nl/sib/vocabulary/like> ?o }"
    found.check("likes", network.like_count, int(str(next(iter(engine.query(likes)))[0])))
    for name, text in one_shot_queries(user, group).items():
        began_s = time.perf_counter()
        rows = len(engine.query(text))
        first_s = time.perf_counter() - began_s
        found.check(name, expected[name], rows)
        times = summary(repeat(lambda text=text: engine.query(text), REPEATS))  # type: ignore[misc]
        found.add(
            "one-shot queries",
            {"query": name, "rows": rows, "first ms": first_s * 1e3, "median ms": times["median"] * 1e3},
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m wukongs.bench.scale.run", description=__doc__)
    parser.add_argument("--triples", type=int, default=100_000_000, help="distinct triples (default: 100,000,000)")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write JSON and Markdown into this folder")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the files go meanwhile")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    found = Report("scale", {"triples asked for": options.triples})
    with tempfile.TemporaryDirectory(prefix="wukongs-scale-", dir=options.folder) as folder:
        try:
            measure(found, options.triples, Path(folder), options.threads)
        except WrongAnswer as error:
            _say(f"wukongs: {error}")
            return 1
    found.publish(options.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

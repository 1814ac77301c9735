"""The first five minutes with wukongs and with others: from nothing to the first answer over the same small data.

Every tool gets an empty folder and an empty home, so no cache helps, and takes its packages from the registry. Its
commands are those that a user types. An answer counts when all that it has to name is in the output.

    python -m wukongs.bench.first_minutes                     # all, some minutes; needs the registry
    python -m wukongs.bench.first_minutes --only rdflib
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from wukongs.adapters.demo import small_network
from wukongs.adapters.lsbench_generator import generate_network
from wukongs.bench.harness import WrongAnswer, machine, markdown_table
from wukongs.cli.ports import free_ports

PROJECT = Path(__file__).resolve().parents[1]
KNOWS = "<http://xmlns.com/foaf/0.1/knows>"
USER = "<http://www.ins.cwi.nl/sib/user/u0>"
QUERY = f"SELECT ?friend {{ {USER} {KNOWS} ?friend }}"
WAIT_S = 900
NOTHING_MISSING = "nothing of these"
STREAMS = "streams, standing queries"


@dataclass(frozen=True, slots=True)
class Tool:
    """The commands that a user types: to install, to ask. server: one that runs while it is asked. answered: names a
    line of the output that is an answer, of a command that goes on after it; begun: one that ends the installation, of
    a command that installs first."""

    name: str
    install: Sequence[str]
    ask: str
    server: str = ""
    answered: str = ""
    begun: str = ""
    lacks: str = STREAMS

    def commands(self) -> int:
        return len(self.install) + 1 + bool(self.server)


@dataclass(slots=True)
class Times:
    """Seconds of one tool, or why there are none. load: of the machine before it."""

    tool: Tool
    install_s: float = 0.0
    first_s: float = 0.0
    second_s: float = 0.0
    failed: str = ""
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def row(self) -> dict[str, object]:
        found = [f"{one:.1f}" for one in (self.install_s, self.first_s, self.install_s + self.first_s, self.second_s)]
        names = ("install, s", "first answer, s", "together, s", "second answer, s")
        return {
            "tool": self.tool.name,
            **dict(zip(names, ["-"] * 4 if self.failed else found, strict=True)),
            "commands": self.tool.commands(),
            "does not have": self.failed or self.tool.lacks,
            "load before": f"{self.load:.1f}",
        }


def tools(port: int) -> list[Tool]:
    """Return what is measured. Each works in a folder with data.nt and data.csv."""
    venv = "python3 -m venv venv"
    by_duckdb = f"SELECT o FROM 'data.csv' WHERE s = '{USER}' AND p = '{KNOWS}'"
    by_rdflib = f"import rdflib; g = rdflib.Graph().parse('data.nt'); print(*g.query('{QUERY}'))"
    source = shlex.quote(str(PROJECT))
    return [
        Tool(
            "wukongs, `pip install .`",
            [venv, f"venv/bin/pip install -q {source}"],
            f"venv/bin/wukongs query --data data.nt --format csv '{QUERY}'",
            lacks=NOTHING_MISSING,
        ),
        Tool(
            "wukongs, `make demo`",
            [f"git clone -q {source} w"],
            "make -C w demo",
            begun="made a social network",
            answered=r"liked_by_friend +\?author",
            lacks=NOTHING_MISSING,
        ),
        Tool(
            "Oxigraph, its server",
            [venv, "venv/bin/pip install -q oxigraph", "venv/bin/oxigraph load --location db --file data.nt"],
            f"curl -sS --retry 50 --retry-delay 0 --retry-connrefused http://127.0.0.1:{port}/query "
            f"-H 'Accept: text/csv' --data-urlencode 'query={QUERY}'",
            server=f"venv/bin/oxigraph serve --location db --bind 127.0.0.1:{port}",
        ),
        Tool(
            "DuckDB, a table of the triples",
            [venv, "venv/bin/pip install -q duckdb"],
            f'venv/bin/python -c "import duckdb; print(duckdb.sql(\\"{by_duckdb}\\").fetchall())"',
            lacks=f"{STREAMS}, RDF and SPARQL",
        ),
        Tool(
            "rdflib",
            [venv, "venv/bin/pip install -q rdflib"],
            f'venv/bin/python -c "{by_rdflib}"',
        ),
    ]


def measure(tool: Tool, folder: Path) -> Times:
    """Type the commands in a folder, which gets the data and a home."""
    expected, times = write_data(folder), Times(tool)
    # No settings of ours: benchmarks have WUKONGS_KERNELS=compile, users have not.
    mine = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environment = {
        name: value for name, value in os.environ.items() if name not in mine and not name.startswith("WUKONGS_")
    }
    environment.update(HOME=str(folder / "home"), XDG_CACHE_HOME=str(folder / "home" / ".cache"))
    shell = _Shell(folder, environment)
    try:
        began_s = time.monotonic()
        for command in tool.install:
            shell.run(command)
        times.install_s = time.monotonic() - began_s
        began_s = time.monotonic()
        with shell.running(tool.server):
            if tool.answered:
                begun_s, answered_s = shell.until_answered(tool)
                times.install_s, times.first_s = times.install_s + begun_s, answered_s - begun_s
                begun_s, times.second_s = shell.until_answered(tool)
            else:
                check(shell.run(tool.ask), expected)
                times.first_s, began_s = time.monotonic() - began_s, time.monotonic()
                check(shell.run(tool.ask), expected)
                times.second_s = time.monotonic() - began_s
    except (subprocess.SubprocessError, WrongAnswer) as error:
        times.failed = str(error)
    wait_for_compilers(folder / "home")
    return times


class _Shell:
    """Types commands as a user does. The output of commands that go on after an answer is kept in a file."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment

    def run(self, command: str) -> str:
        done = subprocess.run(
            command,
            shell=True,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        if done.returncode:
            raise subprocess.SubprocessError(f"{command.split()[0]}: {done.stderr.strip().rpartition(chr(10))[2]}")
        return done.stdout

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Run a command meanwhile, unless it is empty."""
        if not command:
            yield
            return
        process = self._start(command)
        try:
            yield
        finally:
            process.terminate()
            process.communicate()

    def until_answered(self, tool: Tool) -> tuple[float, float]:
        """Return after how many seconds a command has begun its work, and given an answer; let it come to its end."""
        began_s, begun_s, answered_s = time.monotonic(), 0.0, 0.0
        process = self._start(tool.ask)
        assert process.stdout is not None
        late = False
        try:
            for line in process.stdout:
                passed_s = time.monotonic() - began_s
                if not begun_s and re.search(tool.begun, line):
                    begun_s = passed_s
                if not answered_s and re.match(tool.answered, line):
                    answered_s = passed_s
                late = late or passed_s > WAIT_S
                if late:
                    break
        finally:
            if process.poll() is None and late:
                os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
        if not answered_s:
            raise WrongAnswer(f"{tool.ask}: no answer")
        return begun_s, answered_s

    def _start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            shlex.split(command),
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def write_data(folder: Path) -> list[str]:
    """Write data.nt and data.csv, and make a home; return what an answer has to name."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    stored = Path(generate_network(folder / "made", small_network(1, 1)).stored)
    triples = [line.removesuffix(" .").split(" ", 2) for line in stored.read_text("utf-8").splitlines()]
    stored.rename(folder / "data.nt")
    cells = (",".join('"' + part.replace('"', '""') + '"' for part in triple) for triple in triples)
    (folder / "data.csv").write_text("\n".join(["s,p,o", *cells]) + "\n", "utf-8")
    return sorted(o.strip("<>") for s, p, o in triples if (s, p) == (USER, KNOWS))


def check(said: str, expected: Sequence[str]) -> None:
    """Compare the users that an output names with the right ones. Raises WrongAnswer."""
    found = sorted(set(re.findall(r"http://www\.ins\.cwi\.nl/sib/user/u\d+", said)))
    if found != sorted(expected):
        raise WrongAnswer(f"expected {len(expected)} friends, found {len(found)}: {said[:200]!r}")


def wait_for_compilers(home: Path) -> None:
    """Wait until no process compiles kernels behind what was measured: the next one is measured alone."""
    for file in home.glob(".cache/wukongs/kernels/*/compiling"):
        with suppress(FileNotFoundError), file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def table(found: Sequence[Times]) -> list[str]:
    return markdown_table([one.row() for one in found])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m wukongs.bench.first_minutes", description="From nothing to an answer, with us and with others."
    )
    parser.add_argument("--only", nargs="+", default=(), metavar="WORD", help="tools whose names have one of these")
    options = parser.parse_args(argv)
    (port,) = free_ports(1)
    wanted = [one for one in tools(port) if not options.only or any(word in one.name for word in options.only)]
    if not wanted:
        parser.error(f"no tool has a name with {' or '.join(options.only)}")
    about, found = machine(), []
    for tool in wanted:
        print(f"{tool.name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="wukongs-first-") as name:
            found.append(measure(tool, Path(name)))
    print(f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB")
    print("\n".join(table(found)))
    return int(any(one.failed for one in found))


if __name__ == "__main__":
    sys.exit(main())

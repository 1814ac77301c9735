"""Compiling the kernels before a node serves, once for each installation.

Kernels are compiled at their first use, and kept. A node that has to do that while it serves does little else for
seconds, a minute in all, and the others would take it for dead. So a process of its own first does in small what nodes
do: two of them are loaded, fed and asked, and start again from their folders. Other commands do not wait: they have the
same done behind them (wukongs/store/jit.py).
"""

from __future__ import annotations

import fcntl
import io
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import wukongs
from wukongs.cli.ports import free_ports

log = logging.getLogger("wukongs")
COMPILE_S = 900.0
"""How long one step may take while its kernels are compiled."""
COUNT_S = 0.5
LOOKS, LOOK_S = 5, 0.02
KERNELS = 240
"""How many there are, about."""
PEOPLE = 3000
EX = "http://wukongs.example/"
_PREFIX = f"PREFIX : <{EX}> "
_WINDOWS = f"FROM NAMED STREAM <{EX}s> [RANGE 400ms STEP 100ms] FROM NAMED STREAM <{EX}t> [RANGE 200ms STEP 100ms] "
_SAYS, _AT = f"GRAPH <{EX}s> {{ ?a :says ?post }}", f"GRAPH <{EX}t> {{ ?b :at ?x }}"
REGISTERED = (
    f"SELECT ?a ?post {_WINDOWS} WHERE {{ {_SAYS} }}",
    f"SELECT ?p ?o {_WINDOWS} WHERE {{ GRAPH <{EX}s> {{ :n1 ?p ?o }} }}",
    f"SELECT ?a ?b ?post FROM <urn:x-wukongs:default> {_WINDOWS} WHERE {{ {_SAYS} {_AT} ?a :knows ?b }}",
    f"SELECT ?a ?post FROM <urn:x-wukongs:default> {_WINDOWS} WHERE {{ :n1 :knows ?a . {_SAYS} }}",
    f"SELECT ?b (AVG(?x) AS ?m) (COUNT(*) AS ?c) {_WINDOWS} WHERE {{ {_AT} }} GROUP BY ?b",
    f"SELECT ?b ?x {_WINDOWS} WHERE {{ {_AT} FILTER (?x > 2.5) }}",
    f"SELECT ?a ?b {_WINDOWS} WHERE {{ GRAPH <{EX}s> {{ ?a :says ?post . ?b :says ?post }} }}",
)
ASKED = (
    "ASK { :n1 ?p ?o }",
    "SELECT * { :n1 :knows ?a . ?a :knows ?b . ?b :name ?n }",
    "SELECT * { ?a :knows ?b ; :name ?n . FILTER (?n != 'n3') } ORDER BY ?n LIMIT 5",
    "SELECT ?b (COUNT(?a) AS ?c) { ?a :knows ?b } GROUP BY ?b ORDER BY DESC(?c)",
    "SELECT * { ?a :age ?x FILTER (?x > 20 && ?x < 1e3) OPTIONAL { ?a :knows ?b . ?b :age ?y } }",
    "SELECT ?b { :n1 :knows+ ?b }",
    "SELECT DISTINCT ?o { { ?s :knows ?o } UNION { ?s :name ?o } MINUS { ?o :age 25 } }",
    "SELECT * { ?s ?p ?o FILTER NOT EXISTS { ?s :says ?x } }",
    "SELECT * { ?a :name ?n FILTER (STRLEN(?n) > 1) }",
    "SELECT * { { SELECT ?a (COUNT(*) AS ?c) { ?a :knows ?b } GROUP BY ?a } { SELECT ?a { ?a :age ?x } LIMIT 99 } }",
)


def compile_first() -> None:
    """Return when the kernels that nodes use are compiled, by this process or by another one. If that fails, they are
    compiled as they are used."""
    from wukongs.store import jit

    if jit.are_kernels_compiled():
        return
    with suppress(OSError), _turn() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not jit.are_kernels_compiled():
            _compile(_telling())


def compile_behind() -> int:
    """Compile the kernels while the process that has begun this works with interpreted ones. Return the exit status."""
    from wukongs.store import jit

    with suppress(OSError), _turn() as turn:
        if not _is_first(turn):
            return jit.WAITS_FOR_ANOTHER
        if not jit.are_kernels_compiled():
            os.nice(10)
            _compile(nullcontext())
    return 0 if jit.are_kernels_compiled() else 1


def _is_first(turn: IO[str]) -> bool:
    """Take the lock, unless another one compiles. A process that looks for that holds the lock for a moment too."""
    for _ in range(LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(LOOK_S)
    return False


def _turn() -> IO[str]:
    from wukongs.store import jit

    return jit.COMPILING.open("w")


def _compile(said: AbstractContextManager[object]) -> None:
    """Have another process use all kernels once."""
    from wukongs.store import jit

    command = [sys.executable, "-P", "-m", jit.COMPILER]
    environment = os.environ | {"WUKONGS_KERNELS": "compile"}
    with said:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    if ran.returncode == 0:
        jit.COMPILED.touch()
    else:
        log.warning("kernels could not be compiled ahead: %s", ran.stderr.strip().rpartition("\n")[2])


@contextmanager
def _telling() -> Iterator[None]:
    """Say that kernels are compiled; on a terminal, count them meanwhile."""
    from wukongs.store import jit

    print("compiling kernels, once (about two minutes) ...", file=sys.stderr, flush=True)
    ended = threading.Event()

    def count() -> None:
        while not ended.wait(COUNT_S):
            done = sum(1 for _ in jit.KERNEL_CACHE.rglob("*.nbi"))
            print(f"\r{done} of about {KERNELS} ", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    counting = threading.Thread(target=count, daemon=True)
    if sys.stderr.isatty():
        counting.start()
    try:
        yield
    finally:
        ended.set()
        if counting.is_alive():
            counting.join()


def use_kernels() -> None:
    """Do in small what nodes do."""
    with tempfile.TemporaryDirectory() as folder:
        with _nodes(Path(folder)) as client:
            client.load(io.BytesIO(_stored().encode()), format="nt")
            for name, timing in (("s", False), ("t", True)):
                client.stream(EX + name, timing=timing, batch_ms=100, history_ms=1000)
            for number, text in enumerate(REGISTERED):
                client.register(f"REGISTER QUERY q{number} AS {_PREFIX}{text}")
            for number in range(1, 12):
                client.push_many({f"{EX}s": _said(number), f"{EX}t": _measured(number)}, number * 100)
            client.settle(COMPILE_S)
            for query in client.queries():
                next(iter(query.results(timeout_s=10)), None)
            _ask(client)
            client.update(_PREFIX + "DELETE { ?s :age ?x } INSERT { ?s :age 30 } WHERE { ?s :age ?x FILTER (?x < 25) }")
            client.update(f"{_PREFIX}DELETE WHERE {{ :n2 ?p ?o }}")
            client.load(io.BytesIO(_stored().encode()), format="nt")
            client.checkpoint()
            _ask(client)
        with _nodes(Path(folder)) as client:
            _ask(client)
    _keep_a_path()
    _follow_rules()
    _fire_together()


def _fire_together() -> None:
    """Have an engine fire queries that are due at one time, as a node of a cluster that holds a share does not."""
    window = f"FROM NAMED STREAM <{EX}s> [RANGE 100ms STEP 100ms]"
    with wukongs.Engine() as engine:
        stream = engine.stream(f"{EX}s", timing=True, batch_ms=100)
        for name, head in (("a", "?a ?post"), ("b", "?post")):
            engine.register(f"REGISTER QUERY {name} AS {_PREFIX}SELECT {head} {window} WHERE {{ {_SAYS} }}")
        for number in range(1, 4):
            stream.push(_said(number))
            stream.advance(100 * number)
            engine.settle(COMPILE_S)


def _follow_rules() -> None:
    """Have an engine follow rules: nodes of a cluster do so in columns alone."""
    rules = "RULE near: CONSTRUCT { ?x :near ?z } WHERE { ?x :near ?y . ?y :near ?z }"
    links = [f":n{number} :near :n{number + 1} ." for number in range(5)]
    with wukongs.Engine(rules=_PREFIX + rules) as engine:
        engine.update(f"{_PREFIX}INSERT DATA {{ {' '.join(links)} }}")
        engine.update(f"{_PREFIX}DELETE DATA {{ {links[2]} }}")


def _keep_a_path() -> None:
    """Have an engine keep the walks of a path, as nodes of a cluster do not."""
    links = [f":n{number} :next :n{number + 1} ." for number in range(PEOPLE)]
    with wukongs.Engine() as engine:
        stream = engine.stream(f"{EX}s", timing=True, batch_ms=100)
        engine.update(f"{_PREFIX}INSERT DATA {{ {' '.join(links)} }}")
        engine.register(
            f"REGISTER QUERY path AS {_PREFIX}SELECT ?x FROM NAMED STREAM <{EX}s> [RANGE 100ms STEP 100ms] "
            "FROM <urn:x-wukongs:default> WHERE { :n0 :next+ ?x }"
        )
        for number in range(1, 6):
            if number > 3:
                engine.update(
                    f"{_PREFIX}DELETE DATA {{ {links[-number]} }} ; {_PREFIX}INSERT DATA {{ :n9 :next :n2998 }}"
                )
            stream.advance(number * 100)
            engine.settle(COMPILE_S)


def _ask(client: Any) -> None:
    for text in ASKED:
        client.query(_PREFIX + text)
        result = client.query(_PREFIX + text)  # by a program
        for format in ("tsv", "json"):
            result.serialize(format)


def _stored() -> str:
    lines = []
    for number in range(PEOPLE):
        one, other = f"<{EX}n{number}>", f"<{EX}n{number * 7 % PEOPLE}>"
        lines += [
            f"{one} <{EX}knows> {other} .",
            f'{one} <{EX}name> "n{number}" .',
            f"{one} <{EX}p{number % 30}> {other} .",
        ]
        lines.append(f'{one} <{EX}age> "{number % 90}"^^<http://www.w3.org/2001/XMLSchema#integer> .')
    return "\n".join(lines) + "\n"


def _said(number: int) -> list[tuple[str, str, str, int]]:
    return [(f"<{EX}n{row % 5}>", f"<{EX}says>", f"<{EX}post{row % 9}>", number * 100) for row in range(20)]


def _measured(number: int) -> list[tuple[str, str, str, int]]:
    kind = "http://www.w3.org/2001/XMLSchema#decimal"
    return [(f"<{EX}n{row % 7}>", f"<{EX}at>", f'"{row}.5"^^<{kind}>', number * 100) for row in range(20)]


@contextmanager
def _nodes(folder: Path) -> Iterator[Any]:
    """Give a client of two nodes that begin, or go on, in folders."""
    from wukongs.cluster.node import ServedNode
    from wukongs.cluster.node_config import load_node_config

    addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(4)]
    pairs = zip(addresses[:2], addresses[2:], strict=True)
    members = [f'[[node]]\nclients = "{clients}"\npeers = "{peers}"' for clients, peers in pairs]

    def start(number: int) -> ServedNode:
        file = folder / f"node{number}.toml"
        file.write_text("\n".join([f"number = {number}", f'data_dir = "data{number}"', *members]) + "\n", "utf-8")
        return ServedNode(load_node_config(file))

    with ThreadPoolExecutor(2) as starting:
        nodes = list(starting.map(start, (0, 1)))
    try:
        with wukongs.connect(nodes[0].address, silence_s=COMPILE_S) as client:
            yield client
    finally:
        for node in nodes:
            node.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["behind"]:
        sys.exit(compile_behind())
    use_kernels()

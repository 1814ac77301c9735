"""Twenty all-pairs queries at once, of four addresses, on a server with little memory: it lives, each query is answered
right or refused by name, and light readers beside them are answered."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.processes import child

GIGABYTE = 1 << 30
SUBJECTS, PROPERTIES = 2_000, 10  # 20,000 triples
SHAPES = {
    "ORDER BY": ("SELECT ?x ?y { ?a :p0 ?x . ?b :p1 ?y } ORDER BY ?y DESC(?x)", SUBJECTS**2),
    "DISTINCT": ("SELECT DISTINCT ?a ?b { ?a :p0 ?x . ?b :p1 ?y }", SUBJECTS**2),
    "all": ("SELECT * { ?a :p0 ?x . ?b :p1 ?y }", SUBJECTS**2),
    "GROUP BY": ("SELECT ?a (SUM(?y) AS ?n) { ?a :p0 ?x . ?b :p1 ?y } GROUP BY ?a", SUBJECTS),
}
IN_GROUP = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], sys.argv[2:])"
READ_BYTES = 1 << 20


def lines() -> Iterator[str]:
    for number in range(SUBJECTS):
        for place in range(PROPERTIES):
            value = (number * 7 + place) % SUBJECTS
            kind = "http://www.w3.org/2001/XMLSchema#integer"
            yield f'<http://ex/n{number}> <http://ex/p{place}> "{value}"^^<{kind}> .\n'


@contextlib.contextmanager
def memory_group(size: int) -> Iterator[Path]:
    """Make a cgroup of version 1 or 2 below this process's own, with that much memory; skip where none can be made."""
    found = {line.split(":")[1]: line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}
    is_first = "memory" in found
    top = Path("/sys/fs/cgroup/memory") if is_first else Path("/sys/fs/cgroup")
    own = top / found.get("memory" if is_first else "", "/").lstrip("/")
    group = (own if own.exists() else top) / f"wukongs-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(size))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        for _ in range(100):  # until the process is gone
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def asked(address: str, source: str, query: str, read_bytes: int | None = None) -> tuple[int, bytes]:
    """Ask from an address of this machine; return the status, and the answer or its beginning."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=170, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request(
            "GET", f"/sparql?query={quote('PREFIX : <http://ex/> ' + query)}", headers={"Accept": "text/csv"}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(read_bytes)


def peak_kilobytes(pid: int) -> tuple[int, int]:
    """Return the anonymous resident memory of a process now, and its swapped part."""
    sizes = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        if name in ("RssAnon", "VmSwap")
    }
    return sizes["RssAnon"], sizes["VmSwap"]


def heavy_queries(tmp_path: Path, command: list[str], limit: int, **given: object) -> None:
    data = tmp_path / "all.nt"
    data.write_text("".join(lines()))
    serve = [*command, sys.executable, "-m", "wukongs", "serve", "--port", "0", "--data", str(data)]
    outcomes: Counter[str] = Counter()
    wrong, light_s, resident = list[str](), list[float](), list[int]()
    done = threading.Event()
    with child(serve, **given) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert asked(address, "127.0.0.9", "ASK { ?a :p0 1 }")[0] == 200

        def heavy(number: int) -> None:
            name = list(SHAPES)[number % len(SHAPES)]
            try:
                status, body = asked(address, f"127.0.0.{2 + number % 4}", SHAPES[name][0], READ_BYTES)
            except Exception as error:
                wrong.append(f"{name}: {error!r}")
                return
            text = body.decode()
            if status != 200:
                outcomes["refused"] += 1
                if os.environ.get("SHOW"):
                    print(name, text[:330])
                if "memory_bytes_max" not in text and "spill_bytes_max" not in text:
                    wrong.append(f"{name}: {status} {text[:500]}")
                return
            outcomes["answered"] += 1
            rows = [tuple(map(int, row.split(","))) for row in text.splitlines()[1:1000]] if name == "ORDER BY" else []
            if rows != sorted(rows, key=lambda row: (row[1], -row[0])) or (name == "ORDER BY" and rows[0] != (1999, 0)):
                wrong.append(f"{name}: {rows[:10]}")

        def light() -> None:
            while not done.is_set():
                began_s = time.monotonic()
                status, body = asked(address, "127.0.0.8", "SELECT ?x { :n5 :p0 ?x }")
                light_s.append(time.monotonic() - began_s)
                if (status, body.split()) != (200, [b"x", b"35"]):
                    wrong.append(f"a light reader: {status} {body[:200]!r}")
                time.sleep(0.02)

        def watch() -> None:
            while not done.is_set():
                resident.append(1024 * sum(peak_kilobytes(process.pid)))
                time.sleep(0.02)

        beside = [threading.Thread(target=one) for one in (light, watch)]
        threads = [threading.Thread(target=heavy, args=(number,)) for number in range(20)]
        for thread in (*beside, *threads):
            thread.start()
        for thread in threads:
            thread.join(170)
        done.set()
        for thread in beside:
            thread.join(60)
        assert process.poll() is None, process.communicate()[1]
        _, figures = asked(address, "127.0.0.9", "SELECT (COUNT(*) AS ?n) { ?a ?p ?o }")
        assert figures.split() == [b"n", b"20000"]
        print(
            json.dumps(
                {
                    "peak_mb": max(resident) >> 20,
                    "limit_mb": limit >> 20,
                    "light_p50_ms": round(1000 * sorted(light_s)[len(light_s) // 2], 1),
                    "light_max_ms": round(1000 * max(light_s), 1),
                    **outcomes,
                }
            )
        )
    assert not wrong, "\n".join(wrong)
    assert sum(outcomes.values()) == 20
    assert outcomes["answered"] >= 4, outcomes
    assert max(resident) < limit


@pytest.mark.slow
@pytest.mark.rare
def test_a_server_in_a_small_cgroup_lives(tmp_path: Path) -> None:
    with memory_group(GIGABYTE) as processes:
        heavy_queries(tmp_path, [sys.executable, "-c", IN_GROUP, str(processes)], GIGABYTE)


@pytest.mark.slow
def test_a_server_with_a_resource_limit_lives(tmp_path: Path) -> None:
    command = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2); "
    command += "os.execvp(sys.argv[2], sys.argv[2:])"
    heavy_queries(tmp_path, [sys.executable, "-c", command, str(2 * GIGABYTE)], 2 * GIGABYTE)

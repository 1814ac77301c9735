"""pyoxigraph in a process of its own, asked for so long at most: `python -m ...tpch.oxigraph FILE SECONDS`.

A query of pyoxigraph cannot be interrupted. So each is answered by a fork of the process that has the triples, which is
killed if it takes too long. It says `ready`, and answers lines, each a query as JSON, with one line each: its rows and
milliseconds, an error, or null for too long."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wukongs.bench.peers import PeerFailed, Rows, TooSlow


@dataclass(slots=True)
class Apart:
    """The process, seen from outside."""

    process: subprocess.Popen[str]

    @staticmethod
    def start(ntriples: Path, answer_s: float) -> Apart:
        """Load a file, and wait until it is loaded. Raises PeerFailed."""
        command = [sys.executable, "-m", "wukongs.bench.views.tpch.oxigraph", str(ntriples), str(answer_s)]
        found = Apart(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        if found._line() != "ready\n":
            found.close()
            raise PeerFailed("pyoxigraph: it did not load the triples")
        return found

    def ask(self, text: str) -> tuple[float, Rows]:
        """Return the milliseconds from the text to all rows, and these. Raises PeerFailed, TooSlow."""
        assert self.process.stdin is not None, self.process
        try:
            self.process.stdin.write(json.dumps(text) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self._line())
        except (OSError, ValueError) as error:
            raise PeerFailed(f"pyoxigraph: it has ended: {error}") from None
        if answer is None:
            raise TooSlow
        if isinstance(answer, str):
            raise PeerFailed(f"pyoxigraph: {answer}")
        return answer["ms"], [tuple(row) for row in answer["rows"]]

    def _line(self) -> str:
        assert self.process.stdout is not None, self.process
        return self.process.stdout.readline()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None, self.process
        self.process.stdin.close()
        self.process.wait()


def _serve(path: str, answer_s: float) -> None:
    import pyoxigraph

    store = pyoxigraph.Store()
    store.bulk_load(path=path, format=pyoxigraph.RdfFormat.N_TRIPLES)
    print("ready", flush=True)
    for line in sys.stdin:
        print(_forked(store, json.loads(line), answer_s), flush=True)


def _forked(store: Any, text: str, answer_s: float) -> str:
    """Return the line that answers a query."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writer, "w") as pipe:
            pipe.write(_answer(store, text))
        os._exit(0)
    os.close(writer)
    deadline, parts = time.monotonic() + answer_s, list[bytes]()
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not (part := os.read(reader, 1 << 20)):
            break
        parts.append(part)
        deadline = time.monotonic() + 60  # the answer is there
    else:
        parts = [b"null"]
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return b"".join(parts).decode()


def _answer(store: Any, text: str) -> str:
    try:
        began_s = time.perf_counter()
        rows = [tuple(None if one is None else str(one) for one in row) for row in store.query(text)]
        return json.dumps({"ms": 1e3 * (time.perf_counter() - began_s), "rows": rows})
    except Exception as error:
        return json.dumps(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _serve(sys.argv[1], float(sys.argv[2]))

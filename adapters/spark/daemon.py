"""The process that forks Spark's Python workers: it has imported what they need, once for all of them.

Spark starts one for each kind of worker (`spark.python.daemon.module`), the kind being its first argument. No import
may start a thread that a fork would lose: sockets are made by the workers themselves.

The imports take a second, in which Spark starts no other Python process. So a local session starts an early process
(start_daemon), which imports while Spark plans. The one that Spark starts then hands its streams and its environment
over, and waits for the end of the early one, which does its work.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
from contextlib import chdir, suppress
from pathlib import Path

EARLY_AT = "WUKONGS_SPARK_DAEMON"
"""The variable that tells in which folder an early process listens."""
_SOCKET, _TAKEN = "daemon.sock", b"1"

_IN_TASKS = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "wukongs.adapters.spark.data_source",
    "wukongs.adapters.spark.driver",
    "wukongs.adapters.push",
    "wukongs.adapters.sources.timestamped_file",
    "wukongs.wire.link",
    "wukongs.wire.sharding",
)


def modules_for(worker: str) -> tuple[str, ...]:
    """Return what the workers of one kind import. Those that only plan are few, and import little."""
    return _IN_TASKS if worker == "pyspark.worker" else (worker,)


def main() -> None:
    """Import, then fork workers until Spark closes the standard input."""
    if sys.argv[1:2] == ["--early"]:
        _wait_early(sys.argv[2])
        return
    worker = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"
    early = os.environ.get(EARLY_AT) if worker == "pyspark.worker" else None
    if early is None or not _hand_over(early):
        _import(worker)
        _fork_workers()


def _import(worker: str) -> None:
    for name in modules_for(worker):
        importlib.import_module(name)
    if worker == "pyspark.worker":
        from wukongs.store.encoder import encode_ntriples

        encode_ntriples(b'<x:s> <x:p> "o" .\n', b"")  # loads its kernels
    gc.freeze()  # forked workers share these pages, and their collections pass over them


def _fork_workers() -> None:
    from pyspark.daemon import manager

    manager()


def _wait_early(folder: str) -> None:
    """Import, then take the place of the process that Spark starts; end without one with the standard input."""
    listening = socket.socket(socket.AF_UNIX)
    with chdir(folder):  # a path may be longer than a socket's name may be
        listening.bind(_SOCKET)
    listening.listen(1)
    _import("pyspark.worker")
    ready, _, _ = select.select([listening.fileno(), 0], [], [])
    if listening.fileno() not in ready:
        return
    connection, _ = listening.accept()
    os.unlink(Path(folder, _SOCKET))
    listening.close()
    first, streams, _, _ = socket.recv_fds(connection, 1, 3)
    handed = first + b"".join(iter(lambda: connection.recv(1 << 16), b""))
    os.environ.clear()
    os.environ.update(json.loads(handed))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    connection.send(_TAKEN)
    sys.argv = [sys.argv[0], "pyspark.worker"]
    _fork_workers()


def _hand_over(folder: str) -> bool:
    """Hand this process's streams and environment to an early one, and wait for its end; False if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with chdir(folder):
                connection.connect(_SOCKET)
            handed = json.dumps(dict(os.environ)).encode()
            socket.send_fds(connection, [handed[:1]], [0, 1, 2])
            connection.sendall(handed[1:])
            connection.shutdown(socket.SHUT_WR)
            if connection.recv(1) != _TAKEN:
                return False
        except OSError:
            return False
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        with suppress(OSError):
            connection.recv(1)
    return True


def start_daemon(folder: Path, log: Path, python_path: str) -> subprocess.Popen[bytes]:
    """Start an early process of a local session. It ends with its standard input or, once it has taken Spark's place,
    with the JVM's end. folder: where its socket is; only its owner may enter it."""
    path = os.pathsep.join([python_path, *filter(None, [os.environ.get("PYTHONPATH")])])
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, "--early", str(folder)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            process_group=0,  # Ctrl-C is for the driver alone
        )


if __name__ == "__main__":
    main()

"""Questions between two processes on loopback: how long one takes, how many go over, beside ZeroMQ alone.

The answer to each question repeats the question, and is compared with it.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.bench.harness import Report, summary
from wukongs.protocol.messages import Incarnation
from wukongs.settings import take_turns_quickly
from wukongs.wire.answering import QUICK_BYTES_MAX, at_once
from wukongs.wire.context import context
from wukongs.wire.network import Network
from wukongs.wire.packets import Packet

POOLED, QUICK = "answered by a worker", "answered by the socket's thread"
ONE, MANY = "one question at a time, us", "questions of 8 threads"
THREADS = 8
TIMEOUT_S = 30.0
_END = b""


def main(report: Path | None, quick: bool) -> int:
    """Run it; return the exit status. quick: only shows that it runs."""
    results = Report("wire", {"source": "made here", "processes": 2, "transport": "tcp on loopback"})
    count = 20 if quick else 3000
    before_s = sys.getswitchinterval()
    take_turns_quickly()
    with_spawn = multiprocessing.get_context("spawn")
    here, there = with_spawn.Pipe()
    process = with_spawn.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    network = Network(Incarnation(0, 1, 1), "tcp://127.0.0.1:0", {}, lambda sender, packet: None)
    try:
        address, bare = here.recv()
        network.join({1: address})
        here.send(network.address)
        here.recv()  # both know each other
        _measure(results, network, count)
        _measure_bare(results, bare, count)
        here.send(None)
        process.join(TIMEOUT_S)
    finally:
        sys.setswitchinterval(before_s)
        network.close()
        process.terminate()
    results.publish(report)
    return 0


def _measure(results: Report, network: Network, count: int) -> None:
    keys = {"no array": 0, "1,000 ids": 1000, "1 M ids": 1_000_000}
    for what, length in keys.items():
        for kind in (POOLED, QUICK) if 8 * length <= QUICK_BYTES_MAX else (POOLED,):
            packet = Packet(kind, {"n": length}, {"ids": np.arange(length)} if length else {})
            (answer,) = network.ask([(1, packet)], TIMEOUT_S)
            same = all(np.array_equal(array, answer.arrays[name]) for name, array in packet.arrays.items())
            results.check(f"{what}, {kind}", True, same and answer.fields == packet.fields)

            def ask(packet: Packet = packet) -> None:
                network.ask([(1, packet)], TIMEOUT_S)

            times = _microseconds(ask, count if length < 10_000 else max(5, count // 50))
            results.add(ONE, {"question": what, "how": kind, **times})
    for kind in (POOLED, QUICK):
        results.add(MANY, {"how": kind, "a second": _throughput(network, Packet(kind), count)})


def _measure_bare(results: Report, address: str, count: int) -> None:
    """ZeroMQ alone: 100 bytes there and back, no thread changed, nothing decoded."""
    import zmq

    socket = context().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)

    def ask() -> None:
        socket.send(b"x" * 100)
        socket.recv()

    ask()
    results.add(ONE, {"question": "100 bytes", "how": "ZeroMQ alone", **_microseconds(ask, count)})
    socket.send(_END)
    socket.close()


def _microseconds(ask: Callable[[], None], count: int) -> dict[str, float]:
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        ask()
        times.append((time.perf_counter() - began_s) * 1e6)
    found = summary(times)
    return {name: found[name] for name in ("min", "median", "p90", "p99")}


def _throughput(network: Network, packet: Packet, count: int) -> float:
    def ask() -> None:
        for _ in range(count // THREADS):
            network.ask([(1, packet)], TIMEOUT_S)

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (count // THREADS) * THREADS / (time.perf_counter() - began_s)


def _serve(pipe: Connection) -> None:
    """The other process: answers each question with the question itself, and bare frames in a thread of their own."""
    import zmq

    take_turns_quickly()

    def answer(packet: Packet) -> Packet:
        return packet

    handlers = {POOLED: answer, QUICK: answer}
    network = Network(
        Incarnation(1, 1, 1), "tcp://127.0.0.1:0", handlers, lambda sender, packet: None, quick={QUICK: at_once(answer)}
    )
    bare: Any = context().socket(zmq.ROUTER)
    bare.bind("tcp://127.0.0.1:*")
    echo = threading.Thread(target=_echo, args=(bare,), daemon=True)
    echo.start()
    pipe.send((network.address, bare.getsockopt_string(zmq.LAST_ENDPOINT)))
    network.join({0: pipe.recv()})
    pipe.send(None)
    pipe.recv()
    network.close()


def _echo(bare: Any) -> None:
    while (frames := bare.recv_multipart())[1] != _END:
        bare.send_multipart(frames)
    bare.close(0)

"""The protocol's traffic between nodes: messages and bytes per node and second, idle and with streams.

Streams are advanced without tuples, all of them once per stream batch in real time: the protocol's messages about a
stream batch do not depend on its tuples. If the machine does not keep up, `ticks` says how many stream batches it did.
"""

from __future__ import annotations

import time

from wukongs.bench.nodes.engines import Bench, since

BATCH_MS = 100
STREAM = "urn:bench:control:"


def run_control(bench: Bench, stream_count: int, seconds: float, at_ms: int) -> tuple[dict[str, float], int]:
    """Return what each node sends in a second, by its name in Bench.counters and as `ticks`, the stream batches of a
    stream; and the event time at its end. at_ms: one that the cluster has not come to."""
    streams = [
        bench.engine.stream(f"{STREAM}{stream_count}:{number}", batch_ms=BATCH_MS) for number in range(stream_count)
    ]
    for stream in streams:
        stream.advance(at_ms)
    bench.engine.settle(seconds + 60)
    before, began_s, ticks = bench.counters(), time.perf_counter(), 0
    while (now_s := time.perf_counter()) < began_s + seconds:
        bench.engine.push_many(dict.fromkeys(stream.iri for stream in streams), at_ms + (ticks + 1) * BATCH_MS)
        ticks += 1
        time.sleep(max(0.0, began_s + ticks * BATCH_MS / 1e3 - time.perf_counter()))  # the pace of real time
    took_s = now_s - began_s
    said = since(before, bench.counters())
    for stream in streams:
        bench.engine.drop_stream(stream.iri)
    each = len(bench.nodes) * took_s
    return {"ticks": ticks / took_s, **{what: count / each for what, count in said.items()}}, at_ms + (
        ticks + 1
    ) * BATCH_MS

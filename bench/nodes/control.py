"""The protocol's traffic between nodes: messages and bytes per node and second, idle and with streams.

Streams are advanced without tuples, all of them once per stream batch in real time: the protocol's messages about a
stream batch do not depend on its tuples. If the machine does not keep up, the table says how many stream batches it
did.
"""

from __future__ import annotations

import time

from wukongs.bench.harness import Report
from wukongs.bench.nodes.engines import Bench, since

SAID = "Control messages between nodes, per node and second"
BATCH_MS = 100
STREAM = "urn:bench:control:"


def bench_control(report: Report, bench: Bench, stream_counts: tuple[int, ...], seconds: float, at_ms: int) -> None:
    """Measure for each number of streams. at_ms: an event time that the cluster has not come to."""
    for count in stream_counts:
        streams = [bench.engine.stream(f"{STREAM}{count}:{number}", batch_ms=BATCH_MS) for number in range(count)]
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
        at_ms += (ticks + 1) * BATCH_MS
        for stream in streams:
            bench.engine.drop_stream(stream.iri)
        nodes = len(bench.nodes)
        report.add(
            SAID,
            {
                "nodes": bench.name,
                "streams": count,
                "stream batches/s of a stream": ticks / took_s if streams else "",
                "protocol messages": said["told_out"] / nodes / took_s,
                "protocol KB": said["told_bytes_out"] / nodes / took_s / 1e3,
                "all messages": said["messages_out"] / nodes / took_s,
                "all KB": said["bytes_out"] / nodes / took_s / 1e3,
                "CPU, share of a core": said["cpu_s"] / nodes / took_s,
            },
        )

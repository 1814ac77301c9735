"""`python -m tests.sim.traffic NODES:STREAMS ...`: what nodes say to each other while all is well, per node and pulse.

Every stream brings one stream batch a pulse to every node, nothing is lost, no new terms, no updates. Bytes are those
of the wire format's JSON (wukongs/wire/protocol_codec.py); CPU: of writing, reading and taking in what is told; lag:
by how many stream batches the stable VTS of the node that is furthest behind trails.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from typing import NamedTuple

from wukongs.protocol.actions import SealBatch, Send
from wukongs.protocol.events import Event, Inserted, Marker, Pulse, Received, Submitted
from wukongs.protocol.messages import Gossip, Incarnation, Message
from wukongs.protocol.node import step
from wukongs.protocol.records import DeclareStream
from wukongs.protocol.state import Cluster, Kept, boot
from wukongs.wire.codec import TELL, packet_of, read_packet_header, to_frames
from wukongs.wire.protocol_codec import encode, message_in, message_packet

WARM_UP = 8


class Traffic(NamedTuple):
    """Per node and pulse; report_bytes: of one report."""

    messages: float
    gossips: float
    size_bytes: float
    cpu_ms: float
    report_bytes: int
    lag_batches: float


class Quiet:
    """Nodes whose messages all arrive at once, in order."""

    def __init__(self, node_count: int, stream_count: int) -> None:
        self.rng = random.Random(1)
        cluster = Cluster(node_count, min(3, node_count))
        self.nodes = [boot(cluster, Incarnation(node, 0, 1), Kept()) for node in range(node_count)]
        self.streams = [f"http://example.org/stream/{number}" for number in range(stream_count)]
        self.waiting: list[tuple[int, Event]] = []
        self.messages: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        self.reported: list[int] = []
        """Of each report that was sent, how many streams it names."""

    def tell(self, node: int, event: Event) -> None:
        self.waiting.append((node, event))
        while self.waiting:
            node, event = self.waiting.pop(0)
            self.nodes[node], actions = step(self.nodes[node], event)
            for action in actions:
                if isinstance(action, Send):
                    self._send(action, Message(self.nodes[node].me, action.body))
                elif isinstance(action, SealBatch):
                    self.waiting.append((node, Inserted(action.stream, action.batch)))

    def _send(self, action: Send, message: Message) -> None:
        kind = type(action.body).__name__
        self.messages[kind] += 1
        frames = to_frames(
            message_packet(message), TELL, 1, (message.sender.node, message.sender.disk, message.sender.boot)
        )
        self.sizes[kind] += sum(map(len, frames))
        heard = message_in(packet_of(read_packet_header(frames), frames))
        self.waiting.append((action.node, Received(heard)))
        if isinstance(action.body, Gossip):
            self.reported += [len(report.vts) for report in action.body.reports]

    def brings(self, stream: str, batch: int) -> None:
        """Let all nodes take in a stream batch."""
        for node in range(len(self.nodes)):
            self.tell(node, Marker(stream, "a", 1, batch, 0))

    def all_bring(self, batch: int) -> None:
        """Let all nodes take in a stream batch of each stream, and then a pulse."""
        for stream in self.streams:
            self.brings(stream, batch)
        self.pulse()

    def pulse(self) -> None:
        """Let all nodes take in a pulse, in any order."""
        for node in self.rng.sample(range(len(self.nodes)), len(self.nodes)):
            self.tell(node, Pulse(self.rng.getrandbits(40)))

    def lag(self, batch: int) -> int:
        return batch - min(node.progress.stable.get(stream, 0) for node in self.nodes for stream in self.streams)


def settled(node_count: int, stream_count: int) -> Quiet:
    """Return a cluster that knows its leader and its streams."""
    quiet = Quiet(node_count, stream_count)
    for _ in range(2 * WARM_UP):
        quiet.pulse()
    for stream in quiet.streams:
        quiet.tell(0, Submitted(DeclareStream(stream, ("a",), 100)))
    for _ in range(WARM_UP):
        quiet.pulse()
    return quiet


def measured(node_count: int, stream_count: int, pulses: int) -> Traffic:
    """Return the traffic of a cluster after it has settled."""
    quiet = settled(node_count, stream_count)
    for batch in range(1, WARM_UP):
        quiet.all_bring(batch)
    quiet.messages.clear()
    quiet.sizes.clear()
    lags, cpu_s = [], 0.0
    for batch in range(WARM_UP, WARM_UP + pulses):
        began_s = time.process_time()
        quiet.all_bring(batch)
        cpu_s += time.process_time() - began_s
        lags.append(quiet.lag(batch))
    share = 1 / (pulses * node_count)
    report = encode(quiet.nodes[0].progress.latest[0])
    return Traffic(
        sum(quiet.messages.values()) * share,
        quiet.messages["Gossip"] * share,
        sum(quiet.sizes.values()) * share,
        1e3 * cpu_s * share,
        len(json.dumps(report, separators=(",", ":"))),
        sum(lags) / len(lags),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.traffic", description=__doc__.partition("\n")[0])
    parser.add_argument("sizes", nargs="*", default=["4:1", "4:10", "10:1", "10:10", "30:1", "30:10", "100:1"])
    parser.add_argument("--pulses", type=int, default=10)
    options = parser.parse_args(arguments)
    print("| nodes | streams | messages | of them gossip | bytes | CPU, ms | bytes of a report | lag, stream batches |")
    print("|---|---|---|---|---|---|---|---|")
    for size in options.sizes:
        nodes, streams = map(int, size.split(":"))
        found = measured(nodes, streams, options.pulses)
        print(
            f"| {nodes} | {streams} | {found.messages:.1f} | {found.gossips:.1f} | {found.size_bytes:,.0f} | "
            f"{found.cpu_ms:.2f} | {found.report_bytes} | {found.lag_batches:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

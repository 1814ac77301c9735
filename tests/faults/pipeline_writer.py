"""The writer of test_pipeline.py, in a process of its own: replays timestamped files to a node, without Spark."""

from __future__ import annotations

import sys

import wukongs
from wukongs.adapters.replay import replay
from wukongs.adapters.run_config import PipelineConfig, StreamConfig, TimestampedSource
from wukongs.wire.link import IngestLink

if __name__ == "__main__":
    address, rows_per_epoch, *pairs = sys.argv[1:]
    streams = [
        StreamConfig(iri=iri, sources=(TimestampedSource(paths=(path,)),))
        for iri, path in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    with wukongs.connect(address, silence_s=60) as node:  # it is killed and started again meanwhile
        addresses = node.listen().split(",")
    print("ready", flush=True)
    with IngestLink(addresses, timeout_s=120) as link:  # on a busy machine five lives of the node may take a minute
        replay(streams, link, PipelineConfig(rows_per_epoch=int(rows_per_epoch), align_ms=100))

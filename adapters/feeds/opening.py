"""Opens the feeds of a run: what a run file says of each source becomes a feed that a planner can take up."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from wukongs.adapters.feeds.decoder import Decoder
from wukongs.adapters.feeds.feed import Feed, FeedKind, FileFeed, Opening
from wukongs.adapters.feeds.kinds import KINDS
from wukongs.adapters.feeds.spool import Spool
from wukongs.adapters.feeds.spool_feed import SpoolFeed
from wukongs.adapters.mapping.mapping import Csv
from wukongs.adapters.run_config import LiveSource, PipelineConfig, RecordSource, StreamConfig
from wukongs.adapters.source import Lateness
from wukongs.adapters.sources import check_names, prepare

UNSYNCED_MS = 3_600_000
"""How often the spool of one run is synced: it ends with its engine."""
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def open_feeds(
    streams: Sequence[StreamConfig],
    config: PipelineConfig,
    folder: Path,
    say: Callable[[str], None],
    stop: threading.Event,
) -> list[Feed]:
    """Open the sources of the streams, without reading yet. folder: of this run, for spools where the configuration
    names none, and for unpacked copies; stop: set when the run is to stop.

    Raises: SettingsError (two source partitions of one name, a spool that another process has open); DataError."""
    feeds: list[Feed] = []
    try:
        for stream in streams:
            for source in stream.live_sources:
                feeds += _live(stream.iri, source, config, folder, say, stop)
            feeds += [FileFeed(one) for one in prepare([stream], folder, say)]
        check_names([(feed.stream, feed.source.partition) for feed in feeds])
    except BaseException:
        for feed in feeds:
            feed.close()
        raise
    return feeds


def _live(
    stream: str,
    source: LiveSource,
    config: PipelineConfig,
    folder: Path,
    say: Callable[[str], None],
    stop: threading.Event,
) -> list[Feed]:
    def decoder(partition: str) -> Decoder:
        lateness = Lateness(source.waits.lateness_ms, source.waits.carry_rule)
        return Decoder(partition, partition, source.format, lateness, source.waits.jump_max_ms)

    kind = KINDS[source.kind]
    if isinstance(kind, FeedKind):
        return kind.feeds(Opening(stream, source.options, source.name, source.waits, decoder, say, stop))
    partition = source.name or kind.name(source.options)
    spools = Path(config.spool) if config.spool else folder
    own = f"{_ODD.sub('-', partition)[:60]}-{zlib.crc32(f'{stream} {partition}'.encode()):08x}"
    spool = Spool(spools / own, config.spool_sync_ms if config.spool else UNSYNCED_MS, config.spool_bytes_max)
    reader = kind.reader(source.options, _csv(source))
    return [SpoolFeed(stream, reader, spool, decoder(partition), source.waits, say)]


def _csv(source: LiveSource) -> Csv | None:
    """Return how lines are written that have names for their fields, None for other formats. With a header its columns
    are those that the mapping reads."""
    format = source.format
    if not isinstance(format, RecordSource) or format.kind not in ("csv", "tsv"):
        return None
    csv = format.mapping.csv or Csv(delimiters="\t" if format.kind == "tsv" else ",")
    return replace(csv, columns=format.mapping.columns) if csv.header else csv

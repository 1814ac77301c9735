"""The file sources, and how a run configuration names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wukongs.adapters.run_config import StreamConfig
    from wukongs.adapters.source import PreparedSource


def prepare(
    streams: Sequence[StreamConfig], folder: Path, say: Callable[[str], None] = lambda text: None
) -> list[PreparedSource]:
    """Open and index every source partition of the streams that is a file; unpacked copies go to the
    folder, which is theirs alone. say: shows a line of progress, where a file is sorted.

    Raises: DataError (a file that cannot be read), SettingsError (a mapping; two partitions of one name)."""
    from wukongs.adapters.run_config import LsbenchSource, RdfSource, RecordSource, TimestampedSource
    from wukongs.adapters.source import PreparedSource

    prepared: list[PreparedSource] = []
    for stream, config in ((one, config) for one in streams for config in one.sources):
        if isinstance(config, TimestampedSource):
            from wukongs.adapters.sources.timestamped_file import prepare_timestamped

            files = [
                prepare_timestamped(path, config.timestamps, folder, config.is_sorted, say) for path in config.paths
            ]
            prepared += [PreparedSource(stream.iri, source, index) for source, index in files]
        elif isinstance(config, RecordSource):
            from wukongs.adapters.sources.record_file import prepare_records

            records = [prepare_records(config, path, folder, say=say) for path in config.paths]
            prepared += [PreparedSource(stream.iri, *found) for found in records]
        elif isinstance(config, RdfSource):
            from wukongs.adapters.sources.rdf_messages import prepare_rdf

            messages = [prepare_rdf(config, path, folder, say) for path in config.paths]
            prepared += [PreparedSource(stream.iri, *found) for found in messages]
        elif isinstance(config, LsbenchSource):
            from wukongs.adapters.sources.lsbench_file import prepare_lsbench

            prepared.append(PreparedSource(stream.iri, *prepare_lsbench(config, folder)))
    check_names([(one.stream, one.source.partition) for one in prepared])
    return prepared


def check_names(partitions: Sequence[tuple[str, str]]) -> None:
    """Raises: SettingsError (two partitions of one stream with one name)."""
    from wukongs.errors import SettingsError

    for stream_iri, partition in partitions:
        if partitions.count((stream_iri, partition)) > 1:
            raise SettingsError(f"stream {stream_iri}: two of its sources are called {partition}. Rename one of them")

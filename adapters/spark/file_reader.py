"""Reads the sources of a stream of a run file as a streaming DataFrame: a row for each triple, with its time.

The files are indexed in a process of Spark, which also finds where each micro-batch ends, as the pipeline does
(wukongs.adapters.planner). Tasks get byte ranges, and read the files at the same path.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from wukongs.adapters.epochs import balanced
from wukongs.adapters.planner import EpochPlanner, ReplayPosition
from wukongs.adapters.push import WorkItem
from wukongs.adapters.run_config import PipelineConfig, StreamConfig, load_run_config
from wukongs.adapters.scratch import ScratchFolder
from wukongs.adapters.source import Rows
from wukongs.adapters.spark.cells import typed_batch
from wukongs.adapters.spark.options import FILES, Options
from wukongs.errors import SettingsError
from wukongs.query.terms.rdf_terms import to_ntriples
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import HASH_BITS, is_inlined, unpack
from wukongs.wire.messages import Opened

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table
    from pyspark.sql.types import StructType

FILE_SCHEMA = "subject string, predicate string, object string, graph string, time bigint"
BATCH_MS = 1000
"""Micro-batches end at multiples of it where the run file does not say how long a stream batch is."""


@dataclass
class FilePartition(InputPartition):
    """The ranges of rows that one task reads."""

    items: list[WorkItem]


class FileReader(DataSourceStreamReader):
    """Offsets are ReplayPositions. `read` is the worker's side; everything else runs in the planner's process."""

    def __init__(self, stream: StreamConfig, config: PipelineConfig, schema: StructType) -> None:
        self._stream, self._config, self._schema = stream, config, schema
        self._folder: ScratchFolder | None = None
        self._planner: EpochPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._planned().start.to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return where the next micro-batch ends, start if the replay's clock lets none begin yet, or at the end."""
        return self._planned().follow(ReplayPosition.from_json(start), threading.Event(), 0.0).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        items = self._planned().items(ReplayPosition.from_json(start), ReplayPosition.from_json(end))
        return [FilePartition(part) for part in balanced(items, self._config.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read a task's rows. Raises: DataError (a file that is gone or was changed)."""
        assert isinstance(partition, FilePartition), partition
        for item in partition.items:
            for chunk in item.chunks:
                rows = item.setup.source.read(chunk, item.setup.stream.encode(), item.setup.hash_bits)
                yield from typed_batch(table_of(rows), self._schema).to_batches()

    def stop(self) -> None:
        if self._folder is not None:
            self._folder.close()

    def _planned(self) -> EpochPlanner:
        from wukongs.adapters.sources import prepare

        if self._planner is None:
            self._folder = ScratchFolder("files")
            prepared = prepare([self._stream], self._folder.path)
            opened = Opened(self._stream.batch_ms or BATCH_MS, None, False, 0, HASH_BITS)
            self._planner = EpochPlanner(prepared, [opened] * len(prepared), 0, self._config)
        return self._planner


def table_of(rows: Rows) -> Table:
    """Return the triples as columns of N-Triples terms, with their times in ms."""
    import pyarrow as pa

    encoded = rows.encoded
    columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs)
    ids = np.unique(np.concatenate(columns))
    ids = ids[ids != UNBOUND]
    texts = _texts(ids, dict(zip(encoded.terms.ids.tolist(), encoded.terms.texts(), strict=True)))
    known = pa.array(texts, pa.string())
    names = ("subject", "predicate", "object", "graph")
    found = {
        name: known.take(pa.array(np.searchsorted(ids, column), mask=column == UNBOUND))
        for name, column in zip(names, columns, strict=True)
    }
    return pa.table({**found, "time": pa.array(encoded.timestamps)})


def _texts(ids: Int64Array, terms: dict[int, str]) -> list[str]:
    """Return the terms of ids as N-Triples."""
    inlined = ids[is_inlined(ids)]
    text, offsets = unpack(inlined)
    raw, bounds = text.tobytes(), offsets.tolist()
    known = {one: raw[bounds[at] : bounds[at + 1]].decode() for at, one in enumerate(inlined.tolist())}
    return [to_ntriples(known[one] if one in known else terms[one]) for one in ids.tolist()]


def file_reader(given: Any, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of the options. Raises: SettingsError (an option, the run file, its streams)."""
    options = Options(given, FILES)
    path = options.needed("runfile", "traffic.toml")
    config = load_run_config(Path(path).absolute())
    wanted = options.text("stream")
    found = [stream for stream in config.streams if wanted in (None, stream.iri)]
    if len(found) != 1:
        names = ", ".join(stream.iri for stream in config.streams)
        raise SettingsError(f"option 'stream' = {wanted!r}: expected one of the streams of {path}: {names}")
    return FileReader(found[0], config.pipeline, schema)

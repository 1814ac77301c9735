"""The Python Data Source of the pipeline: its reader plans epochs, its tasks push to the nodes and yield counts.

One streaming query serves all streams. The planner runs in a long-lived process of Spark's own; tasks run in workers,
each with one link to the nodes that lives as long as the worker. Nothing but a row of counts per source partition goes
through the JVM.
"""

from __future__ import annotations

import gc
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from wukongs.adapters.planner import EpochPlanner, ReplayClock, ReplayPosition, WorkItem, balanced
from wukongs.adapters.push import PushStats, push_item
from wukongs.adapters.run_config import PipelineConfig
from wukongs.adapters.source import PreparedSource, SourceIndex, StreamSource
from wukongs.errors import WukongsError
from wukongs.wire.link import IngestLink
from wukongs.wire.messages import Opened
from wukongs.wire.sharding import ShardMap

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "wukongs"
SCHEMA = "stream string, partition string, end_offset long, triples long, set_aside long, seconds double"

_links: dict[tuple[int, str], IngestLink] = {}
"""By process, and by the folder of the pipeline's plan."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Everything that the planner and the tasks need; small, since it travels. folder holds indexes and reports."""

    folder: str
    addresses: tuple[str, ...]
    streams: tuple[str, ...]
    sources: tuple[StreamSource, ...]
    opened: tuple[Opened, ...]
    epoch: int
    config: PipelineConfig
    timeout_s: float

    def link(self) -> IngestLink:
        """Return a link to the nodes, which divides pieces as they have told."""
        place = next((one.place for one in self.opened), None)
        shard_map = None if place is None else ShardMap.of(place)
        return IngestLink(self.addresses, shard_map=shard_map, timeout_s=self.timeout_s)

    def planner(self) -> EpochPlanner:
        """Make the planner; the indexes are mapped from the folder."""
        prepared = [
            PreparedSource(stream, source, load_index(Path(self.folder), number))
            for number, (stream, source) in enumerate(zip(self.streams, self.sources, strict=True))
        ]
        return EpochPlanner(prepared, self.opened, self.epoch, self.config)


def save_index(folder: Path, number: int, index: SourceIndex) -> None:
    np.save(folder / f"index-{number}-times.npy", index.times)
    np.save(folder / f"index-{number}-starts.npy", index.starts)


def load_index(folder: Path, number: int) -> SourceIndex:
    return SourceIndex(
        np.load(folder / f"index-{number}-times.npy", mmap_mode="r"),
        np.load(folder / f"index-{number}-starts.npy", mmap_mode="r"),
    )


@dataclass
class TaskPartition(InputPartition):
    """The work of one task in one epoch."""

    items: list[WorkItem]


def data_source_for(plan: PipelinePlan) -> type[DataSource]:
    """Return the data source class of one pipeline; Spark carries it, with the plan, to where it is needed."""

    class WukongsDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return WukongsReader(plan)

    return WukongsDataSource


class WukongsReader(DataSourceStreamReader):
    """Offsets are Positions. `read` is the worker's side; everything else runs in the planner's process."""

    def __init__(self, plan: PipelinePlan) -> None:
        self._plan = plan
        self._planner_: EpochPlanner | None = None
        self._clock: ReplayClock | None = None
        self._resumed = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_plan": self._plan, "_planner_": None, "_clock": None, "_resumed": False}

    def initialOffset(self) -> dict[str, Any]:
        return self._planner().start.to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return where the next epoch ends: admission by rows, event-time span and the replay's clock."""
        position = ReplayPosition.from_json(start)
        if self._clock is None:
            self._clock = ReplayClock(position.horizon_ms, self._plan.config.speed)
        return self._planner().next(position, self._clock.event_limit_ms(time.monotonic())).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planner, first, last = self._planner(), ReplayPosition.from_json(start), ReplayPosition.from_json(end)
        if not self._resumed:
            first, self._resumed = planner.resumed(first, last), True
        return [TaskPartition(items) for items in balanced(planner.items(first, last), self._plan.config.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Push a task's items; yields one row per item."""
        items = getattr(partition, "items", [])
        yield _counts([run_task_item(self._plan, item) for item in items])

    def _planner(self) -> EpochPlanner:
        if self._planner_ is None:
            self._planner_ = self._plan.planner()
        return self._planner_


def run_task_item(plan: PipelinePlan, item: WorkItem) -> PushStats:
    """Push one item from a worker and leave its report in the plan's folder; an error is left there by name, too."""
    link = _worker_link(plan)
    try:
        stats = push_item(item, link)
    except WukongsError as error:
        _links.pop((os.getpid(), plan.folder), None)
        link.close()
        _leave(Path(plan.folder), "error", {"error": type(error).__name__, "message": str(error)})
        raise
    _leave(Path(plan.folder), "done", stats.to_json())
    return stats


def _worker_link(plan: PipelinePlan) -> IngestLink:
    """Return this worker's link to the nodes. Sockets do not survive a fork, so it is made here, once per process."""
    key = os.getpid(), plan.folder
    if key not in _links:
        for _, old in [_links.popitem() for _ in list(_links)]:
            old.close()
        _links[key] = plan.link()
        gc.freeze()  # Spark collects garbage after every task: what is loaded by now need not be looked at again
    return _links[key]


def _leave(folder: Path, kind: str, content: dict[str, Any]) -> None:
    """Write a report under its final name only when it is whole."""
    name = f"{kind}-{time.time_ns()}-{uuid.uuid4().hex}"
    partial = folder / f".{name}"
    partial.write_text(json.dumps(content), "utf-8")
    partial.rename(folder / name)


def _counts(stats: Sequence[PushStats]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch(
        {
            "stream": pa.array([one.stream for one in stats], pa.string()),
            "partition": pa.array([one.partition for one in stats], pa.string()),
            "end_offset": pa.array([one.end_offset for one in stats], pa.int64()),
            "triples": pa.array([one.triples for one in stats], pa.int64()),
            "set_aside": pa.array([one.malformed + one.backwards for one in stats], pa.int64()),
            "seconds": pa.array([one.seconds for one in stats], pa.float64()),
        }
    )

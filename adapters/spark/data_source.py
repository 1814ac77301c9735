"""The Python Data Source of the pipeline: its reader hands on the driver's plan, its tasks push to the nodes.

One streaming query serves all streams. The reader's plan side runs in a long-lived process of Spark's own and asks the
driver; tasks run in workers, each with links to the nodes and to the driver that live as long as the worker. No row
goes through the JVM.

Spark starts a process for each step of its planning, and each one imports this module. So it imports little: what only
a task needs is imported by the task, and the setups travel pickled.
"""

from __future__ import annotations

import gc
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from wukongs.adapters.milestones import passed
from wukongs.errors import WukongsError

if TYPE_CHECKING:
    from wukongs.adapters.push import WorkItem
    from wukongs.adapters.spark.driver_channel import DriverAddress, DriverChannel
    from wukongs.wire.link import IngestLink
    from wukongs.wire.messages import Place
    from wukongs.wire.trust import Keys

NAME = "wukongs_pipeline"
"""Not the name of the public data source, which a session may have registered, too."""
SCHEMA = "nothing long"


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Everything that Spark's processes need from the start; small, since it travels.

    place: of the nodes' cluster; setups: the PartitionSetups, pickled; speed: of the replay's clock, 0: none; token,
    keys: what the nodes ask for."""

    driver: DriverAddress
    addresses: tuple[str, ...]
    place: Place | None
    setups: bytes
    timeout_s: float
    speed: float = 0.0
    token: str | None = field(default=None, repr=False)
    keys: Keys | None = field(default=None, repr=False)


@dataclass
class TaskPartition(InputPartition):
    """The work of one task in one epoch."""

    items: list[dict[str, Any]]


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

    def initialOffset(self) -> dict[str, Any]:
        return _connections(self._plan).driver.start()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return where the next epoch ends."""
        return _connections(self._plan).driver.next(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = _connections(self._plan).driver.tasks(start, end)
        return [TaskPartition(items) for items in tasks]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Push a task's items, each when the replay's clock is at its end; yields nothing."""
        assert isinstance(partition, TaskPartition), partition
        passed("first task")
        from wukongs.adapters.planner import ReplayClock
        from wukongs.adapters.spark.driver import item_of

        setups = pickle.loads(self._plan.setups)
        reached_ms = _connections(self._plan).driver.reached_ms() if self._plan.speed else 0
        clock = ReplayClock(reached_ms, self._plan.speed)
        for fields in partition.items:
            item = item_of(fields, setups)
            time.sleep(clock.seconds_until(item.complete_ms, time.monotonic()))
            run_task_item(self._plan, item)
        return iter(())


def run_task_item(plan: PipelinePlan, item: WorkItem) -> None:
    """Push one item from a worker and report to the driver; an error is reported by name, too."""
    from wukongs.adapters.push import push_item

    to = _connections(plan)
    passed("first task has its links")
    try:
        stats = push_item(item, to.nodes(), to.driver.report_bad)
    except WukongsError as error:
        to.driver.report_error(error)
        _forget()
        raise
    to.driver.report(stats)


class _Connections:
    """The connections of this process. The planner's has none to the nodes."""

    def __init__(self, plan: PipelinePlan) -> None:
        self._plan = plan
        self.driver: DriverChannel = plan.driver.connect(plan.timeout_s)
        self._nodes: IngestLink | None = None

    def nodes(self) -> IngestLink:
        """Return the link to the nodes, which divides pieces as they have told."""
        if self._nodes is None:
            from wukongs.wire.link import IngestLink

            plan = self._plan
            self._nodes = IngestLink(
                plan.addresses, place=plan.place, timeout_s=plan.timeout_s, token=plan.token, keys=plan.keys
            )
            gc.freeze()  # Spark collects garbage after every task: what is loaded by now need not be looked at again
        return self._nodes

    def close(self) -> None:
        self.driver.close()
        if self._nodes is not None:
            self._nodes.close()


_kept: dict[tuple[int, str], _Connections] = {}
"""By process and by the pipeline's key: at most one. Sockets do not survive a fork, so each process makes its own. A
later pipeline's driver may listen on the port of an earlier one."""


def _connections(plan: PipelinePlan) -> _Connections:
    key = os.getpid(), plan.driver.keys.own.public
    if key not in _kept:
        _forget()
        _kept[key] = _Connections(plan)
    return _kept[key]


def _forget() -> None:
    while _kept:
        _kept.popitem()[1].close()

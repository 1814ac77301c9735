"""PipelineDriver: what Spark's processes ask of the process that started the pipeline, and what they report to it.

Spark's planner process asks where the next epoch ends and what its tasks do. Workers report each item that is pushed,
the rows that are set aside, and each error. All ask over ZeroMQ, as clients ask a node; the keys are made anew for
each pipeline.

* A task ends only when its reports are answered, so none is lost: Spark runs the task of a killed worker again.
* A report may come twice, from a task that is run again. Tally counts it once.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from queue import Empty, SimpleQueue
from typing import Any, Generic

from wukongs.adapters.bad_records import BadRows
from wukongs.adapters.epochs import P, Planner
from wukongs.adapters.milestones import passed
from wukongs.adapters.push import PartitionSetup, PushStats, WorkItem
from wukongs.adapters.replay import PipelineReport
from wukongs.adapters.run_config import PipelineConfig
from wukongs.adapters.source import RowRange
from wukongs.adapters.spark.driver_channel import DriverAddress
from wukongs.errors import WukongsError
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.context import new_key_pair
from wukongs.wire.keys import KeyPair
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import REFUSED, error_in
from wukongs.wire.trust import ANY, Gate, Keys

_ALL_IS_DUE_MS = 1 << 62
WAIT_S_MAX = 0.25
"""How long the driver leaves Spark without an answer while the replay's clock lets no epoch begin."""


class Settled:
    """Says that Spark has noted the last epoch in its checkpoint: it asks what follows."""


News = PushStats | BadRows | WukongsError | Settled


class PipelineDriver(Generic[P]):
    """Listens on an address of the driver's machine, at a free port, until it is closed.

    host: how other machines call this one; bind_host: the address of it to listen on (Spark's driver.host and
    driver.bindAddress)."""

    def __init__(self, planner: Planner[P], config: PipelineConfig, host: str, bind_host: str) -> None:
        self._planner, self._config = planner, config
        self._resumed: P | None = None
        self._is_released = threading.Event()
        self._is_at_rest = threading.Event()
        self._is_at_rest.set()
        self._news: SimpleQueue[News] = SimpleQueue()
        own, tasks = KeyPair(*new_key_pair()), KeyPair(*new_key_pair())
        handlers = {
            "pipeline.start": self._start,
            "pipeline.next": self._next,
            "pipeline.tasks": self._tasks,
            "pipeline.clock": self._tell_clock,
            "pipeline.report": self._report,
            "pipeline.bad": self._bad,
            "pipeline.error": self._error,
        }
        gate = Gate(own, frozenset({tasks.public}))
        self._socket = ClientSocket(f"tcp://{socket.gethostbyname(bind_host)}:*", handlers, trust=gate)
        port = self._socket.address.rpartition(":")[2]
        self.address = DriverAddress(f"tcp://{host}:{port}", Keys(tasks, {ANY: own.public}))

    def news(self, timeout_s: float) -> list[News]:
        """Return all that has come since the last call, in order; wait for the first up to timeout_s seconds."""
        found: list[News] = []
        with suppress(Empty):
            found.append(self._news.get(timeout=timeout_s))
            while True:
                found.append(self._news.get_nowait())
        return found

    def release(self) -> None:
        """Let nobody wait for the replay's clock any more: the query is about to be stopped."""
        self._is_released.set()

    def wait_for_tasks(self, timeout_s: float) -> bool:
        """Wait until Spark has ended the epoch that was divided last; return whether it has. No other one begins once
        the driver is released."""
        return self._is_at_rest.wait(timeout_s)

    def close(self) -> None:
        self.release()
        self._socket.close()

    def _start(self, packet: Packet) -> Packet:
        passed("first planner call")
        return Packet("pipeline.start", {"position": self._named(self._planner.start)})

    def _next(self, packet: Packet) -> Packet:
        """Say where the next epoch ends; once released, that there is none."""
        self._is_at_rest.set()
        if self._is_released.is_set():
            return Packet("pipeline.next", {"position": packet.fields["position"]})
        position = self._planner.position(packet.fields["position"])
        if self._is_old(packet.fields["position"]):
            position = self._planner.continued(position, self._resumed)
        if position.finished:
            self._news.put(Settled())
            self._is_released.wait(WAIT_S_MAX)
        try:
            following = self._planner.follow(position, self._is_released, WAIT_S_MAX)
        except WukongsError as error:  # of a source: Spark would name it less well
            self._news.put(error)
            raise
        if following != position:
            self._is_at_rest.clear()
        return Packet("pipeline.next", {"position": self._named(following)})

    def _named(self, position: P) -> dict[str, Any]:
        """Return a position as Spark keeps it. It names its run: Spark begins no epoch that ends where an earlier run
        ended, though the nodes may have lost what that one sent."""
        return {**position.to_json(), "run": self._planner.epoch}

    def _is_old(self, position: dict[str, Any]) -> bool:
        """Tell whether an earlier run has planned up to this position."""
        return bool(position.get("run") != self._planner.epoch)

    def _tasks(self, packet: Packet) -> Packet:
        """Divide an epoch among tasks. The first epoch may be one of an earlier run: it goes on where the nodes are."""
        self._is_at_rest.clear()
        first, last = (self._planner.position(packet.fields[name]) for name in ("first", "last"))
        if self._is_old(packet.fields["last"]):
            self._resumed = last
            first, last = self._planner.resumed(first, last)
        elif self._is_old(packet.fields["first"]):
            first = self._planner.continued(first, self._resumed)
        tasks = self._planner.tasks(first, last, self._config.parallelism)
        return Packet("pipeline.tasks", {"tasks": [[_fields_of(item) for item in items] for items in tasks]})

    def _tell_clock(self, packet: Packet) -> Packet:
        reached_ms = self._planner.reached_ms()
        return Packet("pipeline.clock", {"reached_ms": _ALL_IS_DUE_MS if reached_ms is None else reached_ms})

    def _report(self, packet: Packet) -> Packet:
        passed("first acknowledged piece")
        stats = PushStats.from_json(dict(packet.fields))
        self._planner.taken(stats)
        self._news.put(stats)
        return Packet("pipeline.report")

    def _bad(self, packet: Packet) -> Packet:
        self._news.put(BadRows.from_json(dict(packet.fields)))
        return Packet("pipeline.bad")

    def _error(self, packet: Packet) -> Packet:
        error = error_in(Packet(REFUSED, packet.fields))
        assert error is not None, packet
        self._news.put(error)
        return Packet("pipeline.error")


class Tally:
    """Counts reports. The reports of one source partition rise in time, then in rows, then in being finished: one that
    does not is a repeat. report.finished: all partitions are."""

    def __init__(self, partition_count: int) -> None:
        self.report = PipelineReport()
        self._began_s = time.monotonic()
        self._unfinished_count = partition_count
        self._counted: dict[tuple[str, str], tuple[int, int, bool]] = {}
        self._epoch: tuple[int, bool] | None = None

    def count(self, stats: PushStats) -> None:
        """Add a report, unless it is a repeat."""
        key, place = (stats.stream, stats.partition), (stats.complete_ms, stats.end_offset, stats.finished)
        if key in self._counted and place <= self._counted[key]:
            return
        self._counted[key] = place
        self.report.add(stats)
        epoch = stats.complete_ms, stats.finished
        if self._epoch is None or epoch > self._epoch:
            self._epoch = epoch
            self.report.epochs += 1
        self._unfinished_count -= stats.finished
        self.report.finished = self._unfinished_count == 0
        self.stop_clock()

    def stop_clock(self) -> None:
        """Note how long it took so far."""
        self.report.seconds = time.monotonic() - self._began_s


def _fields_of(item: WorkItem) -> dict[str, Any]:
    return {
        "stream": item.setup.stream,
        "partition": item.setup.source.partition,
        "first_offset": item.first_offset,
        "end_offset": item.end_offset,
        "chunks": [astuple(chunk) for chunk in item.chunks],
        "complete_ms": item.complete_ms,
        "finish": item.finish,
        "lateness_ms": item.lateness_ms,
        "carried_count": item.carried_count,
    }


def item_of(fields: dict[str, Any], setups: Sequence[PartitionSetup]) -> WorkItem:
    key = fields["stream"], fields["partition"]
    return WorkItem(
        setup=next(one for one in setups if (one.stream, one.source.partition) == key),
        first_offset=fields["first_offset"],
        end_offset=fields["end_offset"],
        chunks=tuple(RowRange(*chunk) for chunk in fields["chunks"]),
        complete_ms=fields["complete_ms"],
        finish=fields["finish"],
        lateness_ms=fields["lateness_ms"],
        carried_count=fields["carried_count"],
    )

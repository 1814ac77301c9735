"""Pipelines whose rows come late, into clusters: windows are those that the rows alone give, whoever sends them again.

Each source partition is judged by an oracle of its own (tests/oracles/lateness.py): its writer decides by its rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.clusters import cluster, start_again
from tests.engine_helpers import EX, names, register_text
from tests.faults.test_lost_nodes import wait_until_out
from tests.fuzz import slow
from tests.oracles.lateness import Arrivals, OpenArrivals
from tests.unit.cluster.test_idleness import of_stream
from tests.unit.cluster.test_lateness import LONG_S, filled
from tests.unit.cluster.test_pipelines import fed_cluster
from wukongs.adapters.replay import replay
from wukongs.adapters.run_config import RunConfig, load_run_config
from wukongs.adapters.source import SetAside
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.installing import StreamTaken, Taken, standings
from wukongs.errors import NodeUnavailable
from wukongs.live.pieces import Piece
from wukongs.store.encoder import encode_columns
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink
from wukongs.wire.transport import DealerChannel

A = EX + "streamA"
BATCH_MS, HISTORY_MS, RANGE_MS = 100, 2000, 500
SOURCE = """
[[stream.source]]
kind = "folder"
name = "{name}"
path = "{name}"
format = "timestamped"
follow = false
idle_ms = 0
lateness_ms = {lateness_ms}
"""


@dataclass
class Story:
    """A run over some source partitions, and the arrivals of each of them."""

    config: RunConfig
    partitions: list[Arrivals]

    def windows(self) -> dict[int, list[str]]:
        """Return the windows with rows, from the arrivals alone: up to the end of the last stream batch."""
        found, ends = {}, [one.newest_ms or 0 for one in self.partitions]
        ends += [one.newest_end_ms() or 0 for one in self.partitions if isinstance(one, OpenArrivals)]
        for end in range(BATCH_MS, max(ends) + BATCH_MS, BATCH_MS):
            rows = {str(name) for one in self.partitions for name, _ in one.window(end - RANGE_MS, end)}
            if rows:
                found[end] = sorted(rows)
        return found

    @property
    def carried_count(self) -> int:
        return sum(len(one.carried) for one in self.partitions if isinstance(one, OpenArrivals))

    @property
    def late(self) -> list[int]:
        return sorted(int(one[-1]) for each in self.partitions for one in each.late)  # type: ignore[call-overload]


def story(
    folder: Path,
    draw: random.Random,
    late: str,
    names: Sequence[str],
    count: int = 250,
    closed_ms: int | None = None,
    rows_per_epoch: int = 50,
) -> Story:
    """Write the records of each partition, some of them late, and the run that reads them. closed_ms: up to where the
    stream is closed before."""
    lateness_ms = draw.choice([0, 50, 250]) if late == "open" else 250
    text = f'[pipeline]\nspool = "spool"\nbad_records_max = 1\nrows_per_epoch = {rows_per_epoch}\n'
    text += f'[[stream]]\niri = "{A}"\n'
    text += f'batch_ms = {BATCH_MS}\nhistory_ms = {HISTORY_MS}\nlate = "{late}"\ntiming = true\n'
    partitions = list[Arrivals]()
    for name in names:
        arrivals = OpenArrivals(lateness_ms, history_ms=HISTORY_MS) if late == "open" else Arrivals(lateness_ms)
        if closed_ms is not None:
            arrivals.advance(closed_ms)
        (folder / name).mkdir()
        lines, time_ms = list[str](), 3000
        for number in range(count):
            time_ms += draw.choice((0, 0, 10, 60))
            one = f"{name}{number}", time_ms + draw.choice((0, 0, -40, -200, -350, -700, -2500))
            arrivals.push([one])
            lines.append(f"<{EX}{one[0]}> <{EX}p> <{EX}o> . {one[1]}\n")
        (folder / name / "a.nt").write_text("".join(lines))
        text += SOURCE.format(name=name, lateness_ms=lateness_ms)
        partitions.append(arrivals)
    (folder / "run.toml").write_text(text)
    return Story(load_run_config(folder / "run.toml"), partitions)


def asked(nodes: Sequence[ClusterNode], late: Any, at: int = -1) -> Any:
    """Declare the stream, and return a query over it that is registered at a node."""
    nodes[0].engine.stream(A, batch_ms=BATCH_MS, history_ms=HISTORY_MS, late=late, timing=True)
    return nodes[at].engine.register(register_text(f"RANGE {RANGE_MS}ms STEP {BATCH_MS}ms"))


def check(nodes: Sequence[ClusterNode], query: Any, told: Story) -> None:
    """Compare all windows, and the counts of each node."""
    for node in nodes:
        node.engine.settle(LONG_S)
    assert filled(query) == told.windows()
    for node in nodes:
        stats = of_stream(node, "streamA")
        assert [stats[name] for name in ("carried", "passed_over")] == [told.carried_count, 0]


class Failing:
    """A connection that is cut off when so many pieces have gone."""

    def __init__(self, address: str, piece_count: int) -> None:
        self._channel, self._left = DealerChannel(address), piece_count

    def send(self, frames: Sequence[Any], /) -> None:
        if self._left > 0:
            self._left -= len(frames) > 1
            self._channel.send(frames)

    def receive(self, timeout_s: float, /) -> Any:
        return self._channel.receive(timeout_s)

    def close(self) -> None:
        self._channel.close()


def sent_in_part(told: Story, draw: random.Random, addresses: Sequence[str], pieces_max: int) -> bool:
    """Run the pipeline until its writer is cut off from each node after another number of pieces; return whether it
    was, before its end."""
    left = {address: draw.randint(1, pieces_max) for address in addresses}
    pipeline = replace(told.config.pipeline, rows_per_epoch=draw.choice([20, 70, 400]))
    link = IngestLink(addresses, channel=lambda address: Failing(address, left[address]), resend_s=0.05, timeout_s=0.2)
    with link, suppress(NodeUnavailable):
        return not replay(told.config.streams, link, pipeline).finished
    return True


def sent(told: Story, addresses: Sequence[str], **options: Any) -> list[SetAside]:
    """Run the pipeline to its end; return the rows that it sets aside."""
    bad = list[SetAside]()
    with IngestLink(addresses, **options) as link:
        report = replay(told.config.streams, link, told.config.pipeline, on_bad=lambda part, _: bad.extend(part.rows))
    assert report.finished
    return bad


@pytest.mark.parametrize(("node_count", "replica_count"), [(1, 1), slow(2, 2), slow(3, 2)])
def test_late_rows_reach_the_windows_that_are_not_closed(node_count: int, replica_count: int, tmp_path: Path) -> None:
    """Of two partitions, one of which is ahead of the other; old rows are set aside."""
    told = story(tmp_path, random.Random(node_count), "open", ["one", "two"])
    with fed_cluster(node_count, replica_count) as (nodes, addresses):
        query = asked(nodes, "open")
        bad = sent(told, addresses)
        nodes[-1].engine.settle(LONG_S)
        assert told.carried_count > 50
        assert filled(query) == told.windows()
        assert sorted(one.time_ms or 0 for one in bad) == told.late
        for node in nodes:
            stats = of_stream(node, "streamA")
            counts = [stats[name] for name in ("late", "carried", "dropped", "passed_over")]
            assert counts == [told.carried_count, told.carried_count, 0, 0]


@pytest.mark.parametrize(
    ("node_count", "replica_count", "late", "lives"),
    [(2, 2, "open", 3), slow(1, 1, "open", 8), slow(3, 2, "open", 12), slow(3, 1, "open", 12), slow(3, 2, "drop", 12)],
)
def test_a_writer_that_is_cut_off_leaves_its_decisions_to_the_next_one(
    node_count: int, replica_count: int, late: str, lives: int, tmp_path: Path
) -> None:
    """Nodes have different pieces of its last epoch, and the next writer divides rows among epochs otherwise."""
    draw = random.Random(node_count * 10 + lives)
    told = story(tmp_path, draw, late, ["one", "two"])
    with fed_cluster(node_count, replica_count) as (nodes, addresses):
        query = asked(nodes, late)
        for _ in range(lives):
            assert sent_in_part(told, draw, addresses, 200 // lives)
        sent(told, addresses)
        check(nodes, query, told)


@pytest.mark.slow
@pytest.mark.parametrize("late", ["open", "drop"])
def test_a_pipeline_that_joins_a_stream_decides_by_what_is_closed_there(late: Any, tmp_path: Path) -> None:
    """Later writers of its partitions do, too, whatever nodes have closed by then."""
    draw = random.Random(3)
    told = story(tmp_path, draw, late, ["one", "two"], closed_ms=4000)
    with fed_cluster(3, 2) as (nodes, addresses), IngestLink(addresses) as link:
        query = asked(nodes, late)
        link.open(A, "earlier", 1)
        link.close_batches(A, "earlier", 1, 0, 4000)
        nodes[0].engine.settle(LONG_S)
        for _ in range(4):
            assert sent_in_part(told, draw, addresses, 40)
        link.finish(A, "earlier", 1)
        sent(told, addresses)
        check(nodes, query, told)


@pytest.mark.slow
@pytest.mark.parametrize("late", ["open", "drop"])
def test_nodes_that_join_take_over_what_was_decided(late: Any, tmp_path: Path) -> None:
    """Nodes without data folders are lost and come back, one after the other, each between two writers."""
    draw = random.Random(5)
    told = story(tmp_path, draw, late, ["one", "two"])
    with cluster(3, 2) as nodes, ExitStack() as stack:
        sockets = [ClientSocket("tcp://127.0.0.1:*", {}, node.intake) for node in nodes]
        addresses = [socket.address for socket in sockets]
        stack.callback(lambda: [socket.close() for socket in sockets])
        query = asked(nodes, late, at=0)
        for lost in (1, 2, 1):
            assert sent_in_part(told, draw, addresses, 40)
            sockets[lost].close()
            nodes[lost].close()
            if draw.random() < 0.5:
                wait_until_out(nodes[0], lost)
            start_again(nodes, lost, replica_count=2)
            sockets[lost] = ClientSocket(addresses[lost], {}, nodes[lost].intake)
            assert sent_in_part(told, draw, addresses, 40)
        sent(told, addresses)
        check(nodes, query, told)


def test_a_node_that_joins_begins_where_all_donors_begin_a_piece() -> None:
    """Two donors have rows of one epoch in other pieces: of a writer that was killed, and of the next one."""

    def head(offset: int) -> dict[str, Any]:
        partition = [offset, 3, False, 1, 0, [[4, offset]]]
        return {"intakes": {"s": {"inserted": 3, "offsets": {"p": 60}, "partitions": {"p": partition}}}}

    def piece(first: int, end: int) -> Piece:
        encoded = encode_columns(["<http://ex/a>"], ["<http://ex/p>"], ["<http://ex/b>"], np.array([399]), scope=b"")
        return Piece("s", "p", 1, first, end, 0, 4, encoded, np.zeros(1, np.bool_))

    taken = Taken()
    taken.heads = [head(100), head(80)]
    pieces = [piece(60, 70), piece(70, 100), piece(60, 70), piece(70, 75), piece(75, 80)]
    taken.streams = {"s": StreamTaken(3, pieces)}
    found = standings(taken, "s")["p"]
    assert (found.offset, found.ends) == (70, ((4, 70),))


@pytest.mark.parametrize(("late", "lives"), [slow("open", 10), slow("drop", 10)])
def test_one_engine_takes_the_rows_of_several_writers_as_those_of_one(late: Any, lives: int, tmp_path: Path) -> None:
    """Each of them is cut off; the engine begins anew, on its data folder, before every second one."""
    draw = random.Random(8)
    told = story(tmp_path, draw, late, ["one", "two"])
    text, bad = register_text(f"RANGE {RANGE_MS}ms STEP {BATCH_MS}ms"), list[SetAside]()
    with ExitStack() as stack:
        for life in range(lives + 1):
            if life % 2 == 0:
                stack.close()
                engine = stack.enter_context(wukongs.Engine(tmp_path / "data"))
                engine.stream(A, batch_ms=BATCH_MS, history_ms=HISTORY_MS, late=late, timing=True)
                query = engine.register(text)
                next(query.results(timeout_s=0, group="readers"), None)
            if life < lives:
                assert sent_in_part(told, draw, [engine.listen()], 30)
            else:
                bad = sent(told, [engine.listen()])
        engine.settle(LONG_S)
        found = {one.end_ms: names(one) for one in query.results(timeout_s=0, group="readers")}
        assert {end: rows for end, rows in found.items() if rows} == told.windows()
        stats = engine.stats()["streams"][A]
        assert (stats["late"], stats["carried"]) == (told.carried_count, told.carried_count)
    assert {one.time_ms for one in bad} <= set(told.late)

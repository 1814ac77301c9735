"""Live views on a cluster whose nodes are killed while triples are inserted and deleted: what a reader has kept is the
answer of the text asked once."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.faults.test_cluster_processes import END_S, NODE, in_time, running
from tests.fuzz import first_and_rare
from tests.processes import child

P = "<http://ex/p>"
VIEWS = {
    "edges": f"SELECT ?s ?o WHERE {{ ?s {P} ?o }}",
    "hops": f"SELECT ?a ?c WHERE {{ ?a {P} ?b . ?b {P} ?c }}",
    "numbers": f"SELECT ?s (COUNT(*) AS ?n) WHERE {{ ?s {P} ?o }} GROUP BY ?s",
    "ends": f"SELECT DISTINCT ?a ?c WHERE {{ ?a {P} ?b OPTIONAL {{ ?b {P} ?c }} }}",
    "least": f"SELECT ?s ?o WHERE {{ ?s {P} ?o }} ORDER BY ?s ?o LIMIT 5",
    "paths": f"SELECT ?c WHERE {{ <http://ex/n0> {P}+ ?c }}",
}
Row = tuple[str | None, ...]


def rows_of(rows: Any) -> list[Row]:
    return [tuple(None if term is None else repr(term) for term in row) for row in rows]


class Reader:
    """Keeps the sum of the reports of one view, in a thread; each is acknowledged by asking for the next one."""

    def __init__(self, client: wukongs.RemoteEngine, name: str, group: str | None) -> None:
        self.name, self.sum, self.sn, self.resets = name, Counter[Row](), -1, 0
        self.changed_sn = -1
        """Where its sum has changed last: only marks of progress lead from there to sn, and no log has these."""
        self.faults: list[str] = []
        self._view: Any = client.register(f"REGISTER QUERY {name} AS {VIEWS[name]}")
        self._group, self._is_over = group, False
        self.is_named = group is not None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            try:
                for report in self._view.results(timeout_s=0.5, group=self._group, progress=True):
                    self._take(report)
            except wukongs.WukongsError as error:
                if not isinstance(error, wukongs.NodeUnavailable):
                    self.faults.append(repr(error))
                time.sleep(0.05)

    def _take(self, report: Any) -> None:
        if report.is_reset:
            self.sum, self.resets = Counter(), self.resets + 1
        elif report.snapshot <= self.sn:
            return  # it had it before
        elif not self.changed_sn <= report.after <= self.sn:
            self.faults.append(f"a change from {report.after} for a reader at {self.sn}")
        for row, weight in zip(rows_of(row for row, _ in report.changes()), report.weights.tolist(), strict=True):
            self.sum[row] += weight
        self.sum = Counter({row: count for row, count in self.sum.items() if count})
        if report.is_reset or len(report):
            self.changed_sn = report.snapshot
        if min(self.sum.values(), default=1) < 0:
            self.faults.append(f"at SN {report.snapshot}: {self.sum}")
        self.sn = report.snapshot

    def end(self) -> None:
        self._is_over = True
        self._thread.join(END_S)


class Writer:
    """Inserts and deletes random triples, in a thread, until it is ended."""

    def __init__(self, client: wukongs.RemoteEngine) -> None:
        self._client, self._random, self._is_over = client, random.Random(5), False
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            node = self._random.randrange
            some = (f"<http://ex/n{node(9)}> {P} <http://ex/n{node(9)}>" for _ in range(2))
            word = self._random.choice(("INSERT", "INSERT", "DELETE"))
            text = f"{word} DATA {{ {' . '.join(some)} }}"
            in_time(lambda text=text: self._client.update(text))  # type: ignore[misc]
            self.count += 1
            time.sleep(0.01)

    def wait_for(self, count: int) -> None:
        wanted, deadline = self.count + count, time.monotonic() + END_S
        while self.count < wanted:
            assert time.monotonic() < deadline, self.count
            time.sleep(0.05)

    def end(self) -> None:
        self._is_over = True
        self._thread.join(END_S)


@pytest.mark.slow
def test_readers_of_views_keep_their_sums_right_while_nodes_are_killed(tmp_path: Path) -> None:
    with running(tmp_path, 3, "replicas = 2") as nodes, ExitStack() as stack:

        def connect(*numbers: int) -> wukongs.RemoteEngine:
            addresses = [nodes.clients[number] for number in numbers]
            return stack.enter_context(wukongs.connect(addresses, silence_s=20))

        def again(number: int) -> None:
            nodes.processes[number].wait(END_S)
            nodes.processes[number] = stack.enter_context(child([*NODE, nodes.file(number)]))
            told = nodes.processes[number].stdout
            assert told is not None
            assert told.readline().strip() == nodes.clients[number]

        client = connect(0, 1, 2)
        readers = [Reader(connect(2, 0, 1), name, group) for name in VIEWS for group in (None, "readers")]
        assert client.stats()["registered"].keys() == VIEWS.keys()
        writer = Writer(connect(0, 1, 2))
        writer.wait_for(50)
        os.kill(nodes.processes[1].pid, signal.SIGKILL)  # it answers for a part of the triples
        writer.wait_for(100)
        again(1)
        writer.wait_for(50)
        assert {tuple(nodes) for nodes in client.stats()["registered"].values()} == {(2,)}
        os.kill(nodes.processes[2].pid, signal.SIGKILL)  # the views stand there
        writer.wait_for(100)
        assert not any(2 in homes for homes in client.stats()["registered"].values()), "they have moved"
        again(2)
        writer.wait_for(50)
        writer.end()
        in_time(lambda: client.settle(END_S))
        sn = int(client.stats()["sn"])
        deadline = time.monotonic() + END_S
        while any(reader.sn < sn for reader in readers) and time.monotonic() < deadline:
            time.sleep(0.1)
        for reader in readers:
            reader.end()
            assert not reader.faults, (reader.name, reader.faults)
            assert reader.sum == Counter(rows_of(client.query(VIEWS[reader.name]))), (reader.name, reader.sn, sn)
            assert reader.resets <= 3, "one at the beginning, one when the view has moved, one for a lost look-up"
        assert any(reader.is_named and reader.resets == 1 for reader in readers), "named ones go on where they were"


@pytest.mark.slow
@pytest.mark.parametrize("is_signed", first_and_rare([True, False]))
def test_a_stream_that_a_view_makes_gets_each_triple_once_while_nodes_are_killed(
    tmp_path: Path, is_signed: bool
) -> None:
    """The node of the view is killed, and then the one that has taken it over. Each triple is inserted once and some
    are deleted later, so the windows have each once; a stream that joins the stored graph leaves what is there."""
    made, graph = "http://ex/made", "http://ex/g"
    text = f"CONSTRUCT {{ ?s <http://ex/seen> ?o }} WHERE {{ ?s {P} ?o }}"
    with running(tmp_path, 3, "replicas = 2") as nodes, ExitStack() as stack:

        def connect(*numbers: int) -> wukongs.RemoteEngine:
            addresses = [nodes.clients[number] for number in numbers]
            return stack.enter_context(wukongs.connect(addresses, silence_s=20))

        client = connect(0, 1, 2)
        clock = client.stream("http://ex/clock", batch_ms=10)
        clock.advance(0)
        client.settle(END_S)
        client.stream(made, batch_ms=100, **({"into": graph} if is_signed else {"timing": True}))  # type: ignore[arg-type]
        connect(2, 0, 1).register(f"REGISTER QUERY v AS {text}", into=made, every_ms=100)
        windows: Any = client.register(
            f"REGISTER QUERY w AS SELECT ?s ?o FROM STREAM <{made}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
        )
        found, there, killed, now_ms = Counter[Row](), set[Row](), list[int](), 0
        ended, away = set[int](), 0
        for number in range(60):
            row = f"<http://ex/n{number}>", "<http://ex/o>"
            in_time(lambda row=row: client.update(f"INSERT DATA {{ {row[0]} {P} {row[1]} }}"))  # type: ignore[misc]
            there.add(row)
            if number % 4 == 3:  # its insert is in a period before
                gone = f"<http://ex/n{number - 3}>", "<http://ex/o>"
                in_time(lambda gone=gone: client.update(f"DELETE DATA {{ {gone[0]} {P} {gone[1]} }}"))  # type: ignore[misc]
                there.discard(gone)
            now_ms += 100
            in_time(lambda now_ms=now_ms: clock.advance(now_ms))  # type: ignore[misc]
            if number in (15, 35):
                [home] = client.stats()["registered"]["v"]
                away = home or 1  # node 0 is read at; another one may be the writer of the stream
                os.kill(nodes.processes[away].pid, signal.SIGKILL)
                nodes.processes[away].wait(END_S)
                killed.append(home)
            elif number in (25, 45):
                nodes.processes[away] = stack.enter_context(child([*NODE, nodes.file(away)]))
                told = nodes.processes[away].stdout
                assert told is not None
                assert told.readline().strip() == nodes.clients[away]
            else:
                in_time(lambda: client.settle(END_S))
        deadline = time.monotonic() + END_S
        while (found.total() < 60 or max(ended) < now_ms) and time.monotonic() < deadline:
            now_ms += 100
            in_time(lambda now_ms=now_ms: clock.advance(now_ms))  # type: ignore[misc]
            in_time(lambda: client.settle(END_S))
            for window in windows.results(timeout_s=0.5):
                assert window.end_ms not in ended
                ended.add(window.end_ms)
                found.update(window.texts())
        want = Counter((f"<http://ex/n{number}>", "<http://ex/o>") for number in range(60))
        assert killed[0] == 2, "the node of the view"
        assert found == want
        if is_signed:
            asked = f"SELECT ?s ?o {{ GRAPH <{graph}> {{ ?s <http://ex/seen> ?o }} }}"
            while set(client.query(asked).texts()) != there and time.monotonic() < deadline:
                time.sleep(0.1)
            assert set(client.query(asked).texts()) == there

"""Homes: when a name that a query has may be had by another one, told by what the log and the others' reports say; and
which slices a new home lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from wukongs.cluster import homes as homes_module
from wukongs.cluster.homes import closing_here, free_name
from wukongs.cluster.host import Dropped
from wukongs.cluster.members import SILENT_PULSES
from wukongs.cluster.node_payloads import Registration
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.times import first_tick_of
from wukongs.errors import NodeUnavailable, StreamError
from wukongs.live.query_source import QuerySource
from wukongs.live.stream_state import StreamState
from wukongs.protocol.control import Member, Registered
from wukongs.protocol.membership import Watch
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import DropQuery, Role, Sn
from wukongs.protocol.state import Cluster, Kept, Node, boot
from wukongs.settings import Settings

SINCE = Sn(3, 1)


def query(home: int) -> Registered:
    return Registered((), {home: SINCE}, Registration(QuerySource("text"), 5).payload(), SINCE)


class Host:
    """Node 0 of three. next: what becomes of the node while somebody waits."""

    def __init__(
        self, queries: Mapping[str, Registered], *steps: Callable[[Node], Node], replica_count: int = 2
    ) -> None:
        node = boot(Cluster(3, replica_count), Incarnation(0, 0, 1), Kept())
        self.node = replace(node, control=replace(node.control, queries=queries))
        self._steps = list(steps)
        self.records: list[Any] = []
        self.is_superseded = False

    def wait_until(self, holds: Callable[[Node], bool], timeout_s: float, what: str) -> None:
        assert self._steps, f"it waits for {what} once more"
        self.node = self._steps.pop(0)(self.node)
        assert holds(self.node)

    def carry_out(self, event: Any, timeout_s: float) -> None:
        self.records.append(event.record)
        self.node = without(self.node)
        if self.is_superseded:
            raise Dropped("somebody else did")


class Store:
    """running: the queries that run here; is_recovered: they were left by nodes that are gone."""

    def __init__(self, *running: str, is_recovered: bool = False) -> None:
        self._running, self._found = running, SimpleNamespace(is_recovered=is_recovered, source=QuerySource("text"))

    def query(self, name: str) -> object:
        return self._found if name in self._running else None


def without(node: Node) -> Node:
    return replace(node, control=replace(node.control, queries={}))


def out(node: Node, other: int = 1) -> Node:
    members = {**node.control.members, other: Member(0, Role.OUT)}
    return replace(node, control=replace(node.control, members=members))


def silent(node: Node, other: int = 1) -> Node:
    return replace(node, watch=Watch({other: (Incarnation(other, 0, 1), 7, SILENT_PULSES + 1)}))


def same(node: Node) -> Node:
    return replace(node)


def free(host: Host, *running: str, text: str = "text", is_recovered: bool = False) -> bool:
    return free_name(host, Store(*running, is_recovered=is_recovered), "q", QuerySource(text))  # type: ignore[arg-type]


def test_a_name_that_nobody_has_is_free() -> None:
    assert not free(Host({"other": query(1)}))


def moved(node: Node) -> Node:
    return replace(node, control=replace(node.control, queries={"q": query(0)}))


def test_a_query_of_a_node_that_is_out_goes_on_here_if_it_is_the_same_and_has_come_here() -> None:
    host = Host({"q": query(1)}, moved)
    host.node = out(host.node)
    assert free(host, "q", is_recovered=True)
    assert not host.records


def test_a_query_that_another_node_has_taken_over_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host({"q": query(2)})
    host.node = out(host.node)
    monkeypatch.setattr(homes_module, "PATIENCE_S", -1.0)
    with pytest.raises(StreamError, match="a query named q is registered already"):
        free(host)


def test_a_query_that_nobody_takes_over_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host({"q": query(1)})
    host.node = silent(out(host.node))
    monkeypatch.setattr(homes_module, "OUT_S", -1.0)
    with pytest.raises(StreamError, match="a query named q is registered already"):
        free(host)


@pytest.mark.parametrize("is_superseded", [False, True])
def test_another_query_of_a_node_that_is_out_is_dropped(is_superseded: bool) -> None:
    host = Host({"q": query(1)})
    host.node, host.is_superseded = out(host.node), is_superseded
    assert not free(host, text="another text")
    assert host.records == [DropQuery("q", SINCE)]


def test_a_query_of_a_node_that_answers_is_waited_for_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not free(Host({"q": query(1)}, same, without))
    monkeypatch.setattr(homes_module, "PATIENCE_S", -1.0)
    with pytest.raises(StreamError, match="a query named q is registered already: close it first"):
        free(Host({"q": query(1)}))
    with pytest.raises(StreamError, match="a query named q is registered already"):
        free(Host({"q": query(0)}), "q")


def test_a_query_that_was_closed_here_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes_module, "PATIENCE_S", -1.0)
    assert not free(Host({"q": query(0)}, same, without))
    monkeypatch.setattr(homes_module, "OUT_S", -1.0)
    with pytest.raises(StreamError, match="a query named q is registered already"):
        free(Host({"q": query(0)}))


def test_a_query_of_a_silent_node_is_taken_over_when_that_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes_module, "PATIENCE_S", -1.0)
    host = Host({"q": query(1)}, out, moved)
    host.node = silent(host.node)
    assert free(host, "q", is_recovered=True)
    monkeypatch.setattr(homes_module, "OUT_S", -1.0)
    host = Host({"q": query(1)})
    host.node = silent(host.node)
    with pytest.raises(NodeUnavailable, match="query q is registered at node 1, which does not answer"):
        free(host)


def test_a_query_of_a_silent_node_that_cannot_be_taken_out_is_named_at_once() -> None:
    host = Host({"q": query(1)}, replica_count=1)
    host.node = silent(host.node)
    with pytest.raises(NodeUnavailable, match="query q is registered at node 1, which does not answer"):
        free(host)


def test_what_closes_here_is_in_the_log_and_does_not_run() -> None:
    node = Host({"q": query(0), "other": query(1)}).node
    assert closing_here(node, Store())  # type: ignore[arg-type]
    assert not closing_here(node, Store("q"))  # type: ignore[arg-type]
    assert not closing_here(without(node), Store())  # type: ignore[arg-type]


def test_a_home_lacks_what_was_closed_ahead_of_the_ticks_before_it_was_one() -> None:
    """A query that was registered just then fired over a slice that was not there."""
    state = StreamState("http://ex/s", 100, True, 0, None, 60_000, Settings())
    stream = NodeStream(state, first_tick=first_tick_of(100), counts_ms=100, inserted_to=3, stable_to=2)
    stream.come()
    assert (state.closed_ms, stream.missing_at(150)) == (200, None)
    stream.become_home()
    missing = stream.missing_at(150)
    assert missing is not None
    assert missing[1] == 2
    stream.whole_to = 2
    assert stream.missing_at(150) is None
    assert stream.missing_at(150, is_ahead=True) is None

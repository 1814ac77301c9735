"""How far ticks go, and what is stored next, while there are rules."""

from __future__ import annotations

from random import Random

import pytest

from wukongs.protocol.control import Control, apply, genesis
from wukongs.protocol.dropping import cuts
from wukongs.protocol.followed import to_follow
from wukongs.protocol.messages import Incarnation, Report
from wukongs.protocol.progress import Progress, hear, settle
from wukongs.protocol.records import (
    NO_RULES,
    BeginStream,
    Change,
    DeclareStream,
    DropStream,
    EndStream,
    Entry,
    LateJoin,
    Record,
    Voter,
)
from wukongs.protocol.snapshots import late_batches, stable_sn, tick_due, tick_for, tick_in

TIMING = '{"timing": true}'
BEGIN = Change("me", 1, "", None, 0, rules=NO_RULES)


def behind(control: Control, tick: int, *records: Record) -> Control:
    for record in records:
        index = control.index
        control = apply(control, Entry(1, record, tick, Voter(0, 0)))
        assert control.index == index + 1
    return control


def followed(number: int, **follows: int) -> Change:
    return Change("me", number, "", None, 0, follows=tuple(follows.items()))


def dues(control: Control, vts: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {one.stream.key: (one.after, one.to) for one in to_follow(control, vts)}


def test_ticks_wait_for_what_follows() -> None:
    control = behind(genesis(3, 2, 3), 0, DeclareStream("a", ()), DeclareStream("t", (), payload=TIMING))
    control = behind(control, 0, BeginStream("a"), BeginStream("t"))
    vts = {"a": 7, "t": 9}
    assert stable_sn(control, vts).tick == 7
    assert dues(control, vts) == {}
    control = behind(control, 3, BEGIN)
    assert (tick_in(control, "live", vts), tick_due(control, "live", vts)) == (3, 7)
    assert tick_for(control, vts) == 3
    assert dues(control, vts) == {"a": (3, 7)}
    control = behind(control, 3, followed(2, a=5))
    assert stable_sn(control, vts).tick == 5
    assert dues(control, vts) == {"a": (5, 7)}
    control = behind(control, 5, Change("me", 3, "", None, 0, rules=""))
    assert stable_sn(control, vts).tick == 7
    assert dues(control, vts) == {}


def test_nothing_is_stored_ahead_of_other_streams() -> None:
    control = behind(genesis(3, 2, 3), 0, DeclareStream("a", ()), DeclareStream("t", (), payload=TIMING), BEGIN)
    control = behind(control, 0, BeginStream("a"), BeginStream("t"))
    assert dues(control, {"a": 7, "t": 2}) == {"a": (0, 2)}


def test_late_streams_are_followed_before_they_are_shown() -> None:
    control = behind(genesis(3, 2, 3), 9, DeclareStream("s", ()), BEGIN, BeginStream("s"))
    [due] = to_follow(control, {"s": 6})
    assert (due.is_late, due.after, due.to) == (True, 0, 6)
    assert late_batches(control, {"s": 6}, 9) == {"s": 0} or late_batches(control, {"s": 6}, 9) == {}
    control = behind(control, 9, followed(2, s=6))
    assert late_batches(control, {"s": 6}, 9) == {"s": 6}
    control = behind(control, 9, LateJoin("s", 6))
    assert dues(control, {"s": 6}) == {}
    assert dues(control, {"s": 12}) == {"s": (6, 9)}


def test_what_can_be_stored_of_a_dropped_stream_is_stored_before_it_is_cut() -> None:
    control = behind(genesis(1, 1, 1), 0, DeclareStream("s", ()), BEGIN, BeginStream("s"), DropStream("s"))
    report = Report(Incarnation(0, 0, 0), 1, {"s": 4}, control.position, frozen=frozenset({"s"}))
    progress = settle(hear(Progress(), [report]), control)
    assert cuts(control, progress) == []
    control = behind(control, 0, followed(2, s=4))
    assert cuts(control, settle(progress, control)) == [EndStream("s", 4, is_cut=True)]
    assert behind(control, 4, EndStream("s", 4, is_cut=True)).streams["s"].last_batch == 4


def test_a_dropped_stream_is_cut_though_others_have_always_something_to_follow() -> None:
    control = behind(genesis(1, 1, 1), 0, DeclareStream("s", ()), DeclareStream("busy", ()), BEGIN)
    control = behind(control, 0, BeginStream("s"), BeginStream("busy"), DropStream("s"))
    report = Report(Incarnation(0, 0, 0), 1, {"s": 4, "busy": 9}, control.position, frozen=frozenset({"s"}))
    progress = settle(hear(Progress(), [report]), control)
    assert cuts(control, progress) == []
    control = behind(control, 0, followed(2, s=4))
    assert dues(control, progress.stable) == {"busy": (0, 4)}
    assert cuts(control, settle(progress, control)) == [EndStream("s", 4, is_cut=True)]


def test_a_stream_that_ends_before_it_counts_holds_nothing_back() -> None:
    control = behind(
        genesis(3, 2, 3), 9, DeclareStream("s", (), 4), BEGIN, BeginStream("s", 2), EndStream("s", 2, partition_count=0)
    )
    assert dues(control, {"s": 2}) == {"s": (0, 2)}, "it has begun with what one of its partitions has told"
    assert stable_sn(control, {"s": 2}).tick == 9
    control = behind(control, 9, followed(2, s=2))
    assert dues(control, {"s": 2}) == {}
    assert stable_sn(control, {"s": 2}).tick == tick_due(control, "live", {"s": 2}) == 10


def test_what_another_partition_brings_of_before_the_beginning_is_followed() -> None:
    """Partition a begins the stream with stream batch 10; b brings something of 5, before that is sealed."""
    control = behind(genesis(3, 2, 3), 8, DeclareStream("s", ("a", "b")), BEGIN, BeginStream("s", 9))
    assert control.streams["s"].counts == 8
    assert stable_sn(control, {"s": 10}).tick == 8
    assert dues(control, {"s": 10}) == {"s": (0, 10)}
    control = behind(control, 8, followed(2, s=10))
    assert control.streams["s"].followed == ((0, 10),)
    assert stable_sn(control, {"s": 10}).tick == 10


@pytest.mark.parametrize("seed", range(200))
def test_following_ends_where_ticks_are_without_rules(seed: int) -> None:
    """Whatever streams there are, and in whatever steps: never beyond what is due, and in order."""
    random = Random(seed)
    control, names = behind(genesis(3, 2, 3), 0, *([BEGIN] if random.random() < 0.5 else [])), "abc"
    for name in names:
        payload = TIMING if random.random() < 0.3 else ""
        control = behind(control, 0, DeclareStream(name, (), random.choice([1, 2, 3]), payload=payload))
    tick, number, vts = 0, 2, dict.fromkeys(names, 0)
    for name in names:
        control = behind(control, tick, BeginStream(name, random.randrange(4)))
        vts = {one: batch + random.randrange(6) for one, batch in vts.items()}
        tick = tick_for(control, vts)
    if not control.rules:
        control = behind(control, tick, BEGIN)
    for name in random.sample(names, random.randrange(3)):
        control = behind(control, tick, EndStream(name, vts[name], partition_count=0))
    while due := to_follow(control, vts):
        tick = tick_for(control, vts)
        for one in due:
            is_of_before = one.stream.counts is not None and one.after < one.stream.batch_before(one.stream.counts)
            assert one.is_late or is_of_before or tick < one.stream.end_of(one.after + 1)
        assert all(one.stream.end_of(one.to) <= tick_due(control, "live", vts) for one in due)
        end = min(one.stream.end_of(one.after + 1) for one in due) + random.randrange(3)
        follows = {one.stream.key: min(one.to, one.stream.batch_before(end)) for one in due}
        follows = {one.stream.key: follows[one.stream.key] for one in due if follows[one.stream.key] > one.after}
        control = behind(control, tick, followed(number, **follows))
        assert tick_in(control, "live", vts) <= tick_due(control, "live", vts)
        number += 1
        for key, batch in late_batches(control, vts, tick := tick_for(control, vts)).items():
            control = behind(control, tick, LateJoin(key, batch))
    assert tick_in(control, "live", vts) == tick_due(control, "live", vts)

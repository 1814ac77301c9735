"""The sum of the log's records, and which of them are void."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from wukongs.protocol.control import Control, apply, forget, genesis, is_valid
from wukongs.protocol.messages import Incarnation, Report
from wukongs.protocol.progress import Progress, hear, held_anywhere
from wukongs.protocol.records import (
    BEGINNING,
    NO_RULES,
    AdvanceGroup,
    AlterQuery,
    BeginStream,
    Change,
    DeclareStream,
    DropQuery,
    DropStream,
    EndStream,
    Entry,
    Founded,
    LateJoin,
    Membership,
    MoveQuery,
    NameReaders,
    OpenPartition,
    Record,
    ReEncode,
    RegisterQuery,
    Role,
    Sn,
    Voter,
)
from wukongs.protocol.snapshots import sn_at

STREAM = DeclareStream("s", ("p",), 2)


def with_records(*records: Record, tick: int = 4, leader: Voter = Voter(0, 0)) -> Control:  # noqa: B008
    control = genesis(3, 2, 3)
    for record in records:
        control = apply(control, Entry(1, record, tick, leader))
    return control


@pytest.mark.parametrize(
    "record",
    [
        DeclareStream("s", ("q",)),
        DeclareStream("t", ("p",), 0),
        DeclareStream("t", ("p",), first_tick=-1),
        OpenPartition("t", "p"),
        OpenPartition("s", "p"),
        BeginStream("t"),
        LateJoin("t", 1),
        LateJoin("s", 1),
        EndStream("s", 3),
        AdvanceGroup("live", 9),
        AdvanceGroup("replay", 0),
        RegisterQuery("q", ("t",), (0,)),
        RegisterQuery("q", ("s",), (3,)),
        MoveQuery("q", (1,)),
        AlterQuery("q", ("s",), "another text"),
        DropQuery("q"),
        Membership(0, 0, Role.JOINING),
        Membership(0, 0, Role.HOLDING),
        Membership(0, 0, Role.IN),
        Membership(9, 0, Role.OUT),
        ReEncode("x", 7),
        Change("c", 0, "", None, 0),
        Change("c", 1, "", 5, 0),
        Change("c", 1, "", None, 3),
    ],
    ids=repr,
)
def test_what_says_nothing_or_nothing_true_is_void(record: Record) -> None:
    control = with_records(STREAM)
    entry = Entry(1, record, 4, Voter(0, 0))
    assert not is_valid(control, entry)
    after = apply(control, entry)
    assert (after.index, after.marks, after.members) == (2, control.marks, control.members)


def test_a_partition_joins_a_stream_that_is_open() -> None:
    control = with_records(DeclareStream("s", ()), OpenPartition("s", "p"), BeginStream("s"), OpenPartition("s", "q"))
    assert control.streams["s"].partitions == ("p", "q")
    assert not is_valid(control, Entry(1, EndStream("s", 3), 4, Voter(0, 0))), "one of the two is at its end"
    end = Entry(1, EndStream("s", 3, partition_count=2), 4, Voter(0, 0))
    assert is_valid(control, end)
    assert not is_valid(apply(control, end), Entry(1, OpenPartition("s", "r"), 4, Voter(0, 0))), "it has ended"


def test_a_ticked_record_needs_a_tick_and_a_leader_that_is_in() -> None:
    control = with_records(STREAM)
    begin = BeginStream("s")
    assert is_valid(control, Entry(1, begin, 4, Voter(0, 0)))
    assert not is_valid(control, Entry(1, begin))
    assert not is_valid(control, Entry(1, begin, 3, Voter(0, 0)))
    assert not is_valid(control, Entry(1, begin, 4, Voter(0, 1)))
    assert not is_valid(with_records(STREAM, Membership(1, 0, Role.OUT)), Entry(1, begin, 4, Voter(1, 0)))


def test_a_node_goes_only_while_another_one_has_its_shards() -> None:
    control = with_records(Membership(1, 0, Role.OUT))
    assert control.members[1].role is Role.OUT
    assert not is_valid(control, Entry(1, Membership(0, 0, Role.OUT)))
    assert not is_valid(control, Entry(1, Membership(2, 0, Role.OUT)))


def test_a_record_about_an_earlier_stay_is_void() -> None:
    control = with_records(Membership(1, 0, Role.OUT), Membership(1, 0, Role.JOINING))
    assert control.members[1].since == 2
    assert not is_valid(control, Entry(1, Membership(1, 0, Role.HOLDING, 0)))
    assert is_valid(control, Entry(1, Membership(1, 0, Role.HOLDING, 2)))
    assert not is_valid(control, Entry(1, Membership(1, 1, Role.HOLDING, 2)))


def test_a_lost_disk_starts_at_joining_whatever_its_node_was() -> None:
    control = with_records(Membership(1, 1, Role.JOINING))
    assert control.role_of(Voter(1, 1)) is Role.JOINING
    assert control.role_of(Voter(1, 0)) is Role.OUT
    assert not control.is_covered_without(0)


def test_re_encodings_are_numbered_once() -> None:
    control = with_records(ReEncode("x", 0), ReEncode("y", 0), ReEncode("x", 0))
    assert control.exceptions == {"x": 1, "y": 2}


def test_an_update_has_to_have_seen_the_last_one() -> None:
    first = Change("c", 1, "", 0, 0)
    control = with_records(first)
    assert not is_valid(control, Entry(1, Change("d", 1, "", 0, 0), 4, Voter(0, 0)))
    assert is_valid(control, Entry(1, Change("d", 1, "", 1, 0), 4, Voter(0, 0)))
    assert is_valid(control, Entry(1, Change("d", 1, "", None, 0), 4, Voter(0, 0)))
    assert control.last_update(Sn(4, 0)) == 0
    assert control.last_update(Sn(4, 1)) == 1


def test_a_query_that_moves_keeps_its_slices_where_it_was_and_gets_new_ones_elsewhere() -> None:
    control = with_records(STREAM, RegisterQuery("q", ("s",), (0, 2), "its text"))
    for nothing in (
        MoveQuery("q", (2, 0)),
        MoveQuery("q", (3,)),
        MoveQuery("r", (1,)),
        MoveQuery("q", (1,), before=(0,)),
    ):
        assert not is_valid(control, Entry(1, nothing, 8, Voter(0, 0)))
    moved = apply(control, Entry(1, MoveQuery("q", (1, 2)), 8, Voter(0, 0)))
    assert moved.queries["q"].nodes == {1: Sn(8, 1), 2: Sn(4, 2)}
    assert (moved.queries["q"].since, moved.queries["q"].payload) == (Sn(4, 2), "its text")
    assert is_valid(control, Entry(1, MoveQuery("q", (1,), before=(0, 2)), 8, Voter(0, 0)))


def test_of_two_changes_of_a_query_at_the_same_time_one_counts() -> None:
    other = DeclareStream("t", ("p",), 2)
    control = with_records(STREAM, other, RegisterQuery("q", ("s",), (0, 2), "its text"))
    known = control.queries["q"]
    for nothing in (
        AlterQuery("q", ("s",), "another text", 2),
        AlterQuery("q", ("u",), "another text"),
        AlterQuery("r", ("s",), "another text"),
        AlterQuery("q", ("s",), "another text", 1, Sn(3, 1)),
    ):
        assert not is_valid(control, Entry(1, nothing, 8, Voter(0, 0)))
    same = AlterQuery("q", ("s",), "the same streams", 1, known.since)
    entry = Entry(1, AlterQuery("q", ("s", "t"), "another text", 1, known.since), 8, Voter(0, 0))
    assert apply(control, Entry(1, same, 8, Voter(0, 0))).queries["q"].nodes == known.nodes
    altered = apply(control, entry)
    found = altered.queries["q"]
    assert (found.payload, found.streams, found.changes, found.since) == ("another text", ("s", "t"), 1, known.since)
    assert found.nodes == {0: Sn(8, 1), 2: Sn(8, 1)}
    assert not is_valid(altered, entry), "a late repetition"
    assert not is_valid(altered, Entry(1, same, 8, Voter(0, 0)))
    assert not is_valid(altered, Entry(1, DropStream("t"), 8, Voter(0, 0)))
    moved = apply(altered, Entry(1, MoveQuery("q", (1,)), 8, Voter(0, 0)))
    assert (moved.queries["q"].payload, moved.queries["q"].changes) == ("another text", 1)


def test_a_late_repetition_does_not_drop_the_query_that_has_the_name_by_now() -> None:
    control = with_records(STREAM, RegisterQuery("q", ("s",), (0,)))
    drop = Entry(1, DropQuery("q", control.queries["q"].since), 8, Voter(0, 0))
    dropped = apply(control, drop)
    again = apply(dropped, Entry(1, RegisterQuery("q", ("s",), (1,)), 8, Voter(0, 0)))
    assert not is_valid(again, drop)
    assert is_valid(again, Entry(1, DropQuery("q", again.queries["q"].since), 8, Voter(0, 0)))


def test_what_readers_hold_anywhere_is_held_everywhere() -> None:
    control = with_records()
    reports = [
        Report(Incarnation(0, 0, 1), 1, {}, BEGINNING, Sn(5, 1), None, stands=(Sn(5, 3),)),
        Report(Incarnation(1, 0, 1), 1, {}, BEGINNING, Sn(4, 0), 9, stands=(Sn(5, 3), Sn(5, 4))),
        Report(Incarnation(2, 0, 1), 1, {}, BEGINNING, None, 8),
    ]
    progress = hear(Progress(), reports)
    assert held_anywhere(progress, control) == (Sn(4, 0), 8, {Sn(5, 3), Sn(5, 4)})
    assert held_anywhere(progress, apply(control, Entry(1, Membership(1, 0, Role.OUT)))) == (Sn(5, 1), 8, {Sn(5, 3)})
    assert held_anywhere(Progress(), control) == (None, None, None)
    some = hear(Progress(), reports[:2])
    assert held_anywhere(some, control) == (None, None, None), "nobody knows yet what readers hold at the third node"
    assert held_anywhere(some, apply(control, Entry(1, Membership(2, 0, Role.OUT))))[:2] == (Sn(4, 0), 9)


def test_a_stream_that_is_declared_anew_is_another_one() -> None:
    control = with_records(STREAM, DropStream("s"))
    assert control.streams["s"].gone == Sn(4, 2), "nothing of it was visible"
    again = DeclareStream("s", ("p",), 2, replaces="s")
    for ghost in (STREAM, DropStream("s"), BeginStream("s"), EndStream("s", 3), RegisterQuery("q", ("s",), (0,))):
        assert not is_valid(control, Entry(1, ghost, 4, Voter(0, 0))), ghost
    control = apply(control, Entry(1, again, 4, Voter(0, 0)))
    assert control.keys == {"s": "s 3"}
    assert [stream.key for stream in control.live_streams] == ["s 3"]
    assert not is_valid(control, Entry(1, DeclareStream("t u", ("p",)), 4, Voter(0, 0))), "a name with a space"


def test_a_stream_that_a_query_reads_is_not_dropped() -> None:
    control = with_records(STREAM, RegisterQuery("q", ("s",), (0,)))
    assert not is_valid(control, Entry(1, DropStream("s"), 4, Voter(0, 0)))
    dropped = apply(control, Entry(1, DropQuery("q"), 4, Voter(0, 0)))
    assert is_valid(dropped, Entry(1, DropStream("s"), 4, Voter(0, 0)))
    dropped = apply(dropped, Entry(1, DropStream("s"), 4, Voter(0, 0)))
    assert not is_valid(dropped, Entry(1, RegisterQuery("q", ("s",), (0,)), 4, Voter(0, 0)))


def test_a_dropped_stream_ends_where_its_cut_says_and_not_beyond_what_time_has_reached() -> None:
    control = with_records(STREAM, BeginStream("s", 2), DropStream("s"))
    cut = EndStream("s", 9, is_cut=True)
    assert not is_valid(with_records(STREAM, BeginStream("s")), Entry(1, cut, 4, Voter(0, 0))), "it is not dropped"
    assert not is_valid(control, Entry(1, EndStream("s", 9), 4, Voter(0, 0))), "what its sources say counts no more"
    assert control.streams["s"].gone is None
    gone = apply(control, Entry(1, cut, 12, Voter(0, 0)))
    assert (gone.streams["s"].last_batch, gone.streams["s"].gone) == (6, Sn(12, 1))
    assert gone.vts_at(Sn(12, 0)) == {"s": 6}
    assert gone.vts_at(Sn(12, 1)) == {}


def test_a_dropped_stream_that_is_late_ends_where_its_last_join_says() -> None:
    control = with_records(STREAM, BeginStream("s"), LateJoin("s", 1), DropStream("s"), EndStream("s", 9, is_cut=True))
    assert (control.streams["s"].last_batch, control.streams["s"].gone) == (1, Sn(4, 5))
    assert control.vts_at(Sn(4, 4)) == {"s": 1}
    assert not is_valid(control, Entry(1, LateJoin("s", 2), 4, Voter(0, 0))), "it is gone"


def test_who_is_on_the_way_when_a_stream_goes_begins_anew() -> None:
    comes = (Membership(1, 0, Role.OUT), Membership(1, 0, Role.JOINING), Membership(1, 0, Role.HOLDING, 2))
    control = with_records(*comes, STREAM, BeginStream("s"), DropStream("s"))
    assert control.members[1].role is Role.HOLDING
    gone = apply(control, Entry(1, EndStream("s", 2, is_cut=True), 4, Voter(0, 0)))
    assert (gone.members[1].role, gone.members[1].since, gone.view) == (Role.JOINING, 7, 7)
    assert not is_valid(gone, Entry(1, Membership(1, 0, Role.IN, 2)))


def test_what_only_old_sns_need_is_forgotten() -> None:
    begun = (STREAM, BeginStream("s"), DeclareStream("r", ("p",), 1, "replay"), BeginStream("r"))
    control = with_records(*begun, DeclareStream("old", ("p",)), DropStream("old"))
    later = [(tick, Change("c", tick, "", None, 0)) for tick in (6, 8, 10)]
    for tick, record in [*later, (10, AdvanceGroup("replay", 3)), (12, AdvanceGroup("replay", 5))]:
        control = apply(control, Entry(1, record, tick, Voter(0, 0)))
    floor = Sn(10, 3)
    short = forget(control, floor)
    assert [mark.sn for mark in short.marks] == [Sn(10, 2), Sn(12, 1)]
    assert (short.streams.keys(), short.floor) == ({"s", "r"}, floor)
    assert [advance.sn for advance in short.advances] == [Sn(10, 2), Sn(12, 1)]
    for sn in (floor, Sn(12, 0), Sn(12, 1), Sn(20, 0)):
        assert short.vts_at(sn) == control.vts_at(sn)
        assert short.last_update(sn) == control.last_update(sn)
    assert [sn_at(short, tick) for tick in (10, 11, 12, 13)] == [sn_at(control, tick) for tick in (10, 11, 12, 13)]
    assert forget(short, Sn(2, 0)) is short
    for record in (
        DropStream("old"),
        EndStream("old", 1, is_cut=True),
        DeclareStream("old", ("p",)),
        BeginStream("old"),
    ):
        entry = Entry(1, record, 12, Voter(0, 0))
        assert is_valid(short, entry) == is_valid(control, entry) is False
    again = Entry(1, DeclareStream("old", ("p",), replaces="old"), 12, Voter(0, 0))
    assert is_valid(short, again)
    assert apply(short, again).keys == apply(control, again).keys


def test_the_first_life_of_a_cluster_is_its_life() -> None:
    control = genesis(3, 2, 3)
    for life in ("0-7", "1-9"):
        control = apply(control, Entry(1, Founded(life)))
    assert (control.life, control.index) == ("0-7", 2)
    assert not is_valid(control, Entry(2, Founded("2-1")))


# --- rules ------------------------------------------------------------------------------------------------------------

RULES = Change("me", 1, "", 0, 0, read=Sn(0, 0), rules="[1]")
EACH_TICK = DeclareStream("s", ())
TIMING = DeclareStream("timing", (), payload='{"timing": true}')


def is_taken(control: Control, record: Record) -> bool:
    return is_valid(control, Entry(1, record, max(4, control.last_sn.tick), Voter(0, 0)))


def test_rules_are_what_the_last_change_says() -> None:
    control = with_records(RULES)
    assert (control.rules, control.changed) == ("[1]", control.last_sn)
    sn = control.last_sn
    control = apply(control, Entry(1, Change("me", 2, "", 1, 0, read=sn), 4, Voter(0, 0)))
    assert control.rules == "[1]"
    control = apply(control, Entry(1, Change("me", 3, "", 2, 0, read=control.last_sn, rules=""), 4, Voter(0, 0)))
    assert control.rules == ""
    assert is_taken(control, Change("me", 4, "", None, 0))


def test_with_rules_a_change_has_read_all_that_was_changed() -> None:
    load = Change("other", 1, "", None, 0)
    assert not is_taken(with_records(load), RULES), "a load came behind what was read"
    control = with_records(RULES)
    for void in (
        load,
        Change("other", 1, "", control.last_update(), 0),
        Change("other", 1, "", control.last_update(), 0, read=Sn(4, 0)),
        Change("other", 1, "", 0, 0, read=control.last_sn),
        Change("other", 1, "", 0, 0, rules=""),
    ):
        assert not is_taken(control, void), void
    assert is_taken(control, Change("other", 1, "", control.last_update(), 0, read=control.last_sn))
    assert is_taken(control, Change("other", 1, "", control.last_update(), 0, read=Sn(9, 0)))
    assert not is_taken(genesis(3, 2, 3), Change("other", 1, "", 0, 0, rules="[1]")), "it says not what it has read"


def test_rules_do_not_come_at_once_where_streams_store() -> None:
    """Between what was read and the record they may store: first changes have to store what is theirs."""
    assert is_taken(with_records(TIMING), RULES)
    for payload in ("", "{", "[]", '{"timing": ["<p>"]}', '{"timing": false}'):
        control = with_records(DeclareStream("t", (), payload=payload))
        assert not is_taken(control, RULES), payload
        assert is_taken(control, Change("me", 1, "", None, 0, rules=NO_RULES))
        control = with_records(DeclareStream("t", (), payload=payload), Change("me", 1, "", None, 0, rules=NO_RULES))
        assert control.changed == control.last_sn, "what was derived before says nothing of what they have stored since"
        assert not is_taken(control, Change("me", 2, "", 0, 0, read=Sn(4, 1), rules="[1]"))
        assert is_taken(control, Change("me", 2, "", control.last_update(), 0, read=control.last_sn, rules="[1]"))
        assert is_taken(control, Change("me", 2, "", None, 0, rules=""))
        assert not is_taken(control, Change("me", 2, "", None, 0, rules=NO_RULES))
    assert not is_taken(with_records(RULES), Change("me", 2, "", None, 0, rules=NO_RULES))
    assert not is_taken(with_records(RULES), Change("me", 2, "", None, 0, rules=""))


def test_changes_say_up_to_where_they_store_what_streams_bring() -> None:
    def follow(batch: int, key: str = "s", **said: Any) -> Change:
        return Change("me", batch, said.pop("payload", ""), None, 0, follows=((key, batch),), **said)

    assert not is_taken(with_records(EACH_TICK, BeginStream("s", 4)), follow(5)), "there are no rules"
    control = with_records(RULES, EACH_TICK, TIMING, BeginStream("s", 4))
    assert control.streams["s"].followed_to == 0, "another partition may bring something of before it begins"
    assert not is_taken(control, follow(5, "timing")), "nothing of it is stored"
    assert not is_taken(control, follow(5, "other"))
    assert not is_taken(control, follow(5, payload="x")), "it says not what it has read"
    assert is_taken(control, follow(5))
    assert not is_taken(apply(control, Entry(1, follow(5), 4, Voter(0, 0))), follow(5)), "it says nothing new"
    control = apply(control, Entry(1, follow(6), 4, Voter(0, 0)))
    assert control.streams["s"].followed == ((0, 6),)
    assert control.changed < control.last_sn, "nothing was stored"
    stores = follow(7, payload="x", read=control.changed)
    control = apply(control, Entry(1, stores, 6, Voter(0, 0)))
    assert control.streams["s"].followed_to == 7
    assert control.changed == control.last_sn == Sn(6, 1)
    assert not is_taken(control, follow(8, payload="x", read=Sn(6, 0))), "another change came first"


def test_where_rules_begin_streams_go_on_from_what_is_shown() -> None:
    """Those that changes have stored are known for ever."""
    begins, ends = (Change("me", number, "", None, 0, rules=rules) for number, rules in ((1, NO_RULES), (3, "")))
    control = with_records(EACH_TICK, BeginStream("s", 4))
    control = apply(control, Entry(1, begins, 7, Voter(0, 0)))
    assert control.streams["s"].followed == ((7, 7),)
    control = apply(control, Entry(1, Change("me", 2, "", None, 0, follows=(("s", 9),)), 7, Voter(0, 0)))
    control = apply(control, Entry(1, ends, 9, Voter(0, 0)))
    control = apply(control, Entry(1, structs.replace(begins, number=4), 12, Voter(0, 0)))
    assert control.streams["s"].followed == ((7, 9), (12, 12))
    assert apply(control, Entry(1, DeclareStream("t", ()), 12, Voter(0, 0))).streams["t"].followed == ()


def test_rules_come_behind_the_end_of_a_dropped_stream() -> None:
    """Until there its tuples may join the stored graph, behind what was read."""
    control = with_records(STREAM, BeginStream("s"), DropStream("s"))
    assert not is_taken(control, Change("me", 1, "", 0, 0, read=control.last_sn, rules="[1]"))
    control = with_records(STREAM, BeginStream("s"), DropStream("s"), EndStream("s", 0, is_cut=True))
    gone = control.streams["s"].gone
    assert gone == control.last_sn
    before = Sn(gone.tick, gone.minor - 1)
    assert not is_taken(control, Change("me", 1, "", 0, 0, read=before, rules="[1]"))
    assert is_taken(control, Change("me", 1, "", 0, 0, read=gone, rules="[1]"))
    assert is_taken(forget(control, gone), Change("me", 1, "", 0, 0, read=gone, rules="[1]"))


def test_arguments_and_readers_of_a_view_are_said_by_records_of_their_own() -> None:
    control = with_records(RegisterQuery("v", (), (0,), "a view"))
    since = control.queries["v"].since

    def said(record: AlterQuery | NameReaders) -> bool:
        nonlocal control
        entry = Entry(1, record, 8, Voter(0, 0)) if isinstance(record, AlterQuery) else Entry(1, record)
        if is_news := is_valid(control, entry):
            control = apply(control, entry)
        return is_news

    assert said(AlterQuery("v", (), "", 1, since, "bound"))
    assert not said(AlterQuery("v", (), "", 1, since, "bound at the same time"))
    assert not said(AlterQuery("v", (), "", 2, since)), "it says nothing"
    assert said(AlterQuery("v", (), "", 2, since, "more"))
    placed = control.queries["v"].placed
    assert said(NameReaders("v", "g", since, "at 3", 1, placed))
    assert not said(NameReaders("v", "g", since, "at 3", 2, placed)), "it is said already"
    assert said(NameReaders("v", "g", since, "at 4", 2, placed))
    assert not said(NameReaders("v", "g", since, "at 3", 1, placed)), "a late repetition takes nothing back"
    assert not said(NameReaders("v", "g", since, "at 5", 3, placed + 1)), "another node has the view"
    assert said(AlterQuery("v", (), "a paused view", 3, since))
    found = control.queries["v"]
    assert (found.payload, found.bound, found.stands, found.groups) == (
        "a paused view",
        ("bound", "more"),
        {"g": (2, "at 4")},
        (),
    )
    assert said(AlterQuery("v", (), "a paused view", 4, since, "all"))
    assert control.queries["v"].bound == ("all",)
    assert control.queries["v"].nodes.keys() == {0}

"""The meaning of an SN."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wukongs.protocol.control import Control, apply, forget, genesis, is_valid
from wukongs.protocol.records import (
    AdvanceGroup,
    BeginStream,
    Change,
    DeclareStream,
    EndStream,
    Entry,
    LateJoin,
    Record,
    Sn,
    Voter,
)
from wukongs.protocol.snapshots import sn_at, stable_sn, tick_for, tick_in

LEADER = Voter(0, 0)


def control_with(*records: tuple[int, Record]) -> Control:
    """Return the control state of two nodes after records behind these ticks."""
    control = genesis(2, 1, 2)
    for tick, record in records:
        entry = Entry(1, record, tick, LEADER)
        assert is_valid(control, entry), record
        control = apply(control, entry)
    return control


def load(number: int) -> Change:
    return Change("client", number, "", None, 0)


LIVE = (
    (0, DeclareStream("a", ("p",), 1)),
    (0, DeclareStream("b", ("p",), 3)),
    (0, BeginStream("a")),
)


def test_ticks_come_from_the_streams_that_have_begun() -> None:
    control = control_with(*LIVE)
    assert tick_in(control, "live", {"a": 7, "b": 0}) == 7
    control = control_with(*LIVE, (7, BeginStream("b", 2)))
    assert tick_in(control, "live", {"a": 9, "b": 0}) == 7
    assert tick_in(control, "live", {"a": 9, "b": 2}) == 8
    assert tick_in(control, "live", {"a": 9, "b": 3}) == 9
    assert tick_in(control, "live", {"a": 12, "b": 3}) == 11, "the next stream batch of b ends at 12"


def test_a_stream_counts_from_the_tick_after_its_beginning() -> None:
    control = control_with(*LIVE, (7, BeginStream("b", 2)))
    assert control.vts_at(Sn(7, 9)) == {"a": 7}
    assert control.vts_at(Sn(8, 0)) == {"a": 8, "b": 2}
    assert control.vts_at(Sn(9, 0)) == {"a": 9, "b": 3}


def test_a_streams_numbers_may_begin_anywhere() -> None:
    control = control_with((0, DeclareStream("a", ("p",), 100, first_tick=30)), (0, BeginStream("a")))
    assert tick_in(control, "live", {"a": 17_000_000}) == 1_700_000_129
    assert control.vts_at(Sn(1_700_000_029, 0)) == {"a": 16_999_999}
    assert control.vts_at(Sn(1_700_000_030, 0)) == {"a": 17_000_000}
    assert control.vts_at(Sn(20, 0)) == {}
    assert tick_in(control, "live", {}) == 129


def test_a_stream_that_is_complete_holds_nothing_back() -> None:
    control = control_with(*LIVE, (0, BeginStream("b")), (3, EndStream("a", 4)))
    assert tick_in(control, "live", {"a": 3, "b": 5}) == 3
    assert tick_in(control, "live", {"a": 4, "b": 5}) == 17
    assert control.vts_at(Sn(15, 0)) == {"a": 4, "b": 5}


def test_with_no_stream_open_the_clock_stands_at_the_greatest_end() -> None:
    control = control_with(*LIVE, (0, BeginStream("b")), (3, EndStream("a", 4)), (3, EndStream("b", 2)))
    assert tick_in(control, "live", {"a": 4, "b": 2}) == 6
    control = control_with(*LIVE, (9, EndStream("a", 4)))
    assert tick_in(control, "live", {"a": 4}) == 9, "it never falls"


def test_what_another_partition_brings_of_earlier_is_seen_though_no_time_passes_any_more() -> None:
    control = control_with(*LIVE, (7, BeginStream("b", 2)), (7, EndStream("a", 7)), (7, EndStream("b", 2)))
    sn = stable_sn(control, {"a": 7, "b": 2})
    assert sn == Sn(8, 0)
    assert control.vts_at(sn) == {"a": 7, "b": 2}


LATE = (*LIVE, (10, BeginStream("b", 0)))


def test_a_late_stream_holds_nothing_back_until_it_has_come_as_far() -> None:
    control = control_with(*LATE)
    assert control.streams["b"].is_late
    assert tick_in(control, "live", {"a": 20, "b": 1}) == 20
    control = control_with(*LATE, (12, LateJoin("b", 3)))
    assert tick_in(control, "live", {"a": 20, "b": 3}) == 20
    control = control_with(*LATE, (12, LateJoin("b", 4)))
    assert not control.streams["b"].is_late
    assert tick_in(control, "live", {"a": 20, "b": 4}) == 14
    assert tick_in(control, "live", {"a": 20, "b": 5}) == 17


def test_a_late_stream_shows_what_records_bring_and_then_what_ticks_cover() -> None:
    control = control_with(*LATE, (10, LateJoin("b", 1)), (11, load(1)), (13, LateJoin("b", 4)))
    assert control.vts_at(Sn(10, 1)) == {"a": 10}
    assert control.vts_at(Sn(10, 2)) == {"a": 10, "b": 1}
    assert control.vts_at(Sn(13, 0)) == {"a": 13, "b": 1}
    assert control.vts_at(Sn(13, 1)) == control.vts_at(Sn(14, 0)) | {"a": 13} == {"a": 13, "b": 4}
    assert control.vts_at(Sn(15, 0)) == {"a": 15, "b": 5}


def test_a_late_join_is_exposed_where_the_stable_vts_has_what_it_names() -> None:
    control = control_with(*LATE, (10, LateJoin("b", 1)), (10, load(1)), (10, LateJoin("b", 2)))
    assert stable_sn(control, {"a": 12}) == Sn(10, 1)
    assert stable_sn(control, {"a": 12, "b": 1}) == Sn(10, 3)
    assert stable_sn(control, {"a": 12, "b": 2}) == Sn(12, 0)


def test_a_late_join_brings_news_of_a_late_stream_and_nothing_of_later() -> None:
    def is_sound(control: Control, tick: int, batch: int) -> bool:
        return is_valid(control, Entry(1, LateJoin("b", batch), tick, LEADER))

    control = control_with(*LATE, (10, LateJoin("b", 2)))
    assert [is_sound(control, 12, batch) for batch in (1, 2, 3, 4, 5)] == [False, False, True, True, False]
    assert not is_sound(control_with(*LIVE, (10, BeginStream("b", 3))), 12, 1), "it is not late"
    assert not is_sound(control_with(*LIVE), 12, 1), "it has not begun"
    assert not is_sound(control_with(*LATE, (10, LateJoin("b", 2)), (11, EndStream("b", 2))), 12, 3), "it has ended"


def test_what_late_streams_have_brought_is_forgotten_once_ticks_say_it() -> None:
    control = control_with(*LATE, (10, LateJoin("b", 1)), (11, LateJoin("b", 2)), (12, LateJoin("b", 4)))
    for floor, left in ((Sn(10, 2), 3), (Sn(11, 0), 3), (Sn(11, 1), 2), (Sn(12, 1), 1), (Sn(13, 0), 0)):
        short = forget(control, floor)
        assert len(short.joins) == left, floor
        for sn in (floor, Sn(13, 0), Sn(15, 0)):
            assert short.vts_at(sn) == control.vts_at(sn)


def test_minors_count_the_records_behind_a_tick() -> None:
    control = control_with(*LIVE, (5, load(1)), (5, load(2)), (8, load(3)))
    assert [mark.sn for mark in control.marks[-3:]] == [Sn(5, 1), Sn(5, 2), Sn(8, 1)]
    assert [sn_at(control, tick) for tick in (4, 5, 6, 8, 9)] == [Sn(4, 0), Sn(5, 2), Sn(6, 0), Sn(8, 1), Sn(9, 0)]
    assert stable_sn(control, {"a": 5}) == Sn(5, 2)
    assert stable_sn(control, {"a": 7}) == Sn(7, 0)


def test_a_leader_appends_behind_what_it_has_and_what_its_log_has() -> None:
    control = control_with(*LIVE, (5, load(1)))
    assert tick_for(control, {"a": 3}) == 5
    assert tick_for(control, {"a": 6}) == 6


def test_another_clock_group_moves_by_records() -> None:
    group = ((0, DeclareStream("r", ("p",), 2, "replay")), (0, BeginStream("r")))
    control = control_with(*LIVE, *group, (5, AdvanceGroup("replay", 6)), (5, load(1)))
    assert control.vts_at(Sn(5, 0)) == {"a": 5}
    assert control.vts_at(Sn(5, 1)) == {"a": 5, "r": 3}
    # A node whose own stable VTS does not have the group so far exposes nothing from the record on.
    assert stable_sn(control, {"a": 5, "r": 3}) == Sn(5, 2)
    assert stable_sn(control, {"a": 5, "r": 2}) == Sn(5, 0)


def test_without_streams_changes_still_have_their_order() -> None:
    control = control_with((0, load(1)), (0, load(2)))
    assert stable_sn(control, {}) == Sn(0, 2)
    assert control.vts_at(Sn(0, 2)) == {}


STREAMS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 6), st.none() | st.integers(1, 6), st.integers(0, 9)),
    min_size=1,
    max_size=4,
)


@given(streams=STREAMS, lower=st.lists(st.integers(0, 6), min_size=4), rise=st.lists(st.integers(0, 3), min_size=4))
def test_ticks_and_snapshots_never_fall_and_stay_inside_the_stable_vts(
    streams: list[tuple[int, int, int | None, int]], lower: list[int], rise: list[int]
) -> None:
    records: list[tuple[int, Record]] = [
        (0, DeclareStream(f"s{n}", ("p",), ticks, first_tick=first)) for n, (ticks, _, _, first) in enumerate(streams)
    ]
    began = sorted(range(len(streams)), key=lambda n: streams[n][1])
    records += [(streams[n][1], BeginStream(f"s{n}", 9)) for n in began]
    end = max(tick for tick, _ in records)
    records += [(end, EndStream(f"s{n}", last)) for n, (_, _, last, _) in enumerate(streams) if last is not None]
    control = control_with(*records)

    def within(batches: list[int]) -> dict[str, int]:
        limits = [last for _, _, last, _ in streams]
        return {
            f"s{n}": b if (top := limits[n]) is None else min(b, top) for n, b in enumerate(batches[: len(streams)])
        }

    low, high = within(lower), within([a + b for a, b in zip(lower, rise, strict=False)])
    assert tick_in(control, "live", low) <= tick_in(control, "live", high)
    assert stable_sn(control, low) <= stable_sn(control, high)
    assert all(batch <= low.get(name, 0) for name, batch in control.vts_at(stable_sn(control, low)).items())

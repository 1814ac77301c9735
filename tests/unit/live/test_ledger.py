"""What a node may take from a partition: in order, without gaps, from the newest writer."""

from __future__ import annotations

import pytest

from tests.unit.wire.pieces import STREAM, make_piece, many
from wukongs.errors import StreamError
from wukongs.live.ledger import PartitionLedger
from wukongs.live.pieces import Close


def _ledger() -> PartitionLedger:
    ledger = PartitionLedger(STREAM, "part-0")
    assert ledger.open(1) == 0
    return ledger


def _close(end: int, complete_ms: int, epoch: int = 1) -> Close:
    return Close(STREAM, "part-0", epoch, end, complete_ms)


def test_new_pieces_are_taken_and_repeats_known() -> None:
    ledger = _ledger()
    for first in (0, 3, 6):
        piece = make_piece(many(3), first=first)
        assert ledger.admit(piece)
        ledger.taken(piece)
        assert not ledger.admit(piece)
    assert not ledger.admit(make_piece(many(3), first=0))
    assert ledger.open(2) == 9


def test_a_piece_that_was_admitted_but_not_taken_is_new_again() -> None:
    ledger = _ledger()
    piece = make_piece(many(3))
    assert ledger.admit(piece)
    assert ledger.admit(piece)


@pytest.mark.parametrize(("first", "end"), [(4, 6), (2, 5)])
def test_a_gap_and_an_overlap_are_refused(first: int, end: int) -> None:
    ledger = _ledger()
    ledger.taken(make_piece(many(3)))
    with pytest.raises(StreamError, match=rf"begins at row 3, found rows {first} to {end}. Send again from row 3"):
        ledger.admit(make_piece(many(1), first=first, end=end))


def test_a_close_passes_rows_that_were_set_aside_and_repeats_say_nothing_new() -> None:
    ledger = _ledger()
    assert ledger.close(_close(7, 1000))
    assert not ledger.close(_close(7, 1000))
    assert not ledger.close(_close(5, 2000))
    assert ledger.close(_close(7, 2000))
    assert ledger.complete_ms == 2000
    assert ledger.admit(make_piece(many(1), first=7, time=2001))


def test_a_tuple_after_its_close_is_refused() -> None:
    ledger = _ledger()
    ledger.close(_close(0, 1000))
    with pytest.raises(
        StreamError, match="a tuple at 1000 ms came after everything up to 1000 ms was declared complete"
    ):
        ledger.admit(make_piece(time=1000))


def test_an_older_writer_is_locked_out() -> None:
    ledger = _ledger()
    ledger.open(5)
    message = "writer 4 is locked out by the newer writer 5. Only one pipeline may send a partition"
    for call in (
        lambda: ledger.open(4),
        lambda: ledger.admit(make_piece(epoch=4)),
        lambda: ledger.close(_close(1, 1, epoch=4)),
        lambda: ledger.check_writer(4),
    ):
        with pytest.raises(StreamError, match=message):
            call()

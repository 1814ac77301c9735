"""Staged changes: repeats, bounds, age, and what has to be there when a record comes."""

from __future__ import annotations

import pytest

from wukongs.cluster.staging import OVER_MAX, STAGED_AGE_MAX_S, Staging
from wukongs.errors import BudgetExceeded, QueryTimeout
from wukongs.store.encoder import encode_ntriples

CHUNK, _ = encode_ntriples(b"<http://ex/a> <http://ex/p> <http://ex/b> .\n", b"")
EMPTY, _ = encode_ntriples(b"", b"")


def test_chunks_come_back_in_order_once_each() -> None:
    staging = Staging(1 << 20)
    staging.add("c", 2, EMPTY, False, True)
    staging.add("c", 1, CHUNK, True, False)
    staging.add("c", 0, CHUNK, False, False)
    size = staging.size_bytes
    staging.add("c", 0, CHUNK, False, False)
    assert (staging.size_bytes, len(staging)) == (size, 1)
    change = staging.take("c")
    assert change.is_complete
    assert change.encoded(goes=True) == [CHUNK]
    assert change.encoded(goes=False) == [CHUNK]
    assert staging.size_bytes == 0


def test_too_much_is_refused_by_name() -> None:
    size = 40 + len(CHUNK.terms.text)
    staging = Staging(2 * size)
    staging.add("a", 0, CHUNK, False, False)
    staging.add("b", 0, CHUNK, False, False)
    with pytest.raises(
        BudgetExceeded, match=rf"change b: {3 * size} bytes .* would exceed load_bytes_max = {2 * size}"
    ):
        staging.add("b", 1, CHUNK, False, False)
    staging.forget("a")
    staging.forget("b")
    staging.add("c", 0, CHUNK, False, True)


def test_what_never_gets_a_record_goes_but_not_what_has_one() -> None:
    now = [0.0]
    staging = Staging(1 << 20, lambda: now[0])
    staging.add("lost", 0, CHUNK, False, True)
    staging.add("slow", 0, CHUNK, False, True)
    staging.keep("slow")
    staging.keep("unknown")
    now[0] = STAGED_AGE_MAX_S + 1
    staging.add("new", 0, CHUNK, False, True)
    assert len(staging) == 2
    assert staging.take("slow").is_complete
    with pytest.raises(AssertionError, match="change lost has a record, but was never staged here"):
        staging.take("lost")


def test_a_record_before_all_chunks_is_our_own_mistake() -> None:
    staging = Staging(1 << 20)
    staging.add("c", 1, CHUNK, False, True)
    with pytest.raises(AssertionError, match="1 of 2 chunks"):
        staging.take("c")


def test_a_long_load_stays_while_its_parts_come_and_is_refused_when_they_stop() -> None:
    now = [0.0]
    staging = Staging(1 << 20, lambda: now[0])
    for number in range(4):
        staging.add("slow", number, CHUNK, False, False)
        now[0] += STAGED_AGE_MAX_S * 0.9
    now[0] += STAGED_AGE_MAX_S
    with pytest.raises(QueryTimeout, match="change slow: it was let go, since nothing came of it for 3600 s"):
        staging.add("slow", 4, CHUNK, False, True)
    assert staging.size_bytes == 0


def test_nothing_grows_old_while_its_record_may_still_come() -> None:
    now = [0.0]
    staging = Staging(1 << 20, lambda: now[0])
    staging.add("waits", 0, CHUNK, False, True)
    staging.add("kept", 0, CHUNK, False, True)
    staging.keep("kept")
    now[0] = STAGED_AGE_MAX_S
    staging.renew()
    now[0] *= 2
    staging.drop_old()
    assert len(staging) == 2
    now[0] += 1
    staging.drop_old()
    assert list(staging.changes()) == ["kept"]


def test_what_is_over_does_not_come_again_and_what_has_a_record_does_not_go() -> None:
    staging = Staging(1 << 20)
    staging.add("taken", 0, CHUNK, False, True)
    staging.keep("taken")
    staging.forget("taken")
    assert staging.take("taken").is_complete
    staging.forget("never came")
    staging.add("taken", 0, CHUNK, False, True)
    staging.add("never came", 0, CHUNK, False, False)
    assert len(staging) == 0
    for number in range(OVER_MAX):
        staging.forget(f"other {number}")
    assert len(staging._over) == OVER_MAX


class Opened:
    """A snapshot that is held."""

    def __init__(self, sn: int) -> None:
        self.sn, self.is_closed = sn, False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("is_awaited", [False, True])
def test_an_update_that_another_one_makes_void_goes_at_once(is_awaited: bool) -> None:
    """Also while this node has not come again to what it has read."""
    staging, read = Staging(1 << 20), Opened(5)
    staging.add("a", 0, CHUNK, True, True)
    if is_awaited:
        staging.hold_at("a", 5, [])
    else:
        staging.hold("a", lambda: read, [])  # type: ignore[arg-type, return-value]
    staging.forget_void(5)
    assert len(staging) == 1
    staging.forget_void(6)
    assert (len(staging), staging.awaited, read.is_closed) == (0, None, not is_awaited)

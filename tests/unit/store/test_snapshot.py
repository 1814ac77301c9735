"""Snapshot numbers: ticks of event time, and minors between them."""

from __future__ import annotations

import pytest

from wukongs.store.snapshot import MINOR_BITS, TICK_MAX_MS, TICK_MIN_MS, tick_of, tick_sn


@pytest.mark.parametrize("time_ms", [TICK_MIN_MS + 1, -1, 0, 1, 802_000, TICK_MAX_MS])
def test_a_tick_names_its_time(time_ms: int) -> None:
    assert tick_of(tick_sn(time_ms)) == time_ms
    assert tick_of(tick_sn(time_ms) + 1) == time_ms
    assert tick_of(tick_sn(time_ms) + (1 << MINOR_BITS) - 1) == time_ms
    assert 0 < tick_sn(time_ms) < 2**63


def test_sns_are_in_order_of_time() -> None:
    times = [TICK_MIN_MS + 1, -100, -1, 0, 1, 100, TICK_MAX_MS]
    sns = [tick_sn(time_ms) for time_ms in times]
    assert sns == sorted(set(sns))


def test_an_engine_without_streams_counts_below_every_tick() -> None:
    assert tick_of(1) is None
    assert tick_of((1 << MINOR_BITS) - 1) is None
    assert tick_sn(TICK_MIN_MS + 1) > (1 << MINOR_BITS) - 1

"""Counts of work against their record. They do not depend on the machine, so a difference is a change of the code."""

from __future__ import annotations

import pytest

from wukongs.bench.counts import RENEW, counted, differences, python_version, read_record


@pytest.mark.slow
def test_no_query_or_change_does_more_work_than_the_record_says() -> None:
    version, record = read_record()
    if version != python_version():
        pytest.skip(f"the record was made with Python {version}, whose lines are others")
    told = differences(record, counted())
    assert not told, "\n".join([*told, f"if that is meant: {RENEW}"])


def test_the_record_has_work_in_every_line() -> None:
    _, record = read_record()
    assert {"L1, 2 firings", "L12, 2 firings", "S6", "load"} <= set(record)
    assert all(max(counts.values()) > 0 for counts in record.values())


def test_differences_tell_what_went_up_and_by_how_much() -> None:
    record = {"L1": {"kernel lines": 1000, "rows": 5}, "S1": {"kernel lines": 100, "bytes": 100}}
    now = {"L1": {"kernel lines": 1100, "rows": 6}, "S1": {"kernel lines": 200, "bytes": 90}}
    assert differences(record, record) == []
    assert differences(record, now) == [
        "S1: kernel lines went up from 100 to 200 (2.00 times, 10% are allowed)",
        "L1: rows went up from 5 to 6 (1.20 times, 0% are allowed)",
        "S1: bytes went down from 100 to 90 (0.90 times, 2% are allowed)",
    ]


def test_what_came_or_went_is_told_as_well() -> None:
    assert differences({"L1": {"rows": 5}}, {"L2": {"rows": 5}}) == [
        "L1, rows: no longer counted",
        "L2, rows: not in the record",
    ]
    assert differences({"L1": {"rows": 0}}, {"L1": {"rows": 1}}) == [
        "L1: rows went up from 0 to 1 (inf times, 0% are allowed)"
    ]

"""The table of outcomes: no number twice, bounded, and the same for all who read the same log."""

from __future__ import annotations

import json
import random

from wukongs.outcomes import CLIENTS_MAX, Asked, Outcomes


def test_numbers_that_pass_each_other_are_done_once_each() -> None:
    """Against a set of all that was done: whatever the order, and with packets that come late."""
    rng = random.Random(3)
    for _ in range(200):
        table, done, under_way, newest = Outcomes(), set[int](), set[int](), 0
        late: list[Asked] = []
        for at in range(1, 60):
            if len(under_way) < 4 and rng.random() < 0.6:
                newest += 1
                under_way.add(newest)
            if not under_way:
                continue
            number = rng.choice(sorted(under_way))
            by = Asked("a", number, tuple(sorted(under_way)))
            late.append(by)
            asked = by if rng.random() < 0.7 else rng.choice(late)
            if not table.is_over(asked):
                assert asked.number not in done
                done.add(asked.number)
                table = table.noted(asked, {"": asked.number}, at)
            if asked.number in under_way:
                assert table.of(asked) == {"": asked.number}, "its client still asks for it"
            if number in done and rng.random() < 0.6:
                under_way.discard(number)
            assert len(table.clients["a"].found) <= 8 if "a" in table.clients else True
            assert Outcomes.of_json(json.loads(json.dumps(table.as_json()))) == table


def test_the_client_whose_last_change_is_oldest_is_forgotten_first() -> None:
    table = Outcomes()
    for at in range(CLIENTS_MAX):
        table = table.noted(Asked.of(f"c{at}", 1), {"": at}, at)
    table = table.noted(Asked.of("c0", 2), {"": 7}, CLIENTS_MAX)
    table = table.noted(Asked.of("new", 1), {"": 8}, CLIENTS_MAX + 1)
    assert (table.of(Asked.of("c0", 2)), table.of(Asked.of("c1", 1))) == ({"": 7}, None)
    assert len(table.clients) == CLIENTS_MAX


def test_parts_of_one_outcome_come_together() -> None:
    by = Asked.of("a", 1)
    table = Outcomes().noted(by, {"s": 3}, 1).noted(by, {"r": 4}, 2)
    assert table.of(by) == {"s": 3, "r": 4}
    assert table.of(None) is None

"""Which nodes a leader takes out: those of which nothing new was heard for too long."""

from __future__ import annotations

from dataclasses import replace

from wukongs.protocol.control import Member, genesis
from wukongs.protocol.membership import Watch, watch
from wukongs.protocol.messages import Incarnation, Report
from wukongs.protocol.records import BEGINNING, Role


def test_a_node_that_may_still_be_starting_is_waited_for_longer() -> None:
    control, me = genesis(3, 2, 4), Incarnation(0, 0, 1)
    eye = watch(Watch(), {}, control, me, 1)
    heard = {1: Report(Incarnation(1, 0, 1), 1, {}, BEGINNING)}
    for _ in range(10):
        eye = watch(eye, heard, control, me, 1)
    assert eye.overdue(5, 20) == [1], "nothing new of node 1, and of node 2 nothing yet"
    for _ in range(11):
        eye = watch(eye, heard, control, me, 1)
    assert eye.overdue(5, 20) == [1, 2]
    again = replace(control, members={**control.members, 2: Member(7, Role.JOINING)})
    for _ in range(7):
        eye = watch(eye, heard, again, me, 1)
    assert eye.overdue(5, 20) == [1, 2], "a later life has said that it is there"

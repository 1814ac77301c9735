"""Records by which a node's shards go to spare nodes: when they are valid, and what they do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wukongs.protocol import placement
from wukongs.protocol.control import Control, apply, genesis, is_news
from wukongs.protocol.leading import lead
from wukongs.protocol.log import Log, LogRole
from wukongs.protocol.placement import best_first, machines_of, on_one_machine, replacements
from wukongs.protocol.progress import Progress
from wukongs.protocol.records import (
    AddNode,
    Drain,
    Drained,
    Entry,
    Membership,
    Nothing,
    Record,
    RemoveNode,
    Role,
    Voter,
    Voters,
)

FIRST = frozenset(Voter(node, 0) for node in range(3))


def after(control: Control, *records: Record) -> Control:
    for record in records:
        assert is_news(control, record), record
        control = apply(control, Entry(1, record))
    return control


def joins(node: int, since: int, disk: int = 0) -> list[Record]:
    return [Membership(node, disk, role, since) for role in (Role.JOINING, Role.HOLDING, Role.IN)]


def drained() -> Control:
    return after(genesis(5, 2, 6, spare_count=2), Drain(0, (3, 4)), *joins(3, 2), *joins(4, 5), Drained(0))


def test_spares_hold_nothing_and_do_not_join() -> None:
    control = genesis(5, 2, 6, spare_count=2)
    assert control.shards == ((0, 1), (1, 2), (2, 0)) * 2
    assert control.with_role(Role.OUT) == {3, 4}
    assert not is_news(control, Membership(3, 0, Role.JOINING))
    assert not is_news(control, Membership(3, 1, Role.JOINING))


def test_spares_take_a_nodes_shards_in_turns_and_then_it_holds_nothing() -> None:
    control = after(genesis(5, 2, 6, spare_count=2), Drain(0, (3, 4)))
    assert control.shards == ((0, 1, 3), (1, 2), (2, 0, 4), (0, 1, 3), (1, 2), (2, 0, 4))
    control = after(control, *joins(3, 2))
    assert not is_news(control, Drained(0)), "node 4 is not in sync"
    control = after(control, *joins(4, 5), Drained(0))
    assert control.shards == ((1, 3), (1, 2), (2, 4)) * 2
    assert control.replica_sets == {(1, 3), (1, 2), (2, 4)}
    assert not control.holds(0)
    assert control.members[0].role is Role.IN
    assert not is_news(control, Drained(0))


def test_the_view_is_another_one_once_a_node_has_given_up_its_shards() -> None:
    """Those that know it ask the node for its agreement no more. Records of earlier logs left the view as it was."""
    control = after(genesis(5, 2, 6, spare_count=2), Drain(0, (3, 4)), *joins(3, 2), *joins(4, 5))
    (record,) = placement.drained(control)
    assert after(control, record).view == control.index + 1
    assert after(control, Drained(0)).view == control.view


@pytest.mark.parametrize("role", [Role.JOINING, Role.HOLDING])
def test_nobody_gives_shards_up_while_another_node_is_on_its_way(role: Role) -> None:
    control = after(genesis(4, 2, 6, spare_count=1), Drain(0, (3,)), *joins(3, 2))
    coming = replace(control.members[1], role=role)
    assert not is_news(replace(control, members={**control.members, 1: coming}), Drained(0))
    assert is_news(control, Drained(0))


@pytest.mark.parametrize("to", [(), (1,), (0,), (3, 3), (5,)])
def test_only_spare_nodes_take_shards(to: tuple[int, ...]) -> None:
    assert not is_news(genesis(5, 2, 6, spare_count=2), Drain(0, to))


def test_a_node_without_shards_has_none_to_give() -> None:
    assert not is_news(genesis(5, 2, 6, spare_count=2), Drain(3, (4,)))


def test_a_disk_that_has_held_shards_takes_none_again() -> None:
    control = after(drained(), Membership(0, 0, Role.OUT))
    assert not is_news(control, Drain(1, (0,)))
    anew = after(control, Membership(0, 7, Role.OUT))
    assert after(anew, Drain(1, (0,))).shards == ((1, 3, 0), (1, 2, 0), (2, 4)) * 2


def test_others_take_the_place_of_spares_that_do_not_come() -> None:
    control = after(genesis(5, 2, 6, spare_count=2), Drain(0, (3,)), Drain(0, (4,)))
    assert control.shards == ((0, 1, 4), (1, 2), (2, 0, 4)) * 2
    assert not is_news(control, Drain(1, (3,))), "it may have begun to fetch"
    joining = after(control, Membership(4, 0, Role.JOINING))
    assert not is_news(joining, Drain(0, (3,)))


def test_a_leader_has_spare_nodes_take_the_place_of_those_that_are_lost() -> None:
    control = genesis(5, 2, 6, spare_count=2)
    assert replacements(control, [0], [1, 2, 3, 4]) == [], "it is not out yet"
    control = after(control, Membership(0, 0, Role.OUT))
    assert replacements(control, [0], [1, 2, 4]) == [Drain(0, (4,))]
    assert replacements(control, [], [1, 2, 3, 4]) == []
    assert replacements(control, [0, 3, 4], [1, 2]) == []
    waiting = after(control, Drain(0, (4,)))
    assert replacements(waiting, [0], [1, 2, 3, 4]) == []
    assert replacements(waiting, [0, 4], [1, 2, 3]) == [Drain(0, (3,))]


def test_a_spare_node_on_a_machine_without_other_replicas_comes_first() -> None:
    control = after(genesis(6, 2, 6, spare_count=3), Membership(0, 0, Role.OUT))
    assert control.replica_sets == {(0, 1), (1, 2), (2, 0)}
    hosts = ("a", "b", "c", "b", "c", "a")
    assert best_first(control, machines_of(control, hosts), 0, [3, 4, 5]) == [5, 3, 4]
    assert replacements(control, [0], range(1, 6), hosts) == [Drain(0, (5,))]
    assert replacements(control, [0], range(1, 5), hosts) == [Drain(0, (3,))], "better than none"
    assert best_first(control, {}, 0, [4, 3]) == [3, 4], "where nothing is known of machines"


def test_shards_that_one_machine_holds_alone_are_told_of() -> None:
    control = genesis(4, 2, 6, spare_count=1)
    assert on_one_machine(control, dict.fromkeys(range(4), "localhost")) == [], "there is one machine"
    assert on_one_machine(control, {0: "a", 1: "b", 2: "c", 3: "a"}) == []
    assert on_one_machine(control, {0: "a", 1: "b", 2: "a", 3: "b"}) == [(2, 0)]
    added = after(control, AddNode(4, "tcp://[fe80::1]:7511", "tcp://[fe80::1]:7411"))
    assert machines_of(added, ["a", "b"]) == {0: "a", 1: "b", 4: "fe80::1"}


def test_nothing_is_replaced_of_which_nobody_has_a_copy() -> None:
    control = after(genesis(5, 2, 6, spare_count=2), Membership(0, 0, Role.OUT))
    members = {**control.members, 1: replace(control.members[1], role=Role.OUT)}
    assert replacements(replace(control, members=members), [0, 1], [2, 3, 4]) == []


def voters_proposed(control: Control, leader: int, voters: frozenset[Voter]) -> frozenset[Voter] | None:
    """Return the voters that a leader proposes, if it does."""
    me = Voter(leader, control.members[leader].disk)
    match = {Voter(node, member.disk): 1 for node, member in control.members.items()}
    entries = (Entry(1, Nothing()),)
    log = Log(me, 5, FIRST, 1, entries=entries, voters=voters, base_voters=voters, commit=1, standing=LogRole.LEADER)
    log = replace(log, match=match, next_index=dict.fromkeys(range(5), 2))
    log, _ = lead(log, replace(control, index=1, term=1), Progress(), [], {})
    found = [entry.record for entry in log.entries if isinstance(entry.record, Voters)]
    return found[0].voters if found else None


def test_a_node_that_holds_nothing_gives_its_vote_to_one_that_took_its_place() -> None:
    control = drained()
    more = FIRST | {Voter(3, 0)}
    assert voters_proposed(control, 1, FIRST) == more
    assert voters_proposed(control, 1, more) == more - {Voter(0, 0)}
    assert voters_proposed(control, 1, more - {Voter(0, 0)}) is None
    assert voters_proposed(control, 0, more) is None, "a leader stays one"


def test_a_node_that_is_added_is_a_spare_one() -> None:
    control = after(genesis(3, 2, 6), AddNode(3, "there", "here"))
    assert control.nodes == [0, 1, 2, 3]
    assert control.is_spare(3)
    assert control.added == {3: AddNode(3, "there", "here")}
    control = after(control, Drain(0, (3,)), *joins(3, 3), Drained(0))
    assert control.members[3].role is Role.IN
    assert not control.holds(0)


@pytest.mark.parametrize("record", [AddNode(2, "a", "b"), AddNode(5, "a", "b"), AddNode(4, "there", "b")])
def test_an_added_node_has_the_next_number_and_an_address_of_its_own(record: AddNode) -> None:
    control = after(genesis(3, 2, 6), AddNode(3, "there", "here"))
    assert not is_news(control, record)
    assert is_news(control, AddNode(4, "a", "b"))


def test_a_removed_node_is_gone_for_ever() -> None:
    control = after(genesis(4, 2, 6, spare_count=1), Drain(0, (3,)), *joins(3, 2))
    assert not is_news(control, RemoveNode(0)), "it holds shards"
    control = after(control, Drained(0))
    assert not is_news(control, RemoveNode(0)), "it is in"
    control = after(control, Membership(0, 0, Role.OUT), RemoveNode(0))
    assert control.nodes == [1, 2, 3]
    later = Membership(0, 1, Role.OUT)
    for record in (RemoveNode(0), later, Membership(0, 1, Role.JOINING), Drain(1, (0,)), AddNode(0, "a", "b")):
        assert not is_news(control, record), record
    assert is_news(control, AddNode(4, "a", "b")), "numbers are not used again"
    assert not is_news(control, RemoveNode(7))

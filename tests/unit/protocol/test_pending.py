"""The outcomes of the records that clients of a node wait for."""

from __future__ import annotations

from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol.messages import Append, Incarnation, Message
from wukongs.protocol.node import step
from wukongs.protocol.records import Change
from wukongs.protocol.state import Cluster, Kept, boot


class Pair:
    """Two nodes. lost: messages to node 1 that do not come."""

    def __init__(self) -> None:
        self.nodes = [boot(Cluster(2), Incarnation(number, 0, 1), Kept()) for number in range(2)]
        self.done: list[act.Action] = []
        """The actions that node 1 was asked to do."""
        self.is_cut = False

    def handle(self, number: int, event: ev.Event) -> None:
        self.nodes[number], actions = step(self.nodes[number], event)
        if number == 1:
            self.done += actions
        for action in actions:
            if isinstance(action, act.Send) and not (self.is_cut and action.node == 1):
                self.handle(action.node, ev.Received(Message(self.nodes[number].me, action.body)))

    def pulse_until_led(self) -> None:
        while self.nodes[0].log.leader != 0 or not self.nodes[1].control.life:
            self.handle(0, ev.Pulse(0))


def change(client: str, number: int, after: int | None) -> Change:
    return Change(client, number, "{}", after, 0)


def test_an_update_is_told_that_it_is_void_though_a_later_load_of_its_client_is_in_the_log() -> None:
    """The load, and the record that makes the update void, come to its node in one step."""
    pair = Pair()
    pair.pulse_until_led()
    last = pair.nodes[1].control.last_update()
    update, load = change("one", 1, last), change("one", 2, None)
    pair.is_cut = True
    pair.handle(0, ev.Submitted(change("other", 1, last)))
    pair.handle(1, ev.Submitted(update))
    pair.handle(1, ev.Submitted(load))
    entries = pair.nodes[0].log.behind(pair.nodes[1].control.index)
    assert [entry.record for entry in entries] == [change("other", 1, last), load]
    assert not [one for one in pair.done if isinstance(one, act.Drop)]
    pair.done.clear()
    log = pair.nodes[0].log
    before = pair.nodes[1].log.last
    appended = Append(log.term, before, log.term_at(before), entries, log.last)
    pair.handle(1, ev.Received(Message(pair.nodes[0].me, appended)))
    assert [one.entry.record for one in pair.done if isinstance(one, act.Apply)] == [change("other", 1, last), load]
    assert [one.record for one in pair.done if isinstance(one, act.Drop)] == [update]


def test_a_change_that_was_applied_under_another_view_than_it_was_handed_in_is_not_void() -> None:
    pair = Pair()
    pair.pulse_until_led()
    pair.done.clear()
    pair.handle(1, ev.Submitted(Change("one", 1, "{}", None, view=-1)))
    for _ in range(2):
        pair.handle(0, ev.Pulse(0))
    assert [one.entry.record for one in pair.done if isinstance(one, act.Apply)] == [change("one", 1, None)]
    assert not [one for one in pair.done if isinstance(one, act.Drop)]
    assert not pair.nodes[1].pending

"""Stories that break majority logs, told step by step: too rare to wait for a seed. Each raises AssertionError."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from tests.sim.telling import outcome
from wukongs.protocol import log as raft
from wukongs.protocol.actions import SaveControl, SaveEntries, SaveVote, Send
from wukongs.protocol.control import apply, genesis
from wukongs.protocol.messages import Append, Appended, InstallControl, RequestVote, Vote
from wukongs.protocol.records import BEGINNING, DropQuery, Entry, Position, Voter, Voters


class Stage:
    """Logs of nodes that all vote, their disks, and what each has just sent. Entries travel one per message."""

    def __init__(self, count: int) -> None:
        self.voters = frozenset(Voter(node, 0) for node in range(count))
        self.disks: list[dict[str, Any]] = [
            {"term": 0, "vote": None, "entries": (), "high": BEGINNING, "control": None, "voters": frozenset()}
            for _ in self.voters
        ]
        self.logs = [self.start(node) for node in range(count)]

    def start(self, node: int) -> raft.Log:
        return raft.open_log(Voter(node, 0), len(self.voters), self.voters, **self.disks[node], entries_max=1)

    def crash(self, node: int) -> None:
        self.logs[node] = self.start(node)

    def do(self, node: int, outcome: raft.Outcome, cut: int | None = None) -> list[Send]:
        """Carry out a step, or its first `cut` actions; return what was sent."""
        self.logs[node], actions = outcome
        sent = []
        for action in actions[:cut]:
            match action:
                case Send():
                    sent.append(action)
                case SaveVote(term=term, vote=vote):
                    self.disks[node].update(term=term, vote=vote)
                case SaveEntries(after=after, entries=entries, high=high):
                    disk = self.disks[node]
                    base = disk["control"].index if disk["control"] else 0
                    disk.update(entries=disk["entries"][: after - base] + entries, high=high)
                case SaveControl(control=control, voters=voters, entries=entries, high=high):
                    self.disks[node].update(control=control, voters=voters, entries=entries, high=high)
        return sent

    def tell(self, sender: int, target: int, body: Any) -> list[Send]:
        return self.do(target, raft.receive(self.logs[target], Voter(sender, 0), body))

    def stand(self, node: int) -> RequestVote:
        """Let a node stand for election; return what it asks of the others."""
        while True:
            for sent in self.do(node, raft.pulse(self.logs[node], 0)):
                if isinstance(sent.body, RequestVote):
                    return sent.body

    def elect(self, node: int, *voters: int) -> None:
        asks = self.stand(node)
        for voter in voters:
            for answer in self.tell(node, voter, asks):
                if isinstance(answer.body, Vote):
                    self.tell(voter, node, answer.body)
        assert self.logs[node].standing is raft.LogRole.LEADER, f"{node} is not elected by {voters}"

    def lead(self, leader: int, follower: int, count: int) -> None:
        """Let a leader send its log to a follower, `count` messages and answers."""
        sent = [one for one in self.do(leader, raft.pulse(self.logs[leader], 0)) if one.node == follower]
        for _ in range(count):
            answers = [answer for one in sent for answer in self.tell(leader, follower, one.body)]
            sent = [more for one in answers for more in self.tell(follower, leader, one.body)]


def a_vote_outlives_a_crash() -> None:
    stage = Stage(3)
    stage.elect(0, 2)
    stage.crash(2)
    asks = stage.stand(1)
    answers = [answer.body for answer in stage.tell(1, 2, asks)]
    assert not any(isinstance(body, Vote) and body.is_granted for body in answers), "two votes in one term"


def what_is_acknowledged_outlives_a_crash() -> None:
    for cut in range(5):
        stage = Stage(3)
        stage.elect(0, 2)
        entry = stage.logs[0].entries[0]
        body = Append(1, 0, 0, (entry,), 0)
        sent = stage.do(1, raft.receive(stage.logs[1], Voter(0, 0), body), cut)
        says_so = any(isinstance(one.body, Appended) and one.body.is_taken for one in sent)
        assert not says_so or stage.disks[1]["entries"] == (entry,), "acknowledged, and not on disk"


def _overwritten() -> Stage:
    """0 appends in term 1 for itself alone, 1 in term 2; 0 leads term 3, and 1 and 2 have taken its first entry."""
    stage = Stage(5)
    stage.elect(0, 1, 2)
    stage.elect(1, 3, 4)
    stage.crash(0)
    stage.tell(1, 0, Appended(2, False, 0))
    stage.elect(0, 2, 3)
    stage.lead(0, 1, 2)
    stage.lead(0, 2, 2)
    assert [log.entries[:1] for log in stage.logs[1:3]] == [stage.logs[0].entries[:1]] * 2
    return stage


def an_entry_of_an_old_term_is_not_committed_by_count() -> None:
    stage = _overwritten()
    assert stage.logs[0].commit == 0, "an entry of term 1 on three of five nodes may still lose against term 2"


def what_was_held_is_not_forgotten() -> None:
    stage = _overwritten()
    assert stage.logs[1].term_at(1) == 1
    assert stage.logs[1].high >= Position(2, 1), "the entry of term 2 is cut off at 1, and may live on elsewhere"
    stage.crash(1)
    assert stage.logs[1].high >= Position(2, 1), "forgotten in a crash"


def voters_change_one_at_a_time() -> None:
    stage = Stage(3)
    stage.elect(0, 1)
    assert not raft.may_change_voters(stage.logs[0]), "no entry of its term is committed yet"
    stage.lead(0, 1, 1)
    assert raft.may_change_voters(stage.logs[0])
    stage.do(0, raft.propose(stage.logs[0], Voters(stage.voters - {Voter(2, 0)})))
    stage.do(0, raft.propose(stage.logs[0], DropQuery("q")))
    assert not raft.may_change_voters(stage.logs[0]), "the last change is not committed yet"
    assert stage.logs[0].voters == {Voter(0, 0), Voter(1, 0)}, "a change counts as soon as it is held"


def _cut_off() -> Stage:
    """0 has led 1 to commit two entries, the second of which says that 2 votes no more, and has cut them off."""
    stage = Stage(3)
    stage.elect(0, 1)
    stage.lead(0, 1, 1)
    stage.do(0, raft.propose(stage.logs[0], Voters(stage.voters - {Voter(2, 0)})))
    stage.lead(0, 1, 1)
    log = stage.logs[0]
    assert log.commit == 2
    control = genesis(3, 1, 3)
    for entry in log.entries:
        control = apply(control, entry)
    stage.do(0, raft.cut(replace(log, applied=control), control))
    return stage


def who_votes_is_not_forgotten_with_the_entries() -> None:
    stage = _cut_off()
    assert (stage.logs[0].entries, stage.logs[0].last, stage.logs[0].last_term) == ((), 2, 1)
    stage.crash(0)
    assert stage.logs[0].voters == {Voter(0, 0), Voter(1, 0)}, "the entry that said so is cut off"
    assert (stage.logs[0].last, stage.logs[0].last_term, stage.logs[0].commit) == (2, 1, 2)


def who_lacks_what_was_cut_off_goes_on_from_a_control_state() -> None:
    stage = _cut_off()
    stage.lead(0, 2, 4)
    assert (stage.logs[2].base, stage.logs[2].commit, stage.logs[2].voters) == (2, 2, stage.logs[0].voters)
    stage.do(0, raft.propose(stage.logs[0], DropQuery("q")))
    stage.lead(0, 2, 2)
    assert stage.logs[2].entries == stage.logs[0].entries != ()
    stage.crash(2)
    assert (stage.logs[2].last, stage.logs[2].entries) == (3, stage.logs[0].entries)


def who_has_forgotten_how_far_it_was_goes_on_behind_what_was_cut_off() -> None:
    """The answers of node 2 are lost, it starts again, and takes no control state, since it takes part."""
    stage = _cut_off()
    entries = stage.disks[1]["entries"]
    stage.tell(0, 2, Append(1, 0, 0, entries, 2))
    stage.crash(2)
    assert (stage.logs[2].last, stage.logs[2].commit) == (2, 0), "nothing on disk says what was committed"
    stage.do(0, raft.propose(stage.logs[0], DropQuery("q")))
    for _ in range(3):
        for one in stage.do(0, raft.pulse(stage.logs[0], 0)):
            if one.node == 2:
                taken = raft.receive(stage.logs[2], Voter(0, 0), one.body, may_jump=False)
                for answer in stage.do(2, taken):
                    sent = stage.tell(2, 0, answer.body)
                    assert not any(isinstance(more.body, InstallControl) for more in sent), "it would go round"
    assert stage.logs[2].last == 3


def what_may_have_been_counted_stays_behind_a_control_state() -> None:
    stage = Stage(3)
    entries = tuple(Entry(1, DropQuery(f"q{number}")) for number in range(3))
    stage.tell(0, 1, Append(1, 0, 0, entries, 0))
    state = InstallControl(1, apply(genesis(3, 1, 3), entries[0]), stage.voters)
    stage.tell(0, 1, state)
    assert stage.logs[1].entries == entries[1:], "the leader may have counted them here"
    stage.tell(0, 2, Append(1, 0, 0, tuple(structs.replace(entry, term=0) for entry in entries), 0))
    stage.tell(0, 2, state)
    assert stage.logs[2].entries == (), "they are of another log"
    stage.tell(0, 1, Append(1, 0, 0, entries, 3))
    assert (stage.logs[1].commit, stage.logs[1].entries) == (3, entries[1:]), "it speaks of what is cut off here"


def who_votes_by_an_entry_is_told_of_the_log() -> None:
    """A node that was founded alone, and one that was added as a voter, start again: the first needs its answer."""
    stage = Stage(2)
    stage.voters = frozenset({Voter(0, 0)})
    entry = Entry(1, Voters(frozenset({Voter(0, 0), Voter(1, 0)})))
    stage.disks[0].update(term=1, vote=Voter(0, 0), entries=(entry,), high=Position(1, 1))
    stage.tell(0, 1, Append(1, 0, 0, (entry,), 0))
    stage.crash(0)
    stage.crash(1)
    stage.elect(0, 1)
    stage.lead(0, 1, 2)
    assert stage.logs[0].commit == 2


STORIES = (
    a_vote_outlives_a_crash,
    what_is_acknowledged_outlives_a_crash,
    an_entry_of_an_old_term_is_not_committed_by_count,
    what_was_held_is_not_forgotten,
    voters_change_one_at_a_time,
    who_votes_is_not_forgotten_with_the_entries,
    who_lacks_what_was_cut_off_goes_on_from_a_control_state,
    who_has_forgotten_how_far_it_was_goes_on_behind_what_was_cut_off,
    what_may_have_been_counted_stays_behind_a_control_state,
    who_votes_by_an_entry_is_told_of_the_log,
)

failure = partial(outcome, STORIES)

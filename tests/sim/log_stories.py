"""Stories that break majority logs, told step by step: too rare to wait for a seed. Each raises AssertionError."""

from __future__ import annotations

from typing import Any

from wukongs.protocol import log as raft
from wukongs.protocol.actions import SaveEntries, SaveVote, Send
from wukongs.protocol.messages import Append, Appended, RequestVote, Vote
from wukongs.protocol.records import BEGINNING, DropQuery, Position, Voter, Voters


class Stage:
    """Logs of nodes that all vote, their disks, and what each has just sent. Entries travel one per message."""

    def __init__(self, count: int) -> None:
        self.voters = frozenset(Voter(node, 0) for node in range(count))
        self.disks: list[dict[str, Any]] = [
            {"term": 0, "vote": None, "entries": (), "high": BEGINNING} for _ in self.voters
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
                    self.disks[node].update(entries=self.disks[node]["entries"][:after] + entries, high=high)
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
        assert self.logs[node].standing is raft.Standing.LEADER, f"{node} is not elected by {voters}"

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


STORIES = (
    a_vote_outlives_a_crash,
    what_is_acknowledged_outlives_a_crash,
    an_entry_of_an_old_term_is_not_committed_by_count,
    what_was_held_is_not_forgotten,
    voters_change_one_at_a_time,
)


def failure(seed: int) -> str | None:
    """Tell the story with this number; return what went wrong."""
    try:
        STORIES[seed % len(STORIES)]()
    except AssertionError as error:
        return str(error)
    return None

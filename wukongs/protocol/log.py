"""The majority log: Raft's algorithm (Ongaro and Ousterhout, 2014) as a step function.

Invariants, and what keeps each true:

* *One leader a term.* A voter gives one vote a term, and has it on disk before anybody hears of it.
* *Logs that agree on an entry's (index, term) agree on all before it.* A follower takes entries only behind one that
  it shares with the leader.
* *Committed entries stay.* A leader counts a majority for entries of its own term only, and commits all earlier entries
  with them: an old entry on a majority can still lose against a log that ends in a later term. A vote goes only to a
  log that ends no earlier than the voter's, so each later leader has all committed entries.
* *Voters change one at a time*: any majorities of two sets that differ in one voter share a voter. The next change
  waits until the last one is committed, and until an entry of the leader's own term is.
* *A lost disk is another voter* (records.Voter): a node that forgot its votes cannot vote again in the same term.

The beginning of the log is cut off now and then (compaction.py says when): its entries are committed, so no leader
lacks them or would change them, and their sum is kept as a control state. A node so far behind that it needs them is
sent this state (InstallControl), and goes on from there. It keeps its later entries if its entry at that place has the
right term: they may have been counted. A message about entries that are cut off here agrees with them.

`high` is the highest position that this node has ever held. It is on disk, and does not fall when a new leader cuts
entries off: an entry that was cut off here may live on elsewhere and be committed after all. Reports carry it
(progress.py).

Nodes that do not vote follow the log as well. Time is the host's: a Pulse event every so often, which says how many
pulses long it was since the last one, with a random number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from wukongs.protocol.actions import Action, SaveControl, SaveEntries, SaveVote, Send
from wukongs.protocol.control import Control
from wukongs.protocol.messages import Append, Appended, InstallControl, RequestVote, Vote
from wukongs.protocol.records import BEGINNING, Entry, Nothing, Position, Record, Voter, Voters

ELECTION_PULSES = 5
"""By default a follower stands for election after 5 to 9 pulses without a leader."""
ENTRIES_MAX = 64
"""Entries per message."""


class LogRole(Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Log:
    """One node's part of the log. entries[i] has index base + i + 1; commit: the highest index that is known to be
    committed; applied: a control state between base and there, None where nothing is cut off; told: of a leader, the
    commit index that each node was told last.

    term, vote, entries, high are on disk, and with base its base_term, base_voters and control state. node_count: nodes
    0 to node_count - 1 follow the log, until `applied` says which do. silence: pulses since a leader was heard;
    patience: how many of them until this node stands for election, election_pulses at least."""

    me: Voter
    node_count: int
    first_voters: frozenset[Voter]
    term: int = 0
    vote: Voter | None = None
    entries: tuple[Entry, ...] = ()
    high: Position = BEGINNING
    base: int = 0
    base_term: int = 0
    base_voters: frozenset[Voter] = frozenset()
    voters: frozenset[Voter] = frozenset()
    commit: int = 0
    applied: Control | None = None
    standing: LogRole = LogRole.FOLLOWER
    leader: int | None = None
    votes: frozenset[Voter] = frozenset()
    next_index: Mapping[int, int] = field(default_factory=dict)
    match: Mapping[Voter, int] = field(default_factory=dict)
    told: Mapping[int, int] = field(default_factory=dict)
    entries_max: int = ENTRIES_MAX
    election_pulses: int = ELECTION_PULSES
    silence: int = 0
    patience: int = ELECTION_PULSES

    @property
    def last(self) -> int:
        """The index of the last entry that is held."""
        return self.base + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.term_at(self.last)

    @property
    def may_propose(self) -> bool:
        """Whether this is a leader that has committed an entry of its own term, and so has applied all before it."""
        return self.standing is LogRole.LEADER and self.commit > 0 and self.term_at(self.commit) == self.term

    def term_at(self, index: int) -> int:
        """Return the term of an entry that is held, or of the last one that was cut off."""
        assert index >= self.base, (index, self.base)
        return self.entries[index - self.base - 1].term if index > self.base else self.base_term

    def at(self, index: int) -> Entry:
        return self.entries[index - self.base - 1]

    def behind(self, index: int) -> tuple[Entry, ...]:
        """Return the entries after an index."""
        assert index >= self.base, (index, self.base)
        return self.entries[index - self.base :]

    def up_to(self, index: int) -> tuple[Entry, ...]:
        """Return the entries up to an index that are held."""
        return self.entries[: max(0, index - self.base)]


Outcome = tuple[Log, list[Action]]


def open_log(
    me: Voter,
    node_count: int,
    first_voters: frozenset[Voter],
    *,
    term: int = 0,
    vote: Voter | None = None,
    entries: tuple[Entry, ...] = (),
    high: Position = BEGINNING,
    control: Control | None = None,
    voters: frozenset[Voter] = frozenset(),
    entries_max: int = ENTRIES_MAX,
    election_pulses: int = ELECTION_PULSES,
) -> Log:
    """Return the log of a node that has just started, with what its disk has kept. control, voters: see SaveControl."""
    base, base_term, base_voters = (control.index, control.term, voters) if control else (0, 0, first_voters)
    log = Log(me, node_count, first_voters, term, vote, entries, high, base, base_term, base_voters)
    log = replace(log, entries_max=entries_max, election_pulses=election_pulses, patience=election_pulses)
    return replace(log, voters=_voters_of(log), commit=base, applied=control)


def as_saved(log: Log, action: SaveVote | SaveEntries | SaveControl) -> Log:
    """Return a log with what a disk has kept further on: a restart that goes through the log's life again. Everything
    up to a control state is committed."""
    match action:
        case SaveVote(term=term, vote=vote):
            return replace(log, term=term, vote=vote)
        case SaveEntries(after=after, entries=entries, high=high):
            log = replace(log, entries=log.up_to(after) + entries, high=high)
        case SaveControl(control=control, voters=voters, entries=entries, high=high):
            log = replace(
                log,
                entries=entries,
                high=high,
                base=control.index,
                base_term=control.term,
                base_voters=voters,
                commit=max(log.commit, control.index),
            )
    return replace(log, voters=_voters_of(log))


def pulse(log: Log, draw: int, elapsed: int = 1) -> Outcome:
    """Let a moment pass. draw: any random integer >= 0, which sets how patient this node is next."""
    log = replace(log, silence=log.silence + elapsed)
    if log.standing is LogRole.LEADER:
        return _send_entries(replace(log, silence=0), _others(log))
    if log.silence < log.patience or log.me not in log.voters:
        return log, []
    log = replace(
        log,
        term=log.term + 1,
        vote=log.me,
        standing=LogRole.CANDIDATE,
        leader=None,
        votes=frozenset({log.me}),
        silence=0,
        patience=log.election_pulses + draw % log.election_pulses,
    )
    ask = RequestVote(log.term, log.last, log.last_term)
    actions: list[Action] = [SaveVote(log.term, log.vote)]
    actions += [Send(voter.node, ask) for voter in sorted(log.voters) if voter != log.me]
    return _count_votes(log, actions)


def receive(
    log: Log, sender: Voter, message: RequestVote | Vote | Append | Appended | InstallControl, may_jump: bool = True
) -> Outcome:
    """Take in a message of the log. may_jump: whether this node may skip entries by a control state."""
    if isinstance(message, RequestVote) and log.leader is not None and log.silence < log.election_pulses:
        return log, []  # A leader is alive: a node that does not hear it must not force an election upon the others.
    actions: list[Action] = []
    if message.term > log.term:
        log = replace(_followed(log, None), term=message.term, vote=None)
        actions.append(SaveVote(log.term, None))
    if isinstance(message, RequestVote):
        log, more = _answer_candidate(log, sender, message)
    elif isinstance(message, Append):
        log, more = _answer_leader(log, sender, message)
    elif isinstance(message, InstallControl):
        log, more = _install(log, sender, message, may_jump)
    elif message.term < log.term:
        return log, actions
    elif isinstance(message, Vote):
        log = replace(log, votes=log.votes | {sender}) if message.is_granted else log
        log, more = _count_votes(log, [])
    else:
        log, more = _take_answer(log, sender, message)
    return log, actions + more


def propose(log: Log, record: Record, tick: int | None = None) -> Outcome:
    """Append a record, as the leader, and send it to all."""
    assert log.standing is LogRole.LEADER, log.standing
    entry = Entry(log.term, record, tick, None if tick is None else log.me)
    log, actions = _append(log, log.last, (entry,))
    log, more = _send_entries(log, _others(log))
    return _commit(log, actions + more)


def cut(log: Log, control: Control) -> Outcome:
    """Cut off the applied entries that a control state covers."""
    index = control.index
    assert log.base <= index <= log.commit, (log.base, index, log.commit)
    voters, entries = voters_at(log, index), log.behind(index)
    log = replace(log, base=index, base_term=control.term, base_voters=voters, entries=entries)
    return log, [SaveControl(control, voters, entries, log.high)]


def voters_at(log: Log, index: int) -> frozenset[Voter]:
    """Return the voters behind an entry."""
    return _voters_of(replace(log, entries=log.up_to(index)))


def may_change_voters(log: Log) -> bool:
    """Whether the last change of the voters is committed, so that the next one may be proposed."""
    return log.may_propose and not any(isinstance(entry.record, Voters) for entry in log.behind(log.commit))


def _others(log: Log) -> list[int]:
    """Return the nodes that a leader tells. One that was added may vote by an entry that is not applied here yet."""
    nodes = set(range(log.node_count) if log.applied is None else log.applied.nodes)
    return sorted(nodes.union(voter.node for voter in log.voters) - {log.me.node})


def _voters_of(log: Log) -> frozenset[Voter]:
    """Return the voters by the last record about them that is held, committed or not."""
    changes = (entry.record.voters for entry in reversed(log.entries) if isinstance(entry.record, Voters))
    return next(changes, log.base_voters)


def _is_majority(log: Log, those: frozenset[Voter]) -> bool:
    return 2 * len(those & log.voters) > len(log.voters)


def _followed(log: Log, leader: int | None) -> Log:
    """Follow a leader, which has just been heard; None: nobody yet."""
    silence = log.silence if leader is None else 0
    if log.standing is LogRole.FOLLOWER:
        return replace(log, leader=leader, silence=silence)
    follower = LogRole.FOLLOWER
    return replace(
        log, standing=follower, leader=leader, silence=silence, votes=frozenset(), next_index={}, match={}, told={}
    )


def _append(log: Log, after: int, entries: tuple[Entry, ...]) -> Outcome:
    """Put entries behind index `after`, in place of those that are there."""
    assert after >= log.commit, f"{log.me} would cut off {log.commit - after} committed entries"
    changes_voters = any(isinstance(entry.record, Voters) for entry in log.behind(after) + entries)
    high = max(log.high, Position(entries[-1].term, after + len(entries)))
    log = replace(log, entries=log.up_to(after) + entries, high=high)
    if changes_voters:
        log = replace(log, voters=_voters_of(log))
    return log, [SaveEntries(after, entries, high)]


def _answer_candidate(log: Log, sender: Voter, message: RequestVote) -> Outcome:
    is_as_new = (message.last_term, message.last_index) >= (log.last_term, log.last)
    grants = message.term == log.term and log.vote in (None, sender) and is_as_new
    if not grants:
        return log, [Send(sender.node, Vote(log.term, False))]
    log = replace(log, vote=sender, silence=0)
    return log, [SaveVote(log.term, sender), Send(sender.node, Vote(log.term, True))]


def _count_votes(log: Log, actions: list[Action]) -> Outcome:
    if log.standing is not LogRole.CANDIDATE or not _is_majority(log, log.votes):
        return log, actions
    log = replace(
        log,
        standing=LogRole.LEADER,
        leader=log.me.node,
        silence=0,
        next_index=dict.fromkeys(_others(log), log.last + 1),
        match={},
        told={},
    )
    log, more = propose(log, Nothing())
    return log, actions + more


def _answer_leader(log: Log, sender: Voter, message: Append) -> Outcome:
    if message.term < log.term:
        return log, [Send(sender.node, Appended(log.term, False, 0))]
    log = _followed(log, sender.node)
    before, entries = max(message.before, log.base), message.entries[max(0, log.base - message.before) :]
    if before > log.last or (before == message.before and log.term_at(before) != message.before_term):
        return log, [Send(sender.node, Appended(log.term, False, min(before - 1, log.last)))]
    actions: list[Action] = []
    for place, entry in enumerate(entries):
        index = before + place + 1
        if index > log.last or log.term_at(index) != entry.term:
            log, actions = _append(log, index - 1, entries[place:])
            break
    shared = before + len(entries)
    if (commit := min(message.commit, shared)) > log.commit:
        log = replace(log, commit=commit)
    return log, [*actions, Send(sender.node, Appended(log.term, True, shared))]


def _install(log: Log, sender: Voter, message: InstallControl, may_jump: bool) -> Outcome:
    if message.term < log.term:
        return log, [Send(sender.node, Appended(log.term, False, 0))]
    log = _followed(log, sender.node)
    control = message.control
    if control.index <= log.commit or not may_jump:  # The leader has not heard how far this node is.
        return log, [Send(sender.node, Appended(log.term, True, log.commit))]
    is_shared = control.index <= log.last and log.term_at(control.index) == control.term
    entries = log.behind(control.index) if is_shared else ()
    log = replace(
        log,
        entries=entries,
        high=max(log.high, control.position),
        base=control.index,
        base_term=control.term,
        base_voters=message.voters,
        commit=control.index,
        applied=control,
    )
    saved = SaveControl(control, message.voters, entries, log.high, is_jump=True)
    return replace(log, voters=_voters_of(log)), [saved, Send(sender.node, Appended(log.term, True, control.index))]


def _take_answer(log: Log, sender: Voter, message: Appended) -> Outcome:
    if log.standing is not LogRole.LEADER:
        return log, []
    if not message.is_taken:
        follows = min(_next_of(log, sender.node), message.index + 1)
        log = replace(log, next_index={**log.next_index, sender.node: max(1, follows)})
        return _send_entries(log, [sender.node])
    matched = max(message.index, log.match.get(sender, 0))
    follows = max(matched, log.base) + 1  # a node that takes no control state has all that is cut off, and may not know
    log = replace(log, next_index={**log.next_index, sender.node: follows}, match={**log.match, sender: matched})
    log, actions = _commit(log, [])
    if log.base <= matched < log.last and message.index == matched:
        log, more = _send_entries(log, [sender.node])
        actions += more
    log, more = _send_entries(log, _behind_on_commit(log))
    return log, actions + more


def _commit(log: Log, actions: list[Action]) -> Outcome:
    """Commit, as the leader, the entries that a majority holds, if the last one is of this term."""
    for index in range(log.last, log.commit, -1):
        holders = frozenset(voter for voter, matched in log.match.items() if matched >= index) | {log.me}
        if log.term_at(index) == log.term and _is_majority(log, holders):
            log = replace(log, commit=index)
            break
    if log.me not in log.voters and voters_at(log, log.commit) == log.voters:
        log = _followed(log, None)  # What takes this leader out of the voters is committed.
    return log, actions


def _next_of(log: Log, node: int) -> int:
    """Return the entry that a node is to get next: behind all, of one that was added since this leader leads."""
    return log.next_index.get(node, log.last + 1)


def _behind_on_commit(log: Log) -> list[int]:
    """Return the nodes that hold the newest committed entry and have not been told so; they need not wait for a pulse.

    Each is told once of a commit index; with the next pulse everybody hears of it again."""
    nodes = {voter.node for voter, matched in log.match.items() if matched >= log.commit}
    return sorted(node for node in nodes if log.told.get(node, 0) < log.commit)


def _send_entries(log: Log, nodes: Iterable[int]) -> Outcome:
    """Send nodes the entries that they lack, as far as is known, and tell them the commit index."""
    found: list[Action] = []
    told = dict(log.told)
    for node in nodes:
        before = min(_next_of(log, node) - 1, log.last)
        if before >= log.base:
            entries = log.behind(before)[: log.entries_max]
            found.append(Send(node, Append(log.term, before, log.term_at(before), entries, log.commit)))
            told[node] = min(log.commit, before + len(entries))
        elif log.applied is not None:
            control = log.applied
            found.append(Send(node, InstallControl(log.term, control, voters_at(log, control.index))))
    return replace(log, told=told), found

"""The control state: the sum of the committed records of the majority log. It is the same on every node at one
index."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from wukongs.outcomes import Asked, Outcomes
from wukongs.protocol.records import (
    BEGINNING,
    LIVE,
    NO_RULES,
    TICKED,
    AddNode,
    AdvanceGroup,
    AlterQuery,
    BeginStream,
    Change,
    DeclareStream,
    Drain,
    Drained,
    DropQuery,
    DropStream,
    EndStream,
    Entry,
    Founded,
    Int64,
    LateJoin,
    Membership,
    MoveQuery,
    NameReaders,
    OpenPartition,
    Position,
    Record,
    ReEncode,
    RegisterQuery,
    RemoveNode,
    Role,
    Sn,
    Voter,
)

THE_FIRST = Sn(0, 0)


@dataclass(frozen=True, slots=True)
class DeclaredStream:
    """key: names it everywhere (records.DeclareStream). began: the tick of its group at which it began (None: not yet).
    counts: the tick behind which it counts, None while it has not begun or is late; joined: the last stream batch that
    a LateJoin has brought. last_batch: None while it is open. gone: for a dropped stream, the SN from which on no
    vector timestamp names it any more; its tuples up to last_batch stay. is_made: a query makes it, and it is late for
    ever: ticks never wait for it. followed: stream batches after < k <= to whose tuples changes have stored, with what
    follows by rules (followed.py)."""

    key: str
    partitions: tuple[str, ...]
    batch_ticks: Int64
    group: str
    first_tick: Int64 = 0
    payload: str = ""
    began: Int64 | None = None
    counts: Int64 | None = None
    joined: Int64 = 0
    last_batch: Int64 | None = None
    is_dropped: bool = False
    gone: Sn | None = None
    is_made: bool = False
    followed: tuple[tuple[Int64, Int64], ...] = ()

    @property
    def stores(self) -> bool:
        """Whether tuples of it may join the stored graph."""
        return may_store(self.payload)

    @property
    def followed_to(self) -> int:
        """The stream batch up to which all that is to be stored is stored by changes, while there are rules. One of its
        partitions may bring something of before the stream has begun, which another one has made known."""
        return self.followed[-1][1] if self.followed else 0

    @property
    def is_late(self) -> bool:
        """Whether it has begun behind the ticks, and has neither come as far as they are nor joined to its end."""
        return self.began is not None and self.counts is None and self.joined != self.last_batch

    def end_of(self, batch: int) -> int:
        """Return the tick at which a stream batch ends; batch 0: the tick before everything."""
        return self.first_tick + batch * self.batch_ticks

    def cover_of(self, batch: int) -> int:
        """Return the last tick before which no later stream batch ends."""
        return self.end_of(batch) + self.batch_ticks - 1

    def batch_before(self, tick: int) -> int:
        """Return the last stream batch that ends at or before a tick, 0 if there is none."""
        return max(0, (tick - self.first_tick) // self.batch_ticks)

    def batch_at(self, tick: int) -> int:
        """Return the last stream batch that the ticks up to this one show, 0 if there is none."""
        if self.counts is None or tick <= self.counts:
            return 0
        batch = self.batch_before(tick)
        return batch if self.last_batch is None else min(batch, self.last_batch)


@dataclass(frozen=True, slots=True)
class Member:
    """since: the index of the record that made it JOINING; held, came: the positions of those that made it HOLDING and
    IN; left: the last disk with which it gave its shards up, -1: none. is_removed: it takes no part any more."""

    disk: Int64
    role: Role
    since: Int64 = 0
    held: Position = BEGINNING
    left: Int64 = -1
    is_removed: bool = False
    came: Position = BEGINNING


TO_BE_ADDED = Member(0, Role.OUT)
"""A node that nobody knows yet."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered query. nodes: those that keep slices for it, complete from the first stream batch after this SN
    on. changes: how many there were. placed: the index of the record that brought it to these nodes; come: as in that
    MoveQuery; groups: the named ones of its readers; bound: the changes of its arguments, as AlterQuery has them;
    stands: how often it was said where a named reader of a live view stands, and what was said last."""

    streams: tuple[str, ...]
    nodes: Mapping[Int64, Sn]
    payload: str
    since: Sn
    changes: Int64 = 0
    placed: Int64 = 0
    come: Int64 | None = None
    groups: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    stands: Mapping[str, tuple[Int64, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a ticked record lies."""

    sn: Sn
    index: Int64


@dataclass(frozen=True, slots=True)
class Advance:
    sn: Sn
    group: str
    tick: Int64


@dataclass(frozen=True, slots=True)
class Join:
    """The stream batch up to which the LateJoin at an SN has brought a stream."""

    sn: Sn
    stream: str
    batch: Int64


@dataclass(frozen=True, slots=True)
class Control:
    """index, term: of the last entry that is in it. shards[i]: the nodes that replicate shard i; replica_sets: these,
    each once; drains: the nodes whose shards others are taking over, and these. members: the nodes by their numbers,
    which have no gaps; added: those that were not named at the beginning, and where they are.

    life: the name of the cluster's life, "" before it is founded; keys: per name the key of the stream that was
    declared under it last. homeless: the queries of which no node is IN; moved: the index of the last MoveQuery.
    exceptions: per text the number of its re-encoding; outcomes: of changes, each by the names
    "tick" and "minor" of its SN, and "index" of its record; rules: as in Change; changed: the SN of the last change
    that has stored something, or begun or ended rules;
    view: see claims.py; marks, updates, advances and joins are in order. floor: records
    before this SN may have been forgotten here (`forget`); the rest is the same on every node at one index."""

    shards: tuple[tuple[Int64, ...], ...]
    replica_sets: frozenset[tuple[Int64, ...]]
    members: Mapping[Int64, Member]
    index: Int64 = 0
    term: Int64 = 0
    view: Int64 = 0
    life: str = ""
    streams: Mapping[str, DeclaredStream] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Int64] = field(default_factory=dict)
    queries: Mapping[str, Registered] = field(default_factory=dict)
    homeless: frozenset[str] = frozenset()
    moved: Int64 = 0
    exceptions: Mapping[str, Int64] = field(default_factory=dict)
    outcomes: Outcomes = field(default_factory=Outcomes)
    marks: tuple[Mark, ...] = ()
    updates: tuple[Mark, ...] = ()
    advances: tuple[Advance, ...] = ()
    joins: tuple[Join, ...] = ()
    floor: Sn = THE_FIRST
    drains: Mapping[Int64, tuple[Int64, ...]] = field(default_factory=dict)
    added: Mapping[Int64, AddNode] = field(default_factory=dict)
    rules: str = ""
    changed: Sn = THE_FIRST

    @property
    def position(self) -> Position:
        """How far the log is committed."""
        return Position(self.term, self.index)

    @property
    def last_sn(self) -> Sn:
        """Where the last ticked record lies."""
        return self.marks[-1].sn if self.marks else THE_FIRST

    @property
    def live_streams(self) -> Iterator[DeclaredStream]:
        """The streams that are not gone."""
        return (stream for stream in self.streams.values() if stream.gone is None)

    def key_of(self, name: str) -> str:
        """Return the key of the stream that was declared under a name last; a key, or an unknown name, as it is."""
        return self.keys.get(name, name)

    def stream_named(self, name: str) -> DeclaredStream | None:
        """Return the stream that was declared under a name last, None if there is none."""
        return self.streams.get(self.key_of(name))

    def takes_in(self, key: str) -> bool:
        """Whether a stream was declared and not dropped."""
        return key in self.streams and not self.streams[key].is_dropped

    def role_of(self, voter: Voter) -> Role:
        """Return a node's role, OUT if it has another disk than the one that has the role."""
        member = self.member(voter.node)
        return member.role if member.disk == voter.disk else Role.OUT

    @property
    def nodes(self) -> list[int]:
        """The nodes that are there, whatever their role."""
        return [node for node, member in sorted(self.members.items()) if not member.is_removed]

    def member(self, node: int) -> Member:
        """Return how it is with a node; one that is to be added is OUT."""
        return self.members.get(node, TO_BE_ADDED)

    def with_role(self, *roles: Role) -> set[int]:
        return {node for node, member in self.members.items() if member.role in roles}

    def holds(self, node: int) -> bool:
        """Whether a node holds a shard."""
        return any(node in nodes for nodes in self.replica_sets)

    def is_spare(self, node: int) -> bool:
        """Whether a node may be given shards: it is OUT, and its disk has never held any."""
        member = self.members.get(node)
        if member is None or member.is_removed:
            return False
        return member.role is Role.OUT and member.disk > member.left and not self.holds(node)

    def claimers(self, replica_sets: Iterable[tuple[int, ...]]) -> frozenset[int]:
        """Return the nodes that must agree to terms of shards with these replica sets."""
        return frozenset[int]().union(*replica_sets) - self.with_role(Role.OUT)

    def is_covered_without(self, node: int | None = None) -> bool:
        """Whether every shard (if a node is given: of it) has an in-sync replica besides it."""
        synced = self.with_role(Role.IN) - {node}
        return all(synced.intersection(nodes) for nodes in self.replica_sets if node is None or node in nodes)

    def outcome_of(self, asked: Asked) -> Mark | None:
        """Return where the record of a client's change lies, None if it is not known to have been applied."""
        found = self.outcomes.of(asked)
        return None if found is None else Mark(Sn(found["tick"], found["minor"]), found["index"])

    def last_update(self, sn: Sn | None = None) -> int:
        """Return the index of the last update (up to an SN), 0 if there is none."""
        return next((mark.index for mark in reversed(self.updates) if sn is None or mark.sn <= sn), 0)

    def vts_at(self, sn: Sn) -> dict[str, int]:
        """Return the vector timestamp that an SN stands for, of the streams that have something by then."""
        ticks = {advance.group: advance.tick for advance in self.advances if advance.sn <= sn}
        ticks[LIVE] = sn.tick
        joined = {join.stream: join.batch for join in self.joins if join.sn <= sn}
        shown = (one for one in self.streams.values() if one.counts is not None or one.key in joined)
        there = (stream for stream in shown if stream.gone is None or sn < stream.gone)
        batches = {one.key: max(one.batch_at(ticks.get(one.group, 0)), joined.get(one.key, 0)) for one in there}
        return {key: batch for key, batch in batches.items() if batch}


def genesis(node_count: int, replica_count: int, shard_count: int, spare_count: int = 0) -> Control:
    """Return the state before the first record: all nodes IN, shard s on nodes s, s + 1, ... (modulo their number). The
    last nodes are spare: OUT, without shards."""
    count = node_count - spare_count
    replica_count = min(replica_count, count)
    shards = tuple(tuple((shard + i) % count for i in range(replica_count)) for shard in range(shard_count))
    members = {node: Member(0, Role.IN if node < count else Role.OUT) for node in range(node_count)}
    return Control(shards, frozenset(shards), members)


def is_valid(control: Control, entry: Entry) -> bool:
    """Whether an entry at the next index changes anything. Leaders append no entry that does not, and nobody applies
    one. The answer depends only on the log before the entry, so it is the same everywhere."""
    record, tick = entry.record, entry.tick
    if isinstance(record, TICKED) and not _has_place(control, entry):
        return False
    if not is_news(control, record):
        return False
    # Later ticks show what ends after the record.
    return not isinstance(record, LateJoin) or record.batch <= control.streams[record.stream].batch_before(tick or 0)


def is_news(control: Control, record: Record) -> bool:
    """Whether a record says something that may be said now and is not so already."""
    match record:
        case Founded():
            return not control.life
        case Membership():
            return _may_become(control, record)
        case Drain():
            return _may_drain(control, record)
        case Drained(node=node):
            return _is_drained(control, node)
        case AddNode(node=node):
            there = (other for number, other in control.added.items() if not control.members[number].is_removed)
            is_new = all(record.peers != other.peers for other in there)
            return node == len(control.members) and is_new
        case RemoveNode(node=node):
            member = control.members.get(node)
            is_out = member is not None and member.role is Role.OUT and not member.is_removed
            return is_out and not control.holds(node)
        case DeclareStream(stream=name):
            is_sound = record.batch_ticks > 0 and record.first_tick >= 0
            before = control.keys.get(name, "")
            is_followable = record.group == LIVE and not goes_by_event_time(record.payload)
            is_sound = is_sound and not (control.rules and not is_followable and may_store(record.payload))
            return is_sound and " " not in name and before == record.replaces and not control.takes_in(before)
        case OpenPartition(stream=key, partition=name):
            stream = control.streams[key] if control.takes_in(key) else None
            return stream is not None and stream.last_batch is None and name not in stream.partitions
        case BeginStream(stream=key):
            return control.takes_in(key) and control.streams[key].began is None
        case LateJoin(stream=key, batch=batch):
            stream = control.streams.get(key)
            return stream is not None and stream.gone is None and stream.is_late and batch > stream.joined
        case EndStream(stream=key, is_cut=True):
            return key in control.streams and control.streams[key].is_dropped and control.streams[key].gone is None
        case EndStream(stream=key):
            stream = control.streams[key] if control.takes_in(key) else None
            is_open = stream is not None and stream.began is not None and stream.last_batch is None
            return is_open and record.partition_count == len(control.streams[key].partitions)
        case DropStream(stream=key):
            return control.takes_in(key) and not any(key in query.streams for query in control.queries.values())
        case AdvanceGroup(group=group, tick=tick):
            return group != LIVE and tick > control.groups.get(group, 0)
        case RegisterQuery(query=name):
            are_there = all(map(control.takes_in, record.streams)) and set(record.nodes) <= control.members.keys()
            makes = control.streams[record.makes] if control.takes_in(record.makes) else None
            may_make = not record.makes or (makes is not None and not makes.partitions and makes.began is None)
            return name not in control.queries and are_there and may_make
        case MoveQuery(query=name, nodes=nodes, before=before):
            query = control.queries.get(name)
            is_it = query is not None and (not before or before == tuple(sorted(query.nodes)))
            return is_it and set(nodes) != control.queries[name].nodes.keys() and set(nodes) <= control.members.keys()
        case NameReaders(query=name, group=group, since=since, stands=stands):
            query = control.queries.get(name)
            if query is None or since != query.since:
                return False
            if not stands:
                return group not in query.groups
            count, said = query.stands.get(group, (0, ""))
            return record.placed == query.placed and record.number == count + 1 and stands != said
        case AlterQuery(query=name, streams=streams, number=number, since=since):
            query = control.queries.get(name)
            is_it = query is not None and since in (None, query.since)
            is_next = is_it and number == control.queries[name].changes + 1
            return is_next and bool(record.payload or record.bound) and all(map(control.takes_in, streams))
        case DropQuery(query=name, since=since):
            return name in control.queries and since in (None, control.queries[name].since)
        case Change():
            return record.view == control.view and is_current(control, record)
        case ReEncode(text=text, view=view):
            return text not in control.exceptions and view == control.view
    return True


def is_current(control: Control, change: Change) -> bool:
    """Whether a change is new and, if it is an update, has seen the last one; with rules, all that has changed."""
    if any(not _may_follow(control, key, batch) for key, batch in change.follows):
        return False
    if change.rules and any(stream.stores and stream.group != LIVE for stream in control.live_streams):
        return False  # only ticks wait for what follows
    if change.rules and by_event_time(control):
        return False  # whoever follows streams does not know event times of triples
    if change.read is None:
        if (control.rules or change.rules is not None) and not _says_nothing(control, change):
            return False
    elif control.changed > change.read:
        return False
    elif not control.rules and any(storing_streams(control, change.read)):
        return False  # what they may store behind that was not read
    return not control.outcomes.is_over(change.asked) and change.after in (None, control.last_update())


def _may_follow(control: Control, key: str, batch: int) -> bool:
    stream = control.streams.get(key)
    is_there = stream is not None and stream.gone is None and stream.stores
    return bool(control.rules) and is_there and batch > control.streams[key].followed_to


def _says_nothing(control: Control, change: Change) -> bool:
    """Whether a change stores nothing, and nothing follows from what it says."""
    begins = not control.rules and change.rules == NO_RULES
    is_over = control.rules == NO_RULES and change.rules == ""
    return not change.payload and (begins or is_over or (bool(change.follows) and change.rules is None))


@lru_cache(4096)
def may_store(payload: str) -> bool:
    """Tell whether tuples of a stream may join the stored graph, by its options: "timing" is true where none does."""
    try:
        return json.loads(payload)["timing"] is not True
    except (ValueError, KeyError, TypeError, RecursionError):
        return True


@lru_cache(4096)
def goes_by_event_time(payload: str) -> bool:
    """Tell whether the signs of a stream go by event time, by its options."""
    try:
        return json.loads(payload).get("retractions") is not None
    except (ValueError, AttributeError, RecursionError):
        return False


def by_event_time(control: Control) -> list[str]:
    """Return the keys of the streams whose signs go by event time and whose tuples may join the stored graph."""
    return [one.key for one in control.live_streams if one.stores and goes_by_event_time(one.payload)]


def storing_streams(control: Control, sn: Sn) -> Iterator[DeclaredStream]:
    """Yield the streams of which tuples may join the stored graph behind an SN."""
    for stream in control.streams.values():
        if stream.stores and (stream.gone is None or stream.gone > sn):
            yield stream


def apply(control: Control, entry: Entry) -> Control:
    """Return the state with one more entry."""
    index = control.index + 1
    is_void = not is_valid(control, entry)
    control = replace(control, index=index, term=entry.term)
    if is_void:
        return control
    if entry.tick is not None:
        last = control.last_sn
        mark = Mark(Sn(entry.tick, last.minor + 1 if entry.tick == last.tick else 1), index)
        control = replace(control, marks=(*control.marks, mark))
    return _with(control, entry.record)


def forget(control: Control, floor: Sn) -> Control:
    """Return the state without the parts that only SNs before this one need. Of the ticked records at or before it the
    last one stays, of each clock group and each late stream its place there; streams that are gone are left out. No
    record becomes valid or void by it."""
    if floor <= control.floor:
        return control
    groups = {advance.group: advance for advance in control.advances if advance.sn <= floor}
    streams = {key: one for key, one in control.streams.items() if one.gone is None or one.gone > floor}
    late = {key for key, one in streams.items() if one.counts is None or one.counts >= floor.tick}
    joined = {join.stream: join for join in control.joins if join.sn <= floor and join.stream in late}
    return replace(
        control,
        floor=floor,
        streams=streams,
        marks=_since(control.marks, floor),
        updates=_since(control.updates, floor),
        advances=tuple(one for one in control.advances if one.sn > floor or one == groups[one.group]),
        joins=tuple(one for one in control.joins if one.sn > floor or one == joined.get(one.stream)),
    )


def _since(marks: tuple[Mark, ...], floor: Sn) -> tuple[Mark, ...]:
    return marks[max(0, bisect_right(marks, floor, key=lambda mark: mark.sn) - 1) :]


def _has_place(control: Control, entry: Entry) -> bool:
    """Whether a ticked record has a tick, no earlier than the last one, from a leader that was IN (snapshots.py)."""
    if entry.tick is None or entry.leader is None or entry.tick < control.last_sn.tick:
        return False
    return control.role_of(entry.leader) is Role.IN


def _may_become(control: Control, record: Membership) -> bool:
    """Whether a node's next role follows on the one it has, in the same stay and with the same disk."""
    member = control.members.get(record.node)
    if member is None or member.is_removed:
        return False
    if record.role is Role.JOINING and not control.holds(record.node):
        return False
    if record.role is Role.JOINING:
        return record.disk > member.disk or (record.disk == member.disk and member.role is Role.OUT)
    if record.tells_of_a_loss:
        return record.disk > member.disk and (member.role is Role.OUT or control.is_covered_without(record.node))
    if (record.disk, record.since) != (member.disk, member.since):
        return False
    if record.role is Role.OUT:
        return member.role is not Role.OUT and control.is_covered_without(record.node)
    return (member.role, record.role) in ((Role.JOINING, Role.HOLDING), (Role.HOLDING, Role.IN))


def _may_drain(control: Control, record: Drain) -> bool:
    """Whether a node's shards may be given to others. If others were to have them before, these are all OUT."""
    before = control.drains.get(record.node, ())
    are_spare = all(control.is_spare(node) for node in record.to) and len(set(record.to)) == len(record.to)
    are_gone = all(control.members[node].role is Role.OUT for node in before)
    return bool(record.to) and are_spare and are_gone and control.holds(record.node)


def _is_drained(control: Control, node: int) -> bool:
    """Whether a node may give up its shards: each has an in-sync replica of those that were to take it over."""
    takers = control.with_role(Role.IN).intersection(control.drains.get(node, ()))
    is_anyone_coming = bool(control.with_role(Role.JOINING, Role.HOLDING))
    theirs = [nodes for nodes in control.replica_sets if node in nodes]
    return node in control.drains and not is_anyone_coming and all(takers.intersection(nodes) for nodes in theirs)


def _with(control: Control, record: Record) -> Control:
    index, sn = control.index, control.last_sn
    match record:
        case Founded(life=life):
            return replace(control, life=life)
        case Membership(node=node, disk=disk, role=role):
            old = control.members[node]
            since = index if role is Role.JOINING else old.since
            held, came = (
                control.position if role is now else before
                for now, before in ((Role.HOLDING, old.held), (Role.IN, old.came))
            )
            member = Member(disk, role, since, held, old.left, came=came)
            return _with_homes(replace(control, members={**control.members, node: member}, view=index), control.queries)
        case Drain() | Drained():
            return _placed(control, record)
        case AddNode(node=node):
            added = {**control.added, node: record}
            return replace(control, members={**control.members, node: Member(0, Role.OUT)}, added=added)
        case RemoveNode(node=node):
            removed = replace(control.members[node], is_removed=True)
            return replace(control, members={**control.members, node: removed})
        case DeclareStream(stream=name):
            key = f"{name} {index}" if name in control.keys else name
            stream = DeclaredStream(
                key, record.partitions, record.batch_ticks, record.group, record.first_tick, record.payload
            )
            stream = replace(stream, is_made=record.is_made)
            return _with_stream(replace(control, keys={**control.keys, name: key}), stream)
        case OpenPartition(stream=key, partition=name):
            stream = control.streams[key]
            return _with_stream(control, replace(stream, partitions=(*stream.partitions, name)))
        case BeginStream(stream=key, empty_to=empty_to):
            stream = control.streams[key]
            began = sn.tick if stream.group == LIVE else control.groups.get(stream.group, 0)
            is_late = stream.is_made or (stream.group == LIVE and stream.batch_before(began) > empty_to)
            return _with_stream(control, replace(stream, began=began, counts=None if is_late else began))
        case LateJoin(stream=key, batch=batch):
            stream = control.streams[key]
            has_come = batch == stream.batch_before(sn.tick) and not stream.is_made
            stream = replace(stream, joined=batch, counts=sn.tick if has_come else None)
            return _with_stream(replace(control, joins=(*control.joins, Join(sn, key, batch))), stream)
        case EndStream(stream=key, last_batch=last_batch, is_cut=is_cut):
            if is_cut:
                return _cut(control, control.streams[key], last_batch)
            return _with_stream(control, replace(control.streams[key], last_batch=last_batch))
        case DropStream(stream=key):
            stream = replace(control.streams[key], is_dropped=True)
            if stream.began is None:  # No SN has anything of it.
                stream = replace(stream, last_batch=0, gone=sn)
            return _with_stream(control, stream)
        case AdvanceGroup(group=group, tick=tick):
            advances = (*control.advances, Advance(sn, group, tick))
            return replace(control, groups={**control.groups, group: tick}, advances=advances)
        case RegisterQuery(query=name, streams=streams, nodes=nodes, payload=payload):
            if record.makes:
                control = _with_stream(control, replace(control.streams[record.makes], is_made=True))
            query = Registered(streams, dict.fromkeys(nodes, sn), payload, sn, placed=index)
            return _with_homes(replace(control, queries={**control.queries, name: query}), [name])
        case MoveQuery(query=name, nodes=nodes, come=come):
            query = control.queries[name]
            nodes_since = {node: query.nodes.get(node, sn) for node in nodes}
            query = replace(query, nodes=nodes_since, placed=index, come=come)
            return _with_homes(replace(control, queries={**control.queries, name: query}, moved=index), [name])
        case NameReaders(query=name, group=group):
            query = control.queries[name]
            if record.stands:
                query = replace(query, stands={**query.stands, group: (record.number, record.stands)})
            else:
                query = replace(query, groups=(*query.groups, group))
            return replace(control, queries={**control.queries, name: query})
        case AlterQuery(query=name, payload="", number=number):
            query = control.queries[name]
            query = replace(query, changes=number, bound=(*query.bound, record.bound))
            return replace(control, queries={**control.queries, name: query})
        case AlterQuery(query=name, streams=streams, payload=payload, number=number):
            query = control.queries[name]
            keeps = query.nodes if set(streams) <= set(query.streams) else dict.fromkeys(query.nodes, sn)
            bound = (record.bound,) if record.bound else query.bound
            query = replace(query, streams=streams, nodes=keeps, payload=payload, changes=number, bound=bound)
            return replace(control, queries={**control.queries, name: query})
        case DropQuery(query=name):
            left = {key: query for key, query in control.queries.items() if key != name}
            return _with_homes(replace(control, queries=left), [name])
        case Change(after=after):
            updates = control.updates if after is None else (*control.updates, Mark(sn, index))
            found = {"tick": sn.tick, "minor": sn.minor, "index": index}
            rules = control.rules if record.rules is None else record.rules
            if record.payload or not record.follows:
                control = replace(control, changed=sn)
            control = _followed(replace(control, rules=rules), record, sn)
            return replace(control, outcomes=control.outcomes.noted(record.asked, found, index), updates=updates)
        case ReEncode(text=text):
            return replace(control, exceptions={**control.exceptions, text: len(control.exceptions) + 1})
    return control


def _followed(control: Control, change: Change, sn: Sn) -> Control:
    """Note up to which stream batch changes store what is to be stored of streams: from the SN on at which there are
    rules first, for those that are there then."""
    follows = dict(change.follows)
    if not follows and not change.rules:
        return control
    shown = control.vts_at(sn) if change.rules else {}
    streams = dict(control.streams)
    for key, stream in control.streams.items():
        if stream.gone is not None or not stream.stores:
            continue
        if change.rules and not (stream.followed and shown.get(key, 0) <= stream.followed[-1][1]):
            begin = shown.get(key, 0)
            stream = replace(stream, followed=(*stream.followed, (begin, begin)))
        if key in follows:
            *before, (begin, _) = stream.followed or ((0, 0),)
            stream = replace(stream, followed=(*before, (begin, follows[key])))
        streams[key] = stream
    return replace(control, streams=streams)


def _with_homes(control: Control, names: Iterable[str]) -> Control:
    """Note which of some queries have no home."""
    synced, queries, homeless = control.with_role(Role.IN), control.queries, set(control.homeless)
    for name in names:
        if name in queries and synced.isdisjoint(queries[name].nodes):
            homeless.add(name)
        else:
            homeless.discard(name)
    return control if homeless == control.homeless else replace(control, homeless=frozenset(homeless))


def _placed(control: Control, record: Drain | Drained) -> Control:
    """Return the state behind a record that is valid there."""
    drains = {node: to for node, to in control.drains.items() if node != record.node}
    if isinstance(record, Drained):
        control = _without(replace(control, drains=drains), [record.node])
        return replace(control, view=control.index) if record.renews_view else control
    control = _without(control, control.drains.get(record.node, ()))
    shards, turn = list[tuple[int, ...]](), 0
    for nodes in control.shards:
        if record.node in nodes:
            nodes, turn = (*nodes, record.to[turn % len(record.to)]), turn + 1
        shards.append(nodes)
    return _with_shards(replace(control, drains={**drains, record.node: record.to}), tuple(shards))


def _without(control: Control, gone: Iterable[int]) -> Control:
    """Let nodes hold nothing. Their disks never will again."""
    nodes = frozenset(gone)
    members = dict(control.members)
    for node in nodes:
        members[node] = replace(members[node], left=members[node].disk)
    shards = tuple(tuple(one for one in shard if one not in nodes) for shard in control.shards)
    return _with_shards(replace(control, members=members), shards)


def _with_shards(control: Control, shards: tuple[tuple[int, ...], ...]) -> Control:
    return replace(control, shards=shards, replica_sets=frozenset(shards))


def _with_stream(control: Control, stream: DeclaredStream) -> Control:
    return replace(control, streams={**control.streams, stream.key: stream})


def _cut(control: Control, stream: DeclaredStream, last_batch: int) -> Control:
    """Let a dropped stream be gone (dropping.py): all nodes that are IN have its tuples. Nodes on their way begin their
    stay anew, since only nodes that are IN still send them its rows."""
    sn, index = control.last_sn, control.index
    last_batch = min(last_batch, control.vts_at(sn).get(stream.key, 0))
    control = _with_stream(control, replace(stream, last_batch=last_batch, gone=sn))
    coming = control.with_role(Role.JOINING, Role.HOLDING)
    if not coming:
        return control
    anew = {node: replace(control.members[node], role=Role.JOINING, since=index) for node in coming}
    return replace(control, members={**control.members, **anew}, view=index)

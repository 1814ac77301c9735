"""The messages between a pipeline and the nodes: those of writers (`wukongs.live.pieces`), and the nodes' answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from wukongs.errors import DataError
from wukongs.live import pieces
from wukongs.live.header import Frame, write_header
from wukongs.live.pieces import TOLD, Told, check_is_one_frame, int_field, read_kind, text_field


@dataclass(frozen=True, slots=True)
class Place:
    """The node that answers, and how the cluster divides pieces (sharding.py) as of a place in its log, the index.

    members: the nodes that take pieces; (): all. shards: the nodes of each shard; (): evenly divided. added: where the
    last nodes are, which were added while the cluster ran."""

    node: int
    node_count: int
    replica_count: int
    split: tuple[str, ...]
    index: int = 0
    members: tuple[int, ...] = ()
    shards: tuple[tuple[int, ...], ...] = ()
    added: tuple[str, ...] = ()


def read_place(found: Any) -> Place | None:
    """Return the place that a message names. Raises DataError."""
    if found is None:
        return None
    match found:
        case {"node": int(node), "node_count": int(count), "replica_count": int(replicas), "split": list(split)}:
            told = {
                "index": 0,
                "members": (),
                "shards": (),
                "added": (),
            } | found  # an earlier version says none of these
            index, members, shards = told["index"], told["members"], told["shards"]
            are_nodes = _are_nodes(members, count) and isinstance(shards, list | tuple)
            are_nodes = are_nodes and all(nodes and _are_nodes(nodes, count) for nodes in shards)
            is_sound = 0 <= node < count and replicas >= 1 and type(index) is int and index >= 0
            added = told["added"] if isinstance(told["added"], list | tuple) else (None,)
            if is_sound and are_nodes and all(isinstance(text, str) for text in (*split, *added)):
                placed = tuple(map(tuple, shards))
                return Place(node, count, replicas, tuple(split), index, tuple(members), placed, tuple(added))
    raise DataError(
        "message 'opened': expected place to be null or an object with node < node_count, replica_count, split, index, "
        f"nodes as members and of shards, and addresses, found {str(found)[:200]}"
    )


def _are_nodes(found: object, count: int) -> bool:
    return isinstance(found, list | tuple) and all(type(node) is int and 0 <= node < count for node in found)


LastClose: TypeAlias = tuple[int, int | None, int]
"""end_offset, complete_ms and carried_count of the newest Close of a partition; NO_CLOSE: there was none."""
NO_CLOSE: LastClose = (0, None, 0)


def newest_close(known: Iterable[LastClose | None]) -> LastClose | None:
    """Return the newest of what is known. None: nothing is."""
    return max(
        (one for one in known if one is not None), key=lambda one: (one[0], one[1] is not None, one), default=None
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """The node's knowledge of the stream. timing: True for all tuples, False for none, or the timing predicates' IRIs.

    resume_offset: the offset from which the writer has to send; earlier rows are safe here. closed_ms: new rows at or
    before this time are refused (None: the node says so when they come). place: of a node of a cluster.
    last_close: the partition's newest Close; None: the node does not know. offsets: the resume_offset of each node,
    ascending, as a link to several nodes has found them.
    """

    batch_ms: int
    into: str | None
    timing: bool | tuple[str, ...]
    resume_offset: int
    hash_bits: int
    closed_ms: int | None = None
    place: Place | None = None
    last_close: LastClose | None = None
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    """The piece (or, with piece = -1, the Close or Finish up to end_offset) is safe at the node. view: the index of the
    last record about the cluster's members that the node knew when it had taken it."""

    stream: str
    partition: str
    end_offset: int
    piece: int
    view: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """The node takes no such message now: pieces are divided otherwise by now, or it is on its way into the cluster or
    out of it. The writer opens anew, and sends again what is not acknowledged."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The node raised this error: the name of its class and its message."""

    error: str
    message: str


Answer: TypeAlias = Opened | Ack | Moved | Refused
Message: TypeAlias = Told | Answer

_KINDS: dict[type, str] = {Opened: "opened", Ack: "ack", Moved: "moved", Refused: "refused"}
_ALL_KINDS = ("open", "opened", "piece", "close", "finish", "ack", "moved", "refused")


def to_frames(message: Message, sequence: int, token: str | None = None) -> list[Frame]:
    """Return the frames of a message; sequence (from 1 on) is repeated by the reply to it; token: of the writer."""
    if not isinstance(message, Opened | Ack | Moved | Refused):
        return pieces.to_frames(message, sequence, token)
    return [write_header({"kind": _KINDS[type(message)], "seq": sequence, **asdict(message)})]


def from_frames(frames: Sequence[Frame]) -> tuple[Message, int]:
    """Return the message and its sequence number.

    Raises: DataError (a torn or foreign message, another version, a field that is missing, wrong or too big)."""
    header = read_kind(frames, _ALL_KINDS)
    kind = header["kind"]
    sequence = int_field(header, kind, "seq")
    if kind in TOLD:
        return pieces.read_told(header, frames), sequence
    check_is_one_frame(kind, frames)
    return _read_answer(kind, header), sequence


def sequence_of(frames: Sequence[Frame]) -> int:
    """Return the sequence number of a message that may be broken elsewhere, 0 (nobody's) where it cannot be found."""
    try:
        header = read_kind(frames, _ALL_KINDS)
        return int_field(header, header["kind"], "seq")
    except DataError:
        return 0


def _read_answer(kind: str, header: dict[str, Any]) -> Answer:
    if kind == "opened":
        return _read_opened(header)
    if kind == "moved":
        return Moved()
    if kind == "refused":
        return Refused(text_field(header, kind, "error"), text_field(header, kind, "message"))
    stream, partition = text_field(header, kind, "stream"), text_field(header, kind, "partition")
    view = int_field(header, kind, "view") if "view" in header else 0
    return Ack(stream, partition, int_field(header, kind, "end_offset"), int_field(header, kind, "piece"), view)


def _read_opened(header: dict[str, Any]) -> Opened:
    into, timing = header.get("into"), header.get("timing")
    if into is not None and not isinstance(into, str):
        raise DataError(f"message 'opened': expected into to be a graph IRI or null, found {into!r}")
    if isinstance(timing, list) and all(isinstance(iri, str) for iri in timing):
        timing = tuple(timing)
    elif not isinstance(timing, bool):
        raise DataError(f"message 'opened': expected timing to be a boolean or a list of IRIs, found {timing!r}")
    batch_ms, hash_bits = int_field(header, "opened", "batch_ms"), int_field(header, "opened", "hash_bits")
    if batch_ms == 0 or not 1 <= hash_bits <= 62:
        raise DataError(
            f"message 'opened': expected batch_ms > 0 and hash_bits from 1 to 62, found {batch_ms} and {hash_bits}"
        )
    resume_offset = int_field(header, "opened", "resume_offset")
    closed_ms = None if header.get("closed_ms") is None else int_field(header, "opened", "closed_ms")
    place, last_close = read_place(header.get("place")), _read_last_close(header.get("last_close"))
    return Opened(batch_ms, into, timing, resume_offset, hash_bits, closed_ms, place, last_close)


def _read_last_close(found: Any) -> LastClose | None:
    """Return the newest Close that a node knows. An earlier version does not say it. Raises DataError."""
    if found is None:
        return None
    match found:
        case [int(row), int() | None as complete_ms, int(carried_count)] if row >= 0 and carried_count >= 0:
            return row, complete_ms, carried_count
    raise DataError(
        f"message 'opened': expected last_close to be null or a row, a time or null, and a count, found {found!r:.200}"
    )

"""NodeDisk: the data folder of a node: a checkpoint, and a log of everything that it was told since.

The folder is laid out as that of an embedded engine (wukongs/durable/): a log of segments, and a checkpoint of the
stored graph with its dictionary. The rest of a node's checkpoint lies in the log: the head of a segment has the
protocol's log and control state and the facts of every stream and query, and what waits in streams and stages follows
behind it (checkpoints.py). From there on the log has

* what the protocol saves: votes, entries, control states; and up to where entries are known to be committed;
* the pieces and markers that were taken, and what writers said beside them;
* staged parts of loads and updates, terms that were agreed on, and the nodes that were met.

The protocol's thread notes things in the order in which it takes them in, so a restart can take them in again
(resuming.py). Other threads note what they do behind it; such notes may be in the checkpoint as well, and do no harm.
All notes since the last sync are one record, whose pieces are joined: most of a record's cost does not depend on its
size.

`sync` makes all of it safe. The host calls it once a round, before anybody hears of the round (host.py); a thread that
answers another node calls it before it answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from wukongs.cluster.feeding import pieces_in, pieces_packet
from wukongs.durable.backup import LOG_FOLDER, NODE_FILE
from wukongs.durable.log_records import framed, frames_in
from wukongs.errors import CorruptionError, DataError, NodeUnavailable, SettingsError, StorageError
from wukongs.live.pieces import Piece
from wukongs.live.usage import folder_usage
from wukongs.protocol import actions as act
from wukongs.protocol import events as ev
from wukongs.protocol.control import Control, apply
from wukongs.protocol.state import Kept, with_saved
from wukongs.store.checkpoint import CheckpointStore, Restored
from wukongs.store.commit import SUFFIX
from wukongs.store.disk import Disk, storage_errors
from wukongs.store.manifest import NAME as MANIFEST
from wukongs.store.term_registry import TermRegistry
from wukongs.store.trace import TraceEntry
from wukongs.store.wal import WriteAheadLog
from wukongs.wire.codec import TELL, packet_of, read_packet_header, to_frames
from wukongs.wire.packets import Packet
from wukongs.wire.protocol_codec import decode, encode

ABOUT = "node"
"""The part of a manifest that says where the log goes on."""
_HEAD, _RECORD, _NOTES = 16, 17, 18
"""The kinds of a segment's head, of a record with one note, and with several. Engines without other nodes have lower
ones."""
_VIEWED_BYTES = 1 << 16
"""The arrays of a larger record are not copied out of it: all of them stay for about as long."""
HEAD, GOES_ON = "head", "goes-on"
"""A segment begins with a checkpoint's head, or goes on from the one before."""
COMMITTED, MET, PIECE, MARKER = "committed", "met", "piece", "marker"
NOTES = "notes"
"""A record of several notes. Those with arrays are records of their own, but for pieces; so is each in old folders."""
Note: TypeAlias = Packet | ev.PieceOffered | ev.Marker
_SAVED: Mapping[str, Any] = {"vote": act.SaveVote, "entries": act.SaveEntries, "control": act.SaveControl}
_NAMES = {kind: name for name, kind in _SAVED.items()}
Saved = act.SaveVote | act.SaveEntries | act.SaveControl


@dataclass(frozen=True, slots=True)
class Owner:
    """The life of a node to which a folder belongs. shape: what has to be the same on all nodes, in words; is_joining:
    it has not written down yet what it takes over of the others, so the folder is of no use to another life."""

    node: int
    disk: int
    boot: int
    shape: str
    is_joining: bool = False


class NodeFolder:
    """A data folder that this process has locked. owner: None while it is new.

    Raises StorageError (in use, no access), SettingsError (of another node or another kind), CorruptionError."""

    def __init__(self, path: Path, node: int, shape: str, disk: Disk | None = None) -> None:
        if path.exists() and not path.is_dir():
            raise SettingsError(f"data_dir = {str(path)!r}: expected a folder, or a name that is free")
        is_used = any((path / name).exists() for name in (MANIFEST, LOG_FOLDER))
        self.path, self.disk = path, disk or Disk()
        self.store = CheckpointStore(path, self.disk)
        try:
            self.owner = self._owner()
            self._check(node, shape, is_used)
        except BaseException:
            self.store.close()
            raise

    def _owner(self) -> Owner | None:
        path = self.path / NODE_FILE
        with storage_errors(f"cannot read {path}", "Have its owner let you read it"):
            if not path.exists():
                return None
            text = path.read_bytes()
        try:
            return decode(json.loads(text), Owner, NODE_FILE)
        except (ValueError, DataError) as error:
            raise CorruptionError(
                f"expected the node that it belongs to, found something else: {error}", str(path)
            ) from None

    def _check(self, node: int, shape: str, is_used: bool) -> None:
        where = f"data_dir = {str(self.path)!r}"
        if self.owner is None:
            if is_used:
                raise SettingsError(
                    f"{where}: it has the data of an engine without other nodes. Name a new folder for this node, and "
                    "load into the cluster what that engine exports"
                )
        elif self.owner.node != node:
            raise SettingsError(f"{where}: it is the folder of node {self.owner.node}, and this is node {node}")
        elif self.owner.shape != shape:
            raise SettingsError(
                f"{where}: it was written with {self.owner.shape}, and this node is told {shape}: write into its file "
                "what was there before, or begin with new folders"
            )

    def give_to(self, owner: Owner) -> None:
        """Note to whom the folder belongs from now on, and remove what a life with another disk has left.

        Whoever is killed in between leaves a folder whose owner is joining. Raises StorageError."""
        before, self.owner = self.owner, owner
        with storage_errors(f"cannot write to {self.path}", "Make room or mend the disk, then retry"):
            temporary = self.path / f"{NODE_FILE}.new"
            with self.disk.create(temporary) as file:
                self.disk.write(file, json.dumps(asdict(owner)).encode() + b"\n")
                self.disk.fsync(file)
            self.disk.rename(temporary, self.path / NODE_FILE)
            self.disk.fsync_folder(self.path)
            if before is not None and before.disk != owner.disk:
                self.disk.unlink(self.path / MANIFEST)
                for path in (*self.path.glob(f"*{SUFFIX}"), *self.path.glob(f"{LOG_FOLDER}/*")):
                    self.disk.unlink(path)
                self.disk.fsync_folder(self.path)

    def close(self) -> None:
        """Give the folder back; closing twice is allowed."""
        self.store.close()


@dataclass(slots=True)
class Recorded:
    """The sum of what a log says. first: the protocol's state at the checkpoint; index: how far the log was committed
    there; facts: the other fields of its head, empty: there is none yet; control: the state up to which the log is
    known to be committed at the end; met: of each other node that was heard, the newest disk; packets: those that were
    asked for, in their order."""

    first: Kept
    index: int
    facts: Mapping[str, Any]
    control: Control
    met: dict[int, int] = field(default_factory=dict)
    packets: list[Packet] = field(default_factory=list)


class NodeDisk:
    """wukongs.cluster.host.Disk in a folder. First `scan` and `replay`, then `begin`; from then on any thread may add
    records. restored: the stored graph of the checkpoint, None: there is none yet.

    Raises StorageError, CorruptionError."""

    is_lasting = False
    round_max = 256

    def __init__(self, folder: NodeFolder, sync_interval_ms: int = 0) -> None:
        self.folder = folder
        self.restored: Restored | None = folder.store.open()
        self._wal = WriteAheadLog(folder.path / LOG_FOLDER, sync_interval_ms, folder.disk)
        about = {} if self.restored is None else self.restored.about[ABOUT]
        self.start = int(about.get("start", 1))
        self._synced = int(about.get("next", 1)) - 1
        self._kept = Kept()
        self._met: dict[int, int] = {}
        self._lock = threading.Lock()
        """Held while records get their order, and segments begin."""
        self._noted: list[Note] = []
        """The notes that are in no record yet."""
        self._is_awaited = False
        """Whether one of them is to be safe before others hear of it."""
        self._awaited = 0
        """The last record that has to be safe before others hear of it. All before it are safe then as well."""
        self._settled = 0
        self._recorded: Recorded | None = None
        self._is_scanned = False
        heads = [head for head in self._wal.segments() if head >= self.start]
        self._bytes_at_checkpoint = -sum(self._wal.path(head).stat().st_size for head in heads)
        self._checkpoint_count = 0

    # --- after a restart ----------------------------------------------------------------------------------------------

    def replay(self, kinds: Collection[str] | None = None) -> Iterator[tuple[int, Note]]:
        """Yield all notes with the numbers of their records, that of the first one is `start`. kinds: of a packet that
        is a record of its own; others need not be read. None: all are wanted."""
        for record in self._wal.read(self.start, self._synced):
            if record.kind not in (_HEAD, _RECORD, _NOTES):
                raise CorruptionError(f"record {record.lsn} is none of a node's", str(self._wal.path(self.start)))
            frames = frames_in(record.payload)
            header = read_packet_header(frames)
            if kinds is None or record.kind != _RECORD or header.kind in kinds:
                packet = packet_of(header, frames, copies=len(record.payload) < _VIEWED_BYTES)
                for note in _notes_in(packet):
                    yield record.lsn, note

    def scan(self, genesis: Control, kinds: Collection[str] = ()) -> Recorded | None:
        """Return what the log says in all; None: it is new. The log is read once, however often this is called.
        genesis: of the cluster; kinds: of the packets that are kept for who goes on from them."""
        if not self._is_scanned:
            self._recorded, self._is_scanned = self._scan(genesis, kinds), True
        return self._recorded

    def _scan(self, genesis: Control, kinds: Collection[str]) -> Recorded | None:
        found: Recorded | None = None
        committed = 0
        for lsn, packet in self.replay({*_SAVED, COMMITTED, MET, *kinds}):
            if not isinstance(packet, Packet):
                continue
            fields = packet.fields
            if found is not None and packet.kind in kinds:
                found.packets.append(packet)
            elif lsn == self.start:
                self._kept = decode(fields["kept"], Kept, f"{self._wal.path(lsn)}: kept")
                met = {int(node): int(disk) for node, disk in fields["met"].items()}
                found, committed = Recorded(self._kept, fields["index"], fields["facts"], genesis, met), fields["index"]
            elif packet.kind in _SAVED:
                self._kept = with_saved(self._kept, saved_in(packet))
            elif packet.kind == COMMITTED:
                committed = fields["index"]
            elif packet.kind == MET and found is not None:
                found.met[fields["node"]] = fields["disk"]
        if found is not None:
            control = self._kept.control or genesis
            for entry in self._kept.entries[: max(0, committed - control.index)]:
                control = apply(control, entry)
            found.control, self._met = control, found.met
            self._settled = found.index
        return found

    # --- as Disk ------------------------------------------------------------------------------------------------------

    def save(self, action: Saved) -> None:
        owner = self.folder.owner
        if isinstance(action, act.SaveControl) and action.is_jump and (owner is None or not owner.is_joining):
            raise NodeUnavailable(
                f"{self.folder.path}: the cluster has gone on without this node, and its log does not reach back to "
                "what the folder has. Start it again: it takes over what the others hold"
            )
        self._kept = with_saved(self._kept, action)
        self.add(Packet(_NAMES[type(action)], encode(action)))

    def taken(self, event: ev.PieceOffered | ev.Marker) -> None:
        with self._lock:
            self._noted.append(event)
            self._is_awaited = True

    def commit(self, index: int) -> None:
        self.add(Packet(COMMITTED, {"index": index}), is_awaited=False)

    def meet(self, node: int, disk: int) -> None:
        """Note that another node was heard."""
        if self._met.get(node, -1) < disk:
            self._met[node] = disk
            self.add(Packet(MET, {"node": node, "disk": disk}), is_awaited=False)

    def met(self, node: int) -> int | None:
        """Return the newest disk of another node that was heard, None if none was."""
        return self._met.get(node)

    def add(self, packet: Packet, is_awaited: bool = True) -> None:
        with self._lock:
            self._noted.append(packet)
            self._is_awaited |= is_awaited
            if packet.arrays:
                self._write()

    def sync(self) -> None:
        with self._lock:
            if self._is_awaited:
                self._write()
        self._wal.wait(self._awaited)

    def _write(self) -> None:
        """Append the notes so far to the log. With the lock held."""
        noted, self._noted = self._noted, []
        packets = list[Packet]()
        if noted and isinstance(last := noted[-1], Packet) and last.arrays:
            packets = [last]
            noted.pop()
        for packet in [_notes_packet(noted), *packets] if noted else packets:
            kind = _NOTES if packet.kind == NOTES else _RECORD
            lsn = self._wal.append(kind, framed(to_frames(packet, TELL, 1)), 0)
            if self._is_awaited:
                self._awaited = lsn
        self._is_awaited = False

    def settled(self, index: int) -> int:
        return min(index, self._settled)

    # --- segments and checkpoints -------------------------------------------------------------------------------------

    def begin(self, index: int = 0, facts: Mapping[str, Any] | None = None) -> int:
        """Begin a segment, with the head of a checkpoint if there are facts; return its number once it is safe.

        index: how far the log is committed."""
        with self._lock:
            self._write()
            is_new = self._wal.next_lsn == 1
            fields = {"kept": encode(self._kept), "met": self._met, "index": index, "facts": facts or {}}
            head = Packet(HEAD, fields) if is_new or facts is not None else Packet(GOES_ON)
            self._awaited = self._wal.begin(_HEAD, framed(to_frames(head, TELL, 1)), 0)
            return self._awaited

    def complete(
        self, start: int, settled: int, entries: Iterable[TraceEntry], upper: int, registry: TermRegistry
    ) -> None:
        """Make a checkpoint the one that a restart begins with. start: the number of its head; settled: the last record
        of the majority log that it has; the rest: as CheckpointStore.commit has it."""
        with self._lock:
            self._write()
        safe = self._wal.force()  # others add records meanwhile: these may be lost
        self.folder.store.commit(entries, upper, registry, {ABOUT: {"start": start, "next": safe + 1}})
        owner = self.folder.owner
        if owner is not None and owner.is_joining:
            self.folder.give_to(replace(owner, is_joining=False))
        self.start, self._settled = start, settled
        self._bytes_at_checkpoint = self._wal.written_bytes
        self._wal.trim(start)
        self._checkpoint_count += 1

    @property
    def entries_since_checkpoint(self) -> int:
        """The entries of the majority log that no checkpoint has."""
        base = 0 if self._kept.control is None else self._kept.control.index
        return base + len(self._kept.entries) - self._settled

    @property
    def bytes_since_checkpoint(self) -> int:
        """How much a restart would read of the log, in bytes."""
        return self._wal.written_bytes - self._bytes_at_checkpoint

    def stats(self) -> dict[str, Any]:
        """Return counts and sizes of the log and the checkpoints."""
        failure = self._wal.failure or self._wal.lack
        return {
            **folder_usage(self.folder.path),
            "lsn": self._wal.next_lsn - 1,
            "durable_lsn": self._wal.durable_lsn,
            "log_start_lsn": self.start,
            "log_bytes_written": self._wal.written_bytes,
            "log_syncs": self._wal.sync_count,
            "checkpoints": self._checkpoint_count,
            "failure": None if failure is None else str(failure),
        }

    def close(self) -> None:
        """End; closing twice is allowed."""
        with self._lock, suppress(StorageError):  # nobody waits for these
            self._write()
        self._wal.close()
        self.folder.close()


def saved_in(packet: Packet) -> Saved:
    """Return what the protocol has saved by a record."""
    found: Saved = decode(packet.fields, _SAVED[packet.kind], packet.kind)
    return found


def is_saved(packet: Packet) -> bool:
    """Tell whether the protocol has saved something by a record."""
    return packet.kind in _SAVED


def _notes_packet(noted: Sequence[Note]) -> Packet:
    """Return notes as a packet: in the fields "notes" the kind of each and what it says; the pieces of all of them as
    one message has them (feeding.py)."""
    notes = list[tuple[str, Any]]()
    pieces = list[Piece]()
    for note in noted:
        if isinstance(note, Packet):
            notes.append((note.kind, note.fields))
        elif isinstance(note, ev.Marker):
            notes.append((MARKER, encode(note)))
        else:
            if isinstance(note.piece, Piece):
                pieces.append(note.piece)
            said = encode(replace(note, view=None, piece=None))
            notes.append((PIECE, said | {"has_piece": isinstance(note.piece, Piece)}))
    return pieces_packet(NOTES, pieces, notes=notes)


def _notes_in(packet: Packet) -> Iterator[Note]:
    """Yield the notes of a record. The terms of their pieces are agreed on."""
    if packet.kind == PIECE:
        found = pieces_in(packet, is_trusted=True)
        yield replace(decode(packet.fields["said"], ev.PieceOffered, PIECE), piece=found[0] if found else None)
    elif packet.kind != NOTES:
        yield _note(packet.kind, packet.fields, packet)
    else:
        notes = packet.fields["notes"]
        with_pieces = [fields for kind, fields in notes if kind == PIECE and fields["has_piece"]]
        pieces = iter(pieces_in(packet, with_pieces, is_trusted=True))
        for kind, fields in notes:
            if kind == PIECE:
                said = {name: value for name, value in fields.items() if name != "has_piece"}
                piece = next(pieces) if fields["has_piece"] else None
                yield replace(decode(said, ev.PieceOffered, PIECE), piece=piece)
            else:
                yield _note(kind, fields, Packet(kind, fields))


def _note(kind: str, fields: Mapping[str, Any], packet: Packet) -> Note:
    return decode(fields, ev.Marker, MARKER) if kind == MARKER else packet

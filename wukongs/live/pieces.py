"""The messages of a stream's writer, Open, Piece, Close and Finish, and their frames on the wire and in the log.

The log holds the Chunks of loads and updates, too, and what is Pushed to streams that sort.

The frames of a message are a JSON header (header.py) and, for those with tuples, three Arrow IPC record batches: the
tuples, the texts of its terms, and those of its clashing terms (an empty frame when there are none). Their schemas
belong to the protocol version and do not travel. Nothing that comes in is unpickled or evaluated. Any frames of a peer
give a message, or a DataError that names the fault.

Invariants of a decoded message with tuples: all columns have one length; ids are >= 0 or codes of its clashes (a graph
may be UNBOUND); the terms are distinct, and every id that is not inlined has its text. Of a Piece: 0 <= first_offset <
end_offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from wukongs.errors import DataError, StreamError
from wukongs.live.header import OLDEST_LOGGED_VERSION, PROTOCOL_VERSION, Frame, read_header, write_header
from wukongs.outcomes import Asked
from wukongs.store.dtypes import CLASH_FIRST, INLINE_MARK, UNBOUND, BoolArray, Int64Array
from wukongs.store.encoded import NO_SIGNS, Encoded, TermRows, TermTable, signs
from wukongs.store.hidden_graphs import check_graphs_written

_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Open:
    """A writer is about to send a source partition of a stream; epoch is its fencing epoch: newer ones lock it out."""

    stream: str
    partition: str
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The tuples of one stream batch from rows [first_offset, end_offset) of one source partition, or a node's share.

    The pieces of a partition tile its rows: each begins where the one before it, or the last Close, ended. piece tells
    the shares of one offset range apart (after sharding). encoded has its timestamps; timing : bool[len(encoded)].
    places : int64[len(encoded)], of a share: which rows of the whole piece these are, ascending; None: all of them.
    by: the client's push that it is; it is told to the log only. index: of a pipeline's share, the place in the
    cluster's log by which the piece was divided.
    lateness_ms : of a pipeline's source whose rows come out of order: how far a row may lie behind the latest one (ms).
        Its writer never sends what it has declared complete, unless it sends it again. None: the rows are in order.
    numbers : int64[len(encoded)], of a call that was sorted and has carried tuples: the stream batch of each tuple, not
        decreasing; it is not written. None: that of its timestamp.
    """

    stream: str
    partition: str
    epoch: int
    first_offset: int
    end_offset: int
    piece: int
    batch_number: int
    encoded: Encoded
    timing: BoolArray
    places: Int64Array | None = None
    by: Asked | None = None
    index: int | None = None
    lateness_ms: int | None = None
    numbers: Int64Array | None = None

    def row_places(self) -> Int64Array:
        """Return the place of each row in the whole piece."""
        return np.arange(len(self.encoded)) if self.places is None else self.places


@dataclass(frozen=True, slots=True)
class Close:
    """All rows before end_offset were sent, and nothing at or before complete_ms comes any more from this partition,
    unless a later stream batch carries it.

    A writer that goes on from here decides on later rows as this one would have: nothing else counts for it.
    carried_count : how many tuples of the rows before end_offset are carried by stream batches
    """

    stream: str
    partition: str
    epoch: int
    end_offset: int
    complete_ms: int
    carried_count: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """This source partition is at its end and holds nobody back."""

    stream: str
    partition: str
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some of the tuples of the load or update with this number; they have no times. goes: the update deletes them."""

    number: int
    encoded: Encoded
    goes: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Pushed:
    """The tuples of one call to a stream that sorts, in the order of their arrival; late ones are among them.

    piece: its tuples may be of several stream batches; it names none. stands_ms: a tuple at or before this time is late
    (None: none is, so far). sn: the late tuples that are timeless join the stored graph there; None: there are none.
    """

    piece: Piece
    stands_ms: int | None
    sn: int | None


Told: TypeAlias = Open | Piece | Close | Finish
"""The messages of writers; the log of a data folder holds them too."""

_KINDS: dict[type, str] = {Open: "open", Piece: "piece", Close: "close", Finish: "finish"}
TOLD = tuple(_KINDS.values())
_CHUNK, _PUSHED = "chunk", "pushed"
_PIECE_NUMBERS = ("epoch", "first_offset", "end_offset", "piece", "batch_number")
_PIECE_FIELDS = ("stream", "partition", *_PIECE_NUMBERS)
_TUPLE = ("subject", "predicate", "object", "graph")
_MAY_BE_NEGATIVE = frozenset({"piece", "complete_ms", "end_offset", "batch_number", "closed_ms", "stands_ms"})


def timing_mask(encoded: Encoded, timing: bool | Sequence[str]) -> BoolArray:
    """Tell which tuples are timing, bool[n]: all, none, or those with one of these predicates, by their texts."""
    if isinstance(timing, bool):
        return np.full(len(encoded), timing, np.bool_)
    return np.isin(encoded.predicates, encoded.codes_of([f"<{iri}>" for iri in timing]))


def check_batch_number(piece: Piece, batch_ms: int, *, may_carry: bool = False) -> None:
    """Check that all tuples of a piece belong to the stream batch that it names. may_carry: the stream batch may carry
    late tuples, whose timestamps lie before it.

    Raises: StreamError (a timestamp outside ((k-1) * batch_ms, k * batch_ms], k the piece's batch number).
    """
    times = piece.encoded.timestamps
    low, high = (piece.batch_number - 1) * batch_ms, piece.batch_number * batch_ms
    if len(times) and not ((may_carry or low < int(times.min())) and int(times.max()) <= high):
        raise StreamError(
            f"stream {piece.stream}, partition {piece.partition!r}, rows {piece.first_offset} to {piece.end_offset}: "
            f"timestamps from {times.min()} to {times.max()} ms do not belong to stream batch {piece.batch_number} "
            f"({low} to {high} ms). Cut the rows with the batch_ms = {batch_ms} that the stream was opened with"
        )


# --- to frames --------------------------------------------------------------------------------------------------------


def to_frames(message: Told, sequence: int = 0, token: str | None = None) -> list[Frame]:
    """Return the frames of a message; sequence (from 1 on) is repeated by the reply to it; token: of the writer."""
    columns: list[Frame] = []
    beside: dict[str, Int64Array | BoolArray] = {}
    fields: dict[str, Any]
    if isinstance(message, Piece):
        fields = {name: getattr(message, name) for name in _PIECE_FIELDS}
        beside.update(timestamp_ms=message.encoded.timestamps, timing=message.timing)
        if message.places is not None:
            fields["is_share"] = True
            beside["place"] = message.places
        if message.by is not None:
            fields["by"] = message.by
        if message.index is not None:
            fields["index"] = message.index
        if message.lateness_ms is not None:
            fields["lateness_ms"] = message.lateness_ms
        if len(message.encoded.goes):
            fields["has_signs"] = True
            beside["goes"] = message.encoded.goes
        columns = _tuple_frames(message.encoded, beside)
    else:
        fields = asdict(message)
    shown = {} if token is None else {"token": token}
    return [write_header({"kind": _KINDS[type(message)], "seq": sequence, **shown, **fields}), *columns]


def chunk_frames(chunk: Chunk) -> list[Frame]:
    """Return the frames of a chunk."""
    header = write_header({"kind": _CHUNK, "number": chunk.number, "goes": chunk.goes})
    return [header, *_tuple_frames(chunk.encoded, {})]


def pushed_frames(pushed: Pushed) -> list[Frame]:
    """Return the frames of what was pushed."""
    piece = pushed.piece
    fields: dict[str, Any] = {name: getattr(piece, name) for name in _PIECE_FIELDS}
    beside: dict[str, Int64Array | BoolArray] = {"timestamp_ms": piece.encoded.timestamps, "timing": piece.timing}
    if piece.by is not None:
        fields["by"] = piece.by
    if len(piece.encoded.goes):
        fields["has_signs"] = True
        beside["goes"] = piece.encoded.goes
    header = write_header({"kind": _PUSHED, "stands_ms": pushed.stands_ms, "sn": pushed.sn, **fields})
    return [header, *_tuple_frames(piece.encoded, beside)]


@lru_cache(maxsize=5)
def _tuples_schema(beside: tuple[str, ...]) -> Any:
    """Return the schema of tuples that have these columns beside their terms."""
    import pyarrow as pa

    return pa.schema([(name, pa.bool_() if name in ("timing", "goes") else pa.int64()) for name in (*_TUPLE, *beside)])


@lru_cache(maxsize=1)
def _terms_schema() -> Any:
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("text", pa.large_string())])


def _tuple_frames(encoded: Encoded, beside: Mapping[str, Int64Array | BoolArray]) -> list[Frame]:
    """Return the frames of tuples, of their terms and of their clashes. beside: more columns of the tuples."""
    import pyarrow as pa

    columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs, *beside.values())
    schema = _tuples_schema(tuple(beside))
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)
    return [memoryview(batch.serialize()), _terms_frame(encoded.terms), _terms_frame(encoded.clashes)]


def _terms_frame(terms: TermTable) -> Frame:
    import pyarrow as pa

    if len(terms) == 0:
        return b""
    offsets, text = np.ascontiguousarray(terms.offsets), np.ascontiguousarray(terms.text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    texts = pa.Array.from_buffers(pa.large_string(), len(terms), buffers)
    return memoryview(pa.RecordBatch.from_arrays([pa.array(terms.ids), texts], schema=_terms_schema()).serialize())


# --- from frames ------------------------------------------------------------------------------------------------------


def from_frames(frames: Sequence[Frame], is_trusted: bool = False) -> Told | Chunk | Pushed:
    """Return the message of some frames. is_trusted: they come from a log, whose checksum says that to_frames made
    them: so the ids and texts of their tuples are not checked, and their version may be an older one.

    Raises: DataError (a torn or foreign message, another version, a field that is missing, wrong or too big)."""
    header = read_kind(frames, (*TOLD, _CHUNK, _PUSHED), OLDEST_LOGGED_VERSION if is_trusted else PROTOCOL_VERSION)
    if header["kind"] == _PUSHED:
        return _read_pushed(frames, header, is_trusted)
    if header["kind"] != _CHUNK:
        return read_told(header, frames, is_trusted)
    encoded, _ = _read_tuples(frames, _CHUNK, (), is_trusted)
    return Chunk(int_field(header, _CHUNK, "number"), encoded, bool_field(header, _CHUNK, "goes"))


def read_kind(
    frames: Sequence[Frame], kinds: Collection[str], oldest_version: int = PROTOCOL_VERSION
) -> dict[str, Any]:
    """Return the header of a message of one of these kinds. Raises: DataError."""
    if not frames:
        raise DataError("message: expected a header frame, found no frame")
    header = read_header(frames[0], oldest_version)
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise DataError(f"message: expected a kind among {', '.join(kinds)}, found {kind!r}")
    return header


def read_told(header: dict[str, Any], frames: Sequence[Frame], is_trusted: bool = False) -> Told:
    """Return the message whose header was read. Raises: DataError."""
    kind = header["kind"]
    if kind == "piece":
        return _read_piece(frames, header, is_trusted)
    check_is_one_frame(kind, frames)

    def text(name: str) -> str:
        return text_field(header, kind, name)

    def number(name: str) -> int:
        return int_field(header, kind, name)

    match kind:
        case "open":
            return Open(text("stream"), text("partition"), number("epoch"))
        case "close":
            ends = number("end_offset"), number("complete_ms")
            carried_count = number("carried_count") if "carried_count" in header else 0
            return Close(text("stream"), text("partition"), number("epoch"), *ends, carried_count)
        case _:
            return Finish(text("stream"), text("partition"), number("epoch"))


def check_is_one_frame(kind: str, frames: Sequence[Frame]) -> None:
    """Raises: DataError (more frames than the header)."""
    if len(frames) != 1:
        raise DataError(f"message '{kind}': expected 1 frame, found {len(frames)}")


def int_field(header: dict[str, Any], kind: str, name: str) -> int:
    value = header.get(name)
    low = -_INT64_MAX if name in _MAY_BE_NEGATIVE else 0
    if type(value) is not int or not low <= value <= _INT64_MAX:
        raise DataError(f"message '{kind}': expected {name} to be an integer from {low} to 2^63 - 1, found {value!r}")
    return value


def text_field(header: dict[str, Any], kind: str, name: str) -> str:
    value = header.get(name)
    if not isinstance(value, str):
        raise DataError(f"message '{kind}': expected {name} to be a text, found {value!r}")
    return value


def bool_field(header: dict[str, Any], kind: str, name: str) -> bool:
    value = header.get(name)
    if not isinstance(value, bool):
        raise DataError(f"message '{kind}': expected {name} to be a boolean, found {value!r}")
    return value


def _read_piece(frames: Sequence[Frame], header: dict[str, Any], is_trusted: bool) -> Piece:
    is_share, has_signs = (name in header and bool_field(header, "piece", name) for name in ("is_share", "has_signs"))
    names = ("timestamp_ms", "timing", *(["place"] if is_share else []), *(["goes"] if has_signs else []))
    encoded, (times, timing, *rest) = _read_tuples(frames, "piece", names, is_trusted)
    places = rest[0] if is_share else None
    goes = signs(rest[-1].astype(np.bool_)) if has_signs else NO_SIGNS
    if len(goes) and (goes & timing.astype(np.bool_)).any():
        raise DataError("message 'piece': expected retractions of timeless tuples only, found one of a timing tuple")
    if places is not None and len(places) and (places[0] < 0 or (places[1:] <= places[:-1]).any()):
        raise DataError("message 'piece': expected ascending places in a share, found others")
    numbers: dict[str, Any] = {name: int_field(header, "piece", name) for name in _PIECE_NUMBERS}
    if not 0 <= numbers["first_offset"] < numbers["end_offset"] or numbers["piece"] < 0:
        raise DataError(
            "message 'piece': expected 0 <= first_offset < end_offset and piece >= 0, found first_offset = "
            f"{numbers['first_offset']}, end_offset = {numbers['end_offset']}, piece = {numbers['piece']}"
        )
    stream, partition = text_field(header, "piece", "stream"), text_field(header, "piece", "partition")
    timed = replace(encoded, timestamps=times, goes=goes)
    by = Asked.of_json(header["by"]) if is_trusted and "by" in header else None
    index = int_field(header, "piece", "index") if "index" in header else None
    lateness_ms = int_field(header, "piece", "lateness_ms") if "lateness_ms" in header else None
    return Piece(
        stream,
        partition,
        **numbers,
        encoded=timed,
        timing=timing.astype(np.bool_),
        places=places,
        by=by,
        index=index,
        lateness_ms=lateness_ms,
    )


def _read_pushed(frames: Sequence[Frame], header: dict[str, Any], is_trusted: bool) -> Pushed:
    stands_ms, sn = (
        None if header.get(name) is None else int_field(header, _PUSHED, name) for name in ("stands_ms", "sn")
    )
    return Pushed(_read_piece(frames, header, is_trusted), stands_ms, sn)


def _read_tuples(
    frames: Sequence[Frame], kind: str, beside: tuple[str, ...], is_trusted: bool
) -> tuple[Encoded, list[Any]]:
    """Return the tuples of a message, without times, and the columns that are beside their terms."""
    if len(frames) != 4:
        raise DataError(f"message '{kind}': expected 4 frames (header, tuples, terms, clashes), found {len(frames)}")
    tuples = _read_batch(frames[1], _tuples_schema(beside), kind, "tuples", is_trusted)
    terms = _read_terms(frames[2], kind, "terms", is_trusted)
    clashes = _read_terms(frames[3], kind, "clashes", is_trusted)
    columns = [np.array(column.to_numpy(zero_copy_only=False)) for column in tuples.columns]
    subjects, predicates, objects, graphs = columns[: len(_TUPLE)]
    encoded = Encoded(subjects, predicates, objects, graphs, np.empty(0, np.int64), terms, clashes)
    if not is_trusted:
        check_ids(encoded, f"message '{kind}'")
    return encoded, columns[len(_TUPLE) :]


def _read_batch(frame: Frame, schema: Any, kind: str, what: str, is_trusted: bool) -> Any:
    """Return the record batch of a frame, checked against the schema of the protocol; in full, unless it is trusted."""
    import pyarrow as pa

    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame), schema)
        batch.validate(full=not is_trusted)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
        raise DataError(f"message '{kind}': expected {what} as an Arrow record batch, found: {first_line}") from None
    if any(column.null_count for column in batch.columns):
        raise DataError(f"message '{kind}': expected {what} without nulls, found some")
    return batch


def _read_terms(frame: Frame, kind: str, what: str, is_trusted: bool) -> TermTable:
    if len(frame) == 0:
        return TermTable.empty()
    batch = _read_batch(frame, _terms_schema(), kind, what, is_trusted)
    ids = np.array(batch.column(0).to_numpy())
    texts = batch.column(1)
    _, offset_buffer, text_buffer = texts.buffers()
    offsets = np.zeros(1, np.int64)
    if len(texts):
        offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.empty(0, np.uint8) if text_buffer is None else np.frombuffer(text_buffer, np.uint8)
    return TermTable(ids, offsets - offsets[0], raw[offsets[0] : offsets[-1]].copy())


def check_ids(encoded: Encoded, where: str, writes_views: bool = False) -> None:
    """Check that the columns hold ids and codes of terms that are there, and that the graphs may be written. where:
    names what came, in the error; writes_views: also views may be.

    Raises: DataError."""
    last_clash = CLASH_FIRST - len(encoded.clashes)
    for name in ("subjects", "predicates", "objects", "graphs"):
        column: Int64Array = getattr(encoded, name)
        strange = (column < 0) & ((column > CLASH_FIRST) | (column <= last_clash))
        if name == "graphs":
            strange &= column != UNBOUND
        if np.any(strange):
            raise DataError(f"{where}: expected term ids in {name}, found {column[strange][0]}")
    ids, terms = encoded.terms.ids, TermRows(encoded.terms.ids)
    is_distinct = np.array_equal(terms.of(ids), np.arange(len(ids)))
    if _are_strange(ids) or not is_distinct or _are_strange(encoded.clashes.ids):
        raise DataError(f"{where}: expected distinct hash ids in its terms, found others")
    missing = 0
    for column in (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs):
        missing += int(np.count_nonzero((terms.of(column) < 0) & (column >= 0) & (column & INLINE_MARK == 0)))
    if missing:
        raise DataError(f"{where}: expected the text of every term, found {missing} without")
    if writes_views:
        return
    try:
        check_graphs_written(encoded)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _are_strange(ids: Int64Array) -> bool:
    """Tell whether some of these are no hash ids: negative, or marked as inlined."""
    return bool(np.any((ids < 0) | (ids & INLINE_MARK != 0)))

"""The rows of a DataFrame's tasks on their way into a stream, each exactly once. Knows nothing of Spark.

A writer has a fixed number of source partitions; task i of every batch of rows sends to partition i. The offsets of a
row follow from the number of its batch and from its place in the task's rows, sorted by time and text. So a task that
is run again, in whatever order its rows come, sends the same pieces, and the ledgers of the nodes drop the repeats:

* offset = batch << 32 | mark << 24 | place. mark tells apart the queries of a writer that number their batches anew.
* The first piece of a batch begins where the partition stands, so no offset between two batches is missing.
* Pieces are cut where the stream batch changes and at multiples of CHUNK_ROWS: the cuts follow from the rows, too.
* Time is closed by close_batch only, once all tasks of a batch are safe, and for all partitions of the writer.
"""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.errors import DataError, StreamError
from wukongs.live.pieces import Piece, timing_mask
from wukongs.remote.client import RemoteEngine
from wukongs.store.encoded import Encoded, TermCutter
from wukongs.store.encoder import encode_columns, encode_ntriples
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.keys import read_token
from wukongs.wire.link import IngestLink
from wukongs.wire.transport import check_address
from wukongs.wire.trust import Keys, read_keys

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 1 << 16
BATCH_SHIFT, MARK_SHIFT = 32, 24
ROWS_MAX = 1 << MARK_SHIFT
"""Rows of one task in one batch."""
BATCH_MAX = 1 << (62 - BATCH_SHIFT)
TRIPLE_COLUMNS = ("subject", "predicate", "object")
TEXT_COLUMN = "value"


@dataclass(frozen=True, slots=True)
class Access:
    """Where the nodes are, and what they ask for: travels to the tasks, which need no files for it."""

    addresses: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    keys: Keys | None = field(default=None, repr=False)
    timeout_s: float = 60.0

    @staticmethod
    def read(
        addresses: Sequence[str], token_file: str | None, key: str | None, node_key: str | None, timeout_s: float
    ) -> Access:
        """Read the files of this machine. Raises: SettingsError."""
        token = None if token_file is None else read_token(token_file)
        keys = None if key is None or node_key is None else read_keys(key, node_key)
        for address in addresses:
            check_address(address, allow_remote=keys is not None)
        return Access(tuple(addresses), token, keys, timeout_s)

    def connect(self) -> RemoteEngine:
        """Return a client. Raises: SettingsError, NodeUnavailable."""
        addresses = list(self.addresses)
        return RemoteEngine(
            addresses, lambda address: ClientChannel(address, self.token, self.keys), token=self.token, keys=self.keys
        )

    def link(self) -> IngestLink:
        """Return a link to the nodes' ingest. Raises: SettingsError."""
        return IngestLink(self.addresses, timeout_s=self.timeout_s, token=self.token, keys=self.keys)


@dataclass(frozen=True, slots=True)
class StreamWriter:
    """One run of a writer of a stream. epoch: its fencing epoch; lag_ms: how far behind the newest row of all batches a
    later one may be; closes_newest: close the newest row's stream batch as well; text_name: how errors call the lines
    of N-Quads that are sent."""

    access: Access
    stream: str
    name: str
    partition_count: int
    epoch: int
    lag_ms: int = 0
    closes_newest: bool = False
    text_name: str = f"column {TEXT_COLUMN!r}"

    def partition(self, number: int) -> str:
        return f"{self.name}/{number}"


@dataclass(frozen=True, slots=True)
class Sent:
    """One task's rows of a batch are safe. newest_ms: None if there were none."""

    number: int
    end_offset: int
    rows: int
    newest_ms: int | None


def mark_of(query: str | None) -> int:
    """Return the mark of a query that numbers its batches from 0 on, 0 for none."""
    return 0 if query is None else zlib.crc32(query.encode()) & 0xFF or 1


def first_offset(batch: int, mark: int) -> int:
    """Raises: DataError (a number that is not one of a batch)."""
    if not 0 <= batch < BATCH_MAX:
        raise DataError(f"batch = {batch}: expected a number from 0 to {BATCH_MAX - 1}")
    return batch << BATCH_SHIFT | mark << MARK_SHIFT


def push_rows(writer: StreamWriter, number: int, batch: int, mark: int, table: pa.Table) -> Sent:
    """Send a task's rows: all that the nodes do not have of them. Returns when they are safe.

    Raises: StreamError (too many tasks, another query's batches, rows that have changed); DataError (a malformed row);
    NodeUnavailable; whatever error a node answers."""
    start = first_offset(batch, mark)
    if len(table) == 0:
        return Sent(number, start, 0, None)
    if number >= writer.partition_count:
        raise StreamError(
            f"stream {writer.stream}: the rows come in more than partitions = {writer.partition_count} Spark "
            f'partitions. Use .repartition({writer.partition_count}, "subject") or .coalesce before the write, or '
            "raise the option partitions, and keep it so"
        )
    link = _kept_link(writer.access)
    try:
        return _push(link, writer, number, start, table)
    except BaseException:
        forget_links()
        raise


def _push(link: IngestLink, writer: StreamWriter, number: int, start: int, table: pa.Table) -> Sent:
    partition = writer.partition(number)
    opened = link.open(writer.stream, partition, writer.epoch)
    sorted_table = sort_rows(table)
    count = len(sorted_table)
    if count == 0:
        return Sent(number, start, 0, None)
    newest_ms = int(sorted_table["time"][count - 1].as_py())
    if count >= ROWS_MAX:
        raise StreamError(f"stream {writer.stream}: {count} rows of one task, expected less than {ROWS_MAX}")
    end, resume = start + count, opened.resume_offset
    done = 0
    if resume and resume >> BATCH_SHIFT >= start >> BATCH_SHIFT:
        done = resume - start
        if not 0 < done <= count:
            raise _not_these(writer, partition, start, count, resume)
    if done < count:
        encoded = encode_rows(sorted_table, writer.stream, opened.hash_bits, writer.text_name)
        timing = timing_mask(encoded, opened.timing)
        cutter, position = TermCutter(encoded), resume
        for first, stop in _cuts(encoded, opened.batch_ms):
            if stop <= done:
                continue
            first = max(first, done)
            piece = Piece(
                stream=writer.stream,
                partition=partition,
                epoch=writer.epoch,
                first_offset=position,
                end_offset=start + stop,
                piece=0,
                batch_number=-(-int(encoded.timestamps[first]) // opened.batch_ms),
                encoded=cutter.cut(np.arange(first, stop, dtype=np.int64)),
                timing=timing[first:stop],
            )
            link.send(piece)
            position = start + stop
        link.flush()
    return Sent(number, end, count, newest_ms)


def _cuts(encoded: Encoded, batch_ms: int) -> list[tuple[int, int]]:
    """Return the rows of each piece, from the first to behind the last."""
    numbers = -(-encoded.timestamps // batch_ms)
    changes = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    bounds = sorted({0, *changes, *range(0, len(encoded), CHUNK_ROWS), len(encoded)})
    return list(pairwise(bounds))


def _not_these(writer: StreamWriter, partition: str, start: int, count: int, resume: int) -> StreamError:
    """Say what the nodes have in the place of these rows."""
    where = f"stream {writer.stream}, writer {writer.name!r}, partition {partition!r}"
    batch, found = start >> BATCH_SHIFT, resume >> BATCH_SHIFT
    if found == batch and (resume ^ start) >> MARK_SHIFT == 0:
        return StreamError(
            f"{where}: batch {batch} comes with {count} rows, and the nodes have {resume - start} of it: its rows have "
            "changed since the first attempt, or their division among Spark's partitions has. Make it independent of "
            f'the cluster\'s size with .repartition({writer.partition_count}, "subject")'
        )
    return StreamError(
        f"{where}: this is batch {batch}, and the nodes have batch {found} of another query or checkpoint. Go on with "
        f"that checkpoint; or set the option batch_base = {found + 1} if the rows are new, or another writer if this "
        "one goes on beside it"
    )


def close_batch(writer: StreamWriter, batch: int, mark: int, sent: Sequence[Sent]) -> None:
    """Let event time go on, once all tasks of a batch have sent their rows: up to before the newest of them, less the
    lag. Closes all partitions of the writer, also those that had no rows.

    Raises: StreamError, NodeUnavailable, whatever error a node answers."""
    newest_ms = max((one.newest_ms for one in sent if one.newest_ms is not None), default=None)
    if newest_ms is None:
        return
    ends = {one.number: one.end_offset for one in sent if one.rows}
    start = first_offset(batch, mark)
    with writer.access.link() as link:
        names = [writer.partition(number) for number in range(writer.partition_count)]
        opened = [link.open(writer.stream, name, writer.epoch) for name in names]
        batch_ms = opened[0].batch_ms
        complete_ms = newest_ms - 1
        if writer.closes_newest:
            complete_ms = -(-newest_ms // batch_ms) * batch_ms
        for number, name in enumerate(names):
            end = ends.get(number, start)
            link.close_batches(writer.stream, name, writer.epoch, end, complete_ms - writer.lag_ms)


def next_batch(writer: StreamWriter) -> int:
    """Return the number of the batch behind all that the nodes have of a writer. Raises: as close_batch."""
    with writer.access.link() as link:
        ends = [
            link.open(writer.stream, writer.partition(number), writer.epoch).resume_offset
            for number in range(writer.partition_count)
        ]
    return (max(ends) >> BATCH_SHIFT) + 1 if max(ends) else 0


# --- rows -------------------------------------------------------------------------------------------------------------


def sort_rows(table: pa.Table) -> pa.Table:
    """Return the rows as columns of terms, or of lines of text, with their times as int64 ms; in an order that depends
    on the rows alone. Lines without a statement are left out.

    Raises: DataError (a time or a text that is missing)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if TEXT_COLUMN in table.column_names:
        texts, times = table[TEXT_COLUMN], times_of(table["time"])
        if texts.null_count:
            raise DataError("column 'value': a value is missing (null)")
        lines = pc.split_pattern_regex(texts.combine_chunks(), "\r\n|\n|\r")
        parents = pc.list_parent_indices(lines)
        flat = pc.utf8_trim_whitespace(pc.list_flatten(lines))
        found = pa.table({"time": times.take(parents), TEXT_COLUMN: flat})
        is_said = pc.and_(pc.not_equal(flat, ""), pc.invert(pc.starts_with(flat, "#")))
        result = found.filter(is_said)
    else:
        columns = {"time": times_of(table["time"])}
        columns |= {name: table[name] for name in (*TRIPLE_COLUMNS, "graph") if name in table.column_names}
        result = pa.table(columns)
    return result.take(pc.sort_indices(result, [(name, "ascending") for name in result.column_names]))


def times_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as int64, in ms. Raises: DataError (a time that is missing)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise DataError("column 'time': a value is missing (null). Filter such rows out before the write")
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())


def encode_rows(table: pa.Table, stream: str, hash_bits: int, text_name: str) -> Encoded:
    """Encode what sort_rows has returned. Raises: DataError (a malformed term or line)."""
    scope = stream.encode()
    if TEXT_COLUMN not in table.column_names:
        subjects, predicates, objects = (table[name] for name in TRIPLE_COLUMNS)
        graphs = table["graph"] if "graph" in table.column_names else None
        times = table["time"].to_numpy()
        return encode_columns(subjects, predicates, objects, times, graphs, scope=scope, hash_bits=hash_bits)
    encoded, malformed = encode_ntriples(_lines(table), scope, timestamps="prefix", hash_bits=hash_bits)
    if malformed:
        one = malformed[0]
        raise DataError(f"{text_name}: {one.reason}, found {one.text[:200]!r}")
    return encoded


def _lines(table: pa.Table) -> bytes:
    """Return lines of N-Quads with their times before them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from wukongs.query.terms.arrow_texts import bytes_of

    kind = pa.large_string()
    times, texts = (table[name].cast(kind) for name in ("time", TEXT_COLUMN))
    lines = pc.binary_join_element_wise(times, texts, pa.scalar("\t", kind))
    ended = pc.binary_join_element_wise(lines, pa.scalar("", kind), pa.scalar("\n", kind))
    chunks = ended.chunks if isinstance(ended, pa.ChunkedArray) else [ended]
    return b"".join(bytes_of(chunk)[0].tobytes() for chunk in chunks)


def stored_text(table: pa.Table) -> bytes:
    """Return rows without times as N-Quads. Raises: DataError (a malformed or missing term, a blank node: two tasks
    would make two nodes of it)."""
    import pyarrow.compute as pc

    if TEXT_COLUMN in table.column_names:
        if table[TEXT_COLUMN].null_count:
            raise DataError("column 'value': a value is missing (null)")
        return ("\n".join(table[TEXT_COLUMN].to_pylist()) + "\n").encode()
    subjects, predicates, objects = (table[name] for name in TRIPLE_COLUMNS)
    graphs = table["graph"] if "graph" in table.column_names else None
    encode_columns(subjects, predicates, objects, graphs=graphs, scope=b"")
    for name in ("subject", "object"):
        if pc.any(pc.starts_with(table[name], "_:")).as_py():
            raise DataError(
                f"column {name!r}: blank nodes cannot be written to the stored graph, since each task would make "
                "nodes of its own. Give them IRIs"
            )
    parts = [subjects, predicates, objects, *([] if graphs is None else [pc.fill_null(graphs, "")])]
    rows = zip(*(part.to_pylist() for part in parts), strict=True)
    return "".join(f"{' '.join(row)} .\n" for row in rows).encode()


# --- links ------------------------------------------------------------------------------------------------------------

_links: dict[tuple[int, Any], IngestLink] = {}
"""The link of this process, by its id and where it leads: at most one. Sockets do not survive a fork."""


def _kept_link(access: Access) -> IngestLink:
    key = os.getpid(), (access.addresses, access.token, None if access.keys is None else access.keys.own.public)
    if key not in _links:
        forget_links()
        _links[key] = access.link()
        gc.freeze()  # Spark collects garbage after every task: what is loaded by now need not be looked at again
    return _links[key]


def forget_links() -> None:
    """Close the link of this process, which comes anew with the next rows."""
    while _links:
        (process, _), link = _links.popitem()
        if process == os.getpid():
            link.close()

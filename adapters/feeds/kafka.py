"""A topic of Kafka (`kind = "kafka"`). A partition of the topic is a source partition, the number of a row its offset.

Kafka keeps the messages, so they are not kept a second time: workers read the offsets that an epoch names, as often as
needed, and where a run goes on is what the nodes have. No consumer group is joined and no offset is committed.

Offsets have gaps: compaction removes messages, and the marks of transactions, and all of those that were aborted, take
offsets, too. A gap is no message; a message without a value (a tombstone) makes nothing. Offsets that the broker has
deleted by its retention before they were read are set aside, by name.

A thread asks the broker how far the partitions are, for all of them at once: up to there a consumer of committed
messages can read.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.adapters.feeds.feed import Feed, FeedKind, Look, MessageDecoder, Opening
from wukongs.adapters.feeds.spool import Frame
from wukongs.adapters.source import RowRange, Rows, SetAside, StreamSource
from wukongs.errors import DataError, SettingsError
from wukongs.settings.toml_reader import TableReader

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

log = logging.getLogger("wukongs")
LOOK_S = 0.02
"""How often the broker is asked where the partitions end."""
ANSWER_S = 2.0
LOST_S = 1.0
"""A broker that does not answer for so long is said to be lost."""
OPEN_S = 10.0
"""So long the broker may take to answer at the start."""
READ_S = 30.0
"""So long a worker waits for messages that are there before it asks whether the broker answers. If it does, it has as
long once more; if not, it is waited for, and that is told after 1, 2, 4, ... times as long."""
PARTITIONS_S = 30.0
"""How often the topic is asked for new partitions."""
RANGE_ROWS = 1 << 14
SKIPPED_MAX = 20_000
"""A consumer that is so many offsets behind at most reads on, instead of asking anew."""
TAKEN_MAX = 10_000
TAKE_S = 0.01
RESERVED = ("bootstrap.servers", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof")
CELLS = ("_key", "_header", "_topic", "_partition", "_offset")
_OWN = {
    "group.id": "wukongs",
    "log_level": "2",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "50",
    "fetch.queue.backoff.ms": "5",
    "queued.max.messages.kbytes": "8192",
    "max.poll.interval.ms": "86400000",
}
"""Our settings, which a run file may change. The wait bounds how late the end of a transaction is noticed; the queue
is one of each partition in each worker."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """from_end: a first run leaves out what is there; follow: whether to wait for more at the end. properties: of
    librdkafka, names and values."""

    bootstrap: str
    topic: str
    from_end: bool = False
    follow: bool = True
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def client(self) -> dict[str, str | int | float | bool]:
        """The settings of a client."""
        return {**_OWN, **dict(self.properties), "bootstrap.servers": self.bootstrap}

    @property
    def where(self) -> str:
        return f"topic {self.topic} at {self.bootstrap}"


def _options(reader: TableReader) -> KafkaOptions:
    if find_spec("confluent_kafka") is None:
        raise reader.error("kind", "the package of the Kafka client", 'none: pip install "wukongs[kafka]"')
    bootstrap = reader.substituted("bootstrap")
    for one in bootstrap.split(","):
        host, _, port = one.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise reader.error("bootstrap", "host:port, several with commas between them", repr(bootstrap))
    table = reader.table("kafka")
    properties = tuple(_properties(table))
    table.done()
    return KafkaOptions(
        bootstrap=bootstrap,
        topic=reader.substituted("topic"),
        from_end=reader.choice("start", ("beginning", "end"), "beginning") == "end",
        follow=reader.flag("follow", True),
        properties=properties,
    )


def _properties(table: TableReader, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the properties of a table: `security.protocol` is one name to librdkafka, and tables within each other to
    TOML, unless it is quoted."""
    for name in table.names():
        if table.is_table(name):
            inner = table.table(name)
            yield from _properties(inner, f"{above}{name}.")
            inner.done()
        elif above + name in RESERVED:
            raise table.error(name, "a property that is not set by other means", "one that is")
        else:
            yield above + name, table.substituted(name)


# --- the driver's side ------------------------------------------------------------------------------------------------


class _Topic:
    """Knows how far the partitions of a topic are; its thread asks. count: of the partitions."""

    def __init__(self, options: KafkaOptions, say: Callable[[str], None]) -> None:
        """Raises: SettingsError (no broker that answers, no such topic, a property that will not do)."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._options, self._say = options, say
        try:
            self._admin = AdminClient(options.client)
            self.count = self._partition_count(OPEN_S)
        except KafkaException as error:
            raise SettingsError(f"{options.where}: {_reason(error)}. Check bootstrap and the properties") from None
        self.lows: dict[int, int] = {}
        """Partition -> its first offset at the beginning."""
        self.ends: dict[int, int] = {}
        self._heard: frozenset[int] = frozenset()
        self._error: SettingsError | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def _partition_count(self, timeout_s: float) -> int:
        from confluent_kafka import Consumer, KafkaException

        causes: list[KafkaError] = []
        # a consumer, since a broker may make the topic that another client asks for
        consumer = Consumer({**self._options.client, "error_cb": causes.append})
        try:
            found = consumer.list_topics(self._options.topic, timeout=timeout_s).topics[self._options.topic]
        except KafkaException:
            consumer.poll(0)  # tells the causes
            if causes:
                raise KafkaException(causes[0]) from None
            raise
        finally:
            consumer.close()
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)

    def begin(self) -> None:
        """Learn where the partitions begin and end, and begin to ask. Raises: SettingsError (no answer)."""
        if self._thread is not None:
            return
        deadline = time.monotonic() + OPEN_S
        while len(self.lows) < self.count or len(self.ends) < self.count:
            lows, reason = self._asked("earliest")
            ends, reason = self._asked("latest") if len(lows) == self.count else ({}, reason)
            self.lows, self.ends = lows, ends
            if reason is not None and (time.monotonic() >= deadline or _is_final(reason)):
                raise SettingsError(f"{self._options.where}: {reason.str()}. Check that its brokers run")
        self._heard = frozenset(self.ends)
        self._thread = threading.Thread(target=self._run, name="wukongs-kafka", daemon=True)
        self._thread.start()

    def _asked(self, what: str) -> tuple[dict[int, int], KafkaError | None]:
        """Return the offsets of all partitions that are known, and why others are not."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition, admin

        specs: Any = admin.OffsetSpec  # type: ignore[attr-defined]
        spec = specs.latest() if what == "latest" else specs.earliest()
        is_committed = self._options.client["isolation.level"] == "read_committed"
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(self._options.topic, number): spec for number in range(self.count)}
        found: dict[int, int] = {}
        reason = None
        answers: dict[TopicPartition, Future[Any]] = self._admin.list_offsets(
            wanted, isolation_level=level, request_timeout=ANSWER_S
        )
        wait(answers.values())
        for partition, answer in answers.items():
            try:
                found[partition.partition] = answer.result().offset
            except KafkaException as error:
                reason = error.args[0]
        return found, reason

    def _run(self) -> None:
        lost_s: float | None = None
        is_said, count, counted_s = False, self.count, time.monotonic()
        while not self._stopped.wait(LOOK_S):
            ends, reason = self._asked("latest")
            self._heard = frozenset(ends)
            for number, end in ends.items():  # a broker that has just taken over may be a little behind
                self.ends[number] = max(end, self.ends[number])
            now_s = time.monotonic()
            if reason is None:
                if is_said:
                    self._say(f"{self._options.where}: the broker answers again")
                lost_s, is_said = None, False
            elif _is_final(reason):
                self._error = SettingsError(f"{self._options.where}: {reason.str()}")
                return
            else:
                lost_s = now_s if lost_s is None else lost_s
                if not is_said and now_s - lost_s >= LOST_S:
                    self._say(f"{self._options.where}: no answer ({reason.str()}): waiting for the broker")
                    is_said = True
            if reason is None and now_s - counted_s >= PARTITIONS_S:
                counted_s, before, count = now_s, count, self._counted(count)
                if count > before:
                    self._say(
                        f"{self._options.where} has {count} partitions now, {count - before} of them new: start "
                        "again to read these, too"
                    )

    def _counted(self, count: int) -> int:
        from confluent_kafka import KafkaException

        try:
            return self._partition_count(ANSWER_S)
        except KafkaException:
            return count

    def look(self, number: int) -> tuple[int, bool]:
        """Return where a partition ends, and whether its broker answers. Raises: why it will not answer any more."""
        if self._error is not None:
            raise self._error
        return self.ends[number], number in self._heard

    def close(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(ANSWER_S + 1)


class KafkaFeed:
    """A partition of a topic."""

    def __init__(self, opening: Opening, source: KafkaSource, topic: _Topic) -> None:
        self.stream, self.waits = opening.stream, opening.waits
        self.source: StreamSource = source
        self._source, self._topic, self._say = source, topic, opening.say
        self._planned = 0
        self._stop: int | None = None
        """Where it ends if it is not followed."""

    def begin(self, row: int, had: Sequence[int] = ()) -> int:
        self._topic.begin()
        options, number = self._source.options, self._source.number
        low, end = self._topic.lows[number], self._topic.ends[number]
        name = f"{self.stream}, {self.source.partition}"
        if (had_row := max((row, *had))) > end:
            raise SettingsError(
                f"{name}: the nodes have {had_row:,} offsets of it, {options.where} has {end:,}: it is another topic. "
                "Give the source another `name`"
            )
        if row == 0:
            row = (min(had, default=0) or end) if options.from_end else low
        elif row < low:
            self._say(f"{name}: offsets {row:,} to {low - 1:,} were deleted before they were read")
            row = low
        self._stop = None if options.follow else end
        self._planned = row
        return row

    def look(self) -> Look:
        end, is_heard = self._topic.look(self._source.number)
        end = end if self._stop is None else self._stop
        # what cannot be read now is not planned, so that other sources go on
        return Look(end if is_heard else self._planned, self._stop is None or not is_heard, is_heard)

    def ranges(self, first: int, end: int, floor_ms: int) -> Sequence[RowRange]:
        self._planned = max(self._planned, end)
        bounds = [*range(first, end, RANGE_ROWS), end]
        return [RowRange(low, high, 0, 0, floor_ms) for low, high in pairwise(bounds)]

    def release(self, row: int) -> None:
        pass

    def close(self) -> None:
        self._topic.close()
        STOPS.pop(self._source.options, None)
        _forget(self._source.key(self.stream.encode()))


def _feeds(opening: Opening) -> list[Feed]:
    options: KafkaOptions = opening.options
    STOPS[options] = opening.stop
    topic = _Topic(options, lambda text: opening.say(f"{opening.stream}, {text}"))
    sources = [
        KafkaSource(options, number, opening.decoder(f"{opening.name or options.topic}/{number}"))
        for number in range(topic.count)
    ]
    return [KafkaFeed(opening, source, topic) for source in sources]


def _reason(error: Exception) -> str:
    found = error.args[0]
    return str(found.str() if hasattr(found, "str") else found)


def _is_final(error: KafkaError) -> bool:
    """Whether asking again is of no use."""
    from confluent_kafka import KafkaError

    refusals = (
        KafkaError._AUTHENTICATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    )
    return bool(error.fatal()) or error.code() in refusals


# --- the workers' side ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KafkaSource:
    """Partition `number` of a topic; each process that reads it keeps a consumer."""

    options: KafkaOptions
    number: int
    decoder: MessageDecoder

    @property
    def partition(self) -> str:
        return self.decoder.partition

    @property
    def _cells(self) -> list[str]:
        """The cells that a mapping reads and messages have beside their values."""
        return [name for name in self.decoder.columns if name.partition(".")[0] in CELLS]

    def key(self, scope: bytes) -> _Key:
        return os.getpid(), self.options, self.number, scope

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode the messages of a range. Raises: DataError (they do not come)."""
        key = self.key(scope)
        if key not in _kept:
            _kept[key] = _Cursor(self.options, self.number)
        try:
            messages, lost = _kept[key].read(rows.first_offset, rows.end_offset)
        except DataError:
            _forget(key)
            raise
        found = self.decoder.rows(self._frames(messages), rows.floor_ms, scope, hash_bits)
        found.malformed.extend(
            SetAside(f"{self.partition}, offset {first}", 1, 1, _deleted(first, end), "", first) for first, end in lost
        )
        return found

    def _frames(self, messages: Sequence[Message]) -> list[Frame]:
        """Return the messages that have a value."""
        kept = [(one, value) for one in messages if (value := one.value()) is not None]
        if not kept:
            return []
        offsets = np.array([one.offset() for one, _ in kept], np.int64)
        return [
            Frame(
                int(offsets[0]),
                0,
                np.array([len(value) for _, value in kept], np.int64),
                b"".join(value for _, value in kept),
                cells={name: [self._cell(one, name) for one, _ in kept] for name in self._cells},
                rows=offsets,
                times=np.array([max(one.timestamp()[1], 0) for one, _ in kept], np.int64),
            )
        ]

    def _cell(self, message: Message, name: str) -> str | None:
        """Return what belongs to a message: `_key`, or a member of a key in JSON by its path, `_header.NAME`, and where
        the message stands."""
        kind, _, path = name.partition(".")
        if kind == "_key":
            key = message.key()
            return _text(key) if key is None or not path else _member(key, path.split("."))
        if kind == "_header":
            headers: Any = message.headers() or []
            return next((_text(value) for header, value in headers if header == path), None)
        standing = {"_topic": self.options.topic, "_partition": str(self.number), "_offset": str(message.offset())}
        return standing.get(name)


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _member(key: bytes | str, path: Sequence[str]) -> str | None:
    """Return a member of a JSON object as a text; None if there is none, or it is none of texts and numbers."""
    try:
        found = json.loads(key)
    except (ValueError, RecursionError):
        return None
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None or isinstance(found, (dict, list)):
        return None
    return found if isinstance(found, str) else json.dumps(found)


def _deleted(first: int, end: int) -> str:
    which = f"offset {first} was" if end == first + 1 else f"offsets {first} to {end - 1} were"
    return f"{which} deleted by the broker before they were read: see the topic's retention"


class _Cursor:
    """A consumer of one partition, and up to where it has handed out all messages."""

    def __init__(self, options: KafkaOptions, number: int) -> None:
        from confluent_kafka import Consumer

        self._options, self._number = options, number
        settings = {**options.client, "enable.auto.commit": "false", "auto.offset.reset": "error"}
        self._consumer: Consumer = Consumer({**settings, "enable.partition.eof": "true"})
        self._at: int | None = None
        self._came: list[Message] = []
        """All that has come from there on."""

    def read(self, first: int, end: int) -> tuple[list[Message], list[tuple[int, int]]]:
        """Return the messages with offsets [first, end), and the offsets in it that are deleted.

        Raises: DataError (they do not come, or the partition ends before them)."""
        from confluent_kafka import KafkaError

        at = self._at if self._at is not None and 0 <= first - self._at <= SKIPPED_MAX else self._go(first)
        found: list[Message] = []
        lost: list[tuple[int, int]] = []
        waiting = _Waiting(self._options, self._number, first, end)
        while at < end:
            batch = self._came or self._consumer.consume(min(end - at, TAKEN_MAX), TAKE_S)
            self._came = []
            before = at
            for place, message in enumerate(batch):
                error, offset = message.error(), message.offset()
                if error is None:
                    assert offset is not None
                    if offset >= end:
                        self._came, at = batch[place:], end
                        break
                    if offset >= first:
                        found.append(message)
                    at = offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    at = max(at, offset or 0)
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    low = self._low(at, waiting)
                    lost.append((max(at, first), min(low, end)))
                    at = self._go(low)
                    break
                elif _is_final(error):
                    raise waiting.missing(at, error.str())
            if at > before:
                waiting.begin()
            elif waiting.is_over(at):
                self._low(at, waiting)
                waiting.answered(at)
        self._at = at
        return found, [(low, high) for low, high in lost if low < high]

    def _go(self, offset: int) -> int:
        from confluent_kafka import TopicPartition

        self._at, self._came = None, []
        self._consumer.assign([TopicPartition(self._options.topic, self._number, offset)])
        return offset

    def _low(self, at: int, waiting: _Waiting) -> int:
        """Return the first offset from there on that the broker still has; wait until it says so.

        Raises: DataError (it ends before)."""
        from confluent_kafka import KafkaException, TopicPartition

        while True:
            try:
                bounds = self._consumer.get_watermark_offsets(
                    TopicPartition(self._options.topic, self._number), timeout=ANSWER_S
                )
            except KafkaException as error:
                if _is_final(error.args[0]):
                    raise waiting.missing(at, _reason(error)) from None
                waiting.unanswered(at, _reason(error))
                time.sleep(LOOK_S)
                continue
            if bounds is None or bounds[1] < at:
                raise waiting.missing(at, "it ends before them: was it made anew?")
            return max(bounds[0], at)

    def close(self) -> None:
        self._consumer.close()


class _Waiting:
    """Offsets [first, end) of a partition that a cursor waits for: how long, and when that is told."""

    def __init__(self, options: KafkaOptions, number: int, first: int, end: int) -> None:
        self._where, self._end = f"{options.where}, partition {number}", end
        self._stop = STOPS.get(options)
        self.begin()

    def begin(self) -> None:
        """Wait anew: something came."""
        self._began_s = self._asked_s = time.monotonic()
        self._told_s, self._is_answered = READ_S, False

    def is_over(self, at: int) -> bool:
        """Tell whether it is time to ask if the broker answers. Raises: DataError (the run is stopped)."""
        if self._stop is not None and self._stop.is_set():
            raise self.missing(at, "the run is stopped")
        return time.monotonic() - self._asked_s >= READ_S

    def answered(self, at: int) -> None:
        """Raises: DataError (it answers, but what is waited for does not come)."""
        if self._is_answered:
            raise self.missing(at, f"the broker does not send them for {READ_S:.0f} s")
        self._asked_s, self._is_answered = time.monotonic(), True

    def unanswered(self, at: int, reason: str) -> None:
        """Raises: DataError (the run is stopped)."""
        self.is_over(at)
        self._is_answered = False
        waited_s = time.monotonic() - self._began_s
        if waited_s >= self._told_s:
            self._told_s *= 2
            log.warning(
                "%s: no answer (%s) for %.0f s; offsets %d to %d are waited for",
                self._where,
                reason,
                waited_s,
                at,
                self._end - 1,
            )

    def missing(self, at: int, reason: str) -> DataError:
        return DataError(
            f"offsets {at:,} to {self._end - 1:,} cannot be read ({reason}). Start the run again: it goes on there",
            self._where,
        )


STOPS: dict[KafkaOptions, threading.Event] = {}
"""Set when a run in this process is to stop, by its options; Spark ends its workers itself."""
_Key = tuple[int, KafkaOptions, int, bytes]
_kept: dict[_Key, _Cursor] = {}
"""The consumers of this process; those of a process that it was forked from are not ours to use."""


def _forget(key: _Key) -> None:
    cursor = _kept.pop(key, None)
    if cursor is not None:
        cursor.close()


@atexit.register
def _forget_all() -> None:
    for key in [key for key in _kept if key[0] == os.getpid()]:
        _forget(key)


KIND = FeedKind(options=_options, feeds=_feeds, is_recording=lambda options: not options.follow)

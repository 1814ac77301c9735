"""The data of the continuous benchmark: a generated network, and its five streams cut at the paper's rates.

Each stream batch of 100 ms holds as many tuples as the paper's rates say, all with the time at which it ends. L1-L6 are
also answered here, from the text of the data, with sets and dictionaries.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.lsbench.data import LsbenchData, StreamData, generate_lsbench
from wukongs.bench.store.injection import BATCH_MS, RATES, stream_lines

if TYPE_CHECKING:
    import pyarrow as pa

STORED_PER_USER = 140
"""Stored triples that the generator makes for a user with 40 friends."""
WINDOW_BATCHES = 10
_SIB = b"<http://www.ins.cwi.nl/sib/%b/%b>"
_EDGE = rb"(?m)^(\S+) <[^>]*[/#]%b> (\S+) \.$"
Rows = list[tuple[bytes, ...]]


@dataclass(frozen=True)
class Workload:
    """data: as generated; batches: the stream batches from number 1 on, by stream."""

    data: LsbenchData
    batches: tuple[dict[str, StreamData], ...]

    def tables(self, number: int) -> dict[str, pa.Table]:
        """Return stream batch `number` as what Stream.push_arrow takes. Behind the last one they come again."""
        streams = self.batches[(number - 1) % len(self.batches)]
        if number > len(self.batches):
            times = {name: np.full(len(stream), number * BATCH_MS, np.int64) for name, stream in streams.items()}
            streams = {name: StreamData(stream.lines, times[name]) for name, stream in streams.items()}
        return {name: stream.table() for name, stream in streams.items()}

    def describe(self) -> dict[str, object]:
        """Return counts of triples."""
        per_batch = {name: len(stream) for name, stream in self.batches[0].items()}
        return {"source": self.data.source, "stored": self.data.stored_count, "tuples of a stream batch": per_batch}

    @cached_property
    def posters(self) -> list[str]:
        """The users who post in the batches, as `u12`, the busiest first; of equally busy ones in order of names."""
        counts = Counter(user for batch in self._posts for user, _, _ in batch if user.startswith(b"<http"))
        users = {user.rsplit(b"/", 1)[1][:-1].decode(): count for user, count in counts.items() if b"/user/" in user}
        return sorted(users, key=lambda user: (-users[user], user))

    @cached_property
    def _posts(self) -> list[list[tuple[bytes, ...]]]:
        return [_tuples(batch["PO"]) for batch in self.batches]

    def _numbers(self, end_number: int) -> list[int]:
        """Return the places in `batches` of the stream batches in the window that ends with one of them."""
        return [(at - 1) % len(self.batches) for at in range(max(1, end_number - WINDOW_BATCHES + 1), end_number + 1)]

    def _window(self, stream: str, end_number: int, predicate: bytes) -> dict[bytes, set[bytes]]:
        """Return the objects of each subject in the window that ends with a stream batch."""
        found = defaultdict(set)
        for at in self._numbers(end_number):
            for subject, one, object_ in _tuples(self.batches[at][stream]):
                if one.endswith(predicate + b">"):
                    found[subject].add(object_)
        return found

    @cached_property
    def _subscribers(self) -> dict[bytes, list[bytes]]:
        return self._stored(b"subscriber_of", is_inverse=True)

    @cached_property
    def _accounts(self) -> dict[bytes, list[bytes]]:
        return self._stored(b"account_of", is_inverse=True)

    @cached_property
    def _friends(self) -> dict[bytes, list[bytes]]:
        return self._stored(b"knows", is_inverse=False)

    def _stored(self, predicate: bytes, is_inverse: bool) -> dict[bytes, list[bytes]]:
        found = defaultdict(list)
        for subject, object_ in re.findall(_EDGE % predicate, self.data.stored):
            key, value = (object_, subject) if is_inverse else (subject, object_)
            found[key].append(value)
        return found

    def answer(self, query: str, user: str, end_number: int) -> Rows:
        """Return the rows of one of L1 to L6 for a user, in the window that ends with a stream batch, sorted."""
        large = {"L4": self._same_tags, "L5": self._liked_photos, "L6": self._liked_posts}
        if query in large:
            return sorted(large[query](end_number))
        window = {row for at in self._numbers(end_number) for row in self._posts[at]}
        account = _SIB % (b"user", user.encode())
        if query == "L1":
            return sorted((p, o) for s, p, o in window if s == account)
        users = self._accounts[_SIB % (b"person", b"p" + user[1:].encode())]
        posts = defaultdict(list)
        for subject, predicate, post in window:
            if predicate.endswith(b"creator_of>"):
                posts[subject].append(post)
        if query == "L2":
            return sorted((post,) for one in users for post in posts[one])
        assert query == "L3", query
        return sorted((friend, post) for one in users for friend in self._friends[one] for post in posts[friend])

    def _same_tags(self, end_number: int) -> Iterator[tuple[bytes, ...]]:
        tags = self._window("PO", end_number, b"hashtag")
        for posts in self._window("PO", end_number, b"creator_of").values():
            for post1, post2 in product(posts, repeat=2):
                yield from ((post1, post2, tag) for tag in tags.get(post1, set()) & tags.get(post2, set()))

    def _liked_photos(self, end_number: int) -> Iterator[tuple[bytes, ...]]:
        likes = self._window("PH-L", end_number, b"like")
        for photo, friends in self._window("PH", end_number, b"usertag").items():
            for friend1, friend2 in ((one, other) for one in friends for other in set(self._friends.get(one, ()))):
                if photo in likes.get(friend2, ()):
                    yield photo, friend1, friend2

    def _liked_posts(self, end_number: int) -> Iterator[tuple[bytes, ...]]:
        likes = self._window("PO-L", end_number, b"like")
        for channel, posts in self._window("PO", end_number, b"container_of").items():
            for user in set(self._subscribers.get(channel, ())):
                for friend in set(self._friends.get(user, ())):
                    yield from ((user, friend, post, channel) for post in posts & likes.get(friend, set()))


def _tuples(stream: StreamData) -> list[tuple[bytes, ...]]:
    return [tuple(line[:-2].split(b" ", 2)) for line in stream.lines.splitlines()]


def make_workload(stored_count: int, batch_count: int, divisor: float = 1) -> Workload:
    """Generate about so many stored triples, and stream batches at the paper's rates divided by `divisor`."""
    seconds = 1 + batch_count * BATCH_MS // 1000
    data = generate_lsbench(
        NetworkSettings(
            users=max(60, stored_count // STORED_PER_USER),
            friends=40 if stored_count >= 100_000 else 8,
            duration_ms=1000 * seconds,
            posts_per_s=600 / divisor,
            comments_per_s=600 / divisor,
            photos_per_s=900 / divisor,
            likes_per_photo=10,
            positions_per_s=4400 / divisor,
        )
    )
    sizes = {name: max(1, int(rate * BATCH_MS / 1000 / divisor)) for name, rate in RATES.items()}
    lines = {name: stream_lines(data, name, 1, size) for name, size in sizes.items()}
    batches = []
    for number in range(1, batch_count + 1):
        pieces = {name: next(lines[name], b"") for name in sizes}
        batches.append({name: StreamData(piece, _times(piece, number)) for name, piece in pieces.items()})
    return Workload(data, tuple(batches))


def _times(lines: bytes, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.full(lines.count(b"\n"), number * BATCH_MS, np.int64)


def rows_of(tsv: str) -> Rows:
    """Return the rows of a result in SPARQL's TSV, sorted."""
    return sorted(tuple(line.encode().split(b"\t")) for line in tsv.splitlines()[1:])


def draw(names: Sequence[str], count: int) -> list[str]:
    """Draw names, with repeats; the same in each run."""
    chosen = np.random.default_rng(3).integers(0, len(names), count).tolist()
    return [names[at] for at in chosen]

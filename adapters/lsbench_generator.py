"""Generating a social network of any size with streams, in the shape of LSBench: our own data, no files needed.

Written are a stored file (profiles, friendships, groups) and one timestamped file a stream (`s p o . t_ms`): posts and
comments, likes of posts, photo albums, likes of photos, positions. Likes follow what they like by a moment, likers and
tagged people are friends of the author or owner, and friends live near each other on a ring, so friends of friends are
often friends: L1 to L6 have answers in every window. The same settings give the same bytes.

Streams are made in pieces of event time. Likes, and the other photos of an album, come later than what they belong to,
and wait for their piece: so memory holds one piece, whatever the length. The triples of an item are one text, which is
put together by columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wukongs.adapters.lsbench_people import NetworkSettings, People, stored_texts
from wukongs.adapters.lsbench_words import (
    AGENTS,
    BROWSERS,
    SENTENCES,
    SIB,
    WORDS,
    among,
    chosen,
    decimal,
    entity,
    line,
    moments,
    of_each,
    only_where,
    quoted,
    term,
    text,
)
from wukongs.store.dtypes import Int64Array

__all__ = ["STREAM_NAMES", "STREAM_NAMESPACE", "GeneratedNetwork", "NetworkSettings", "generate_network"]

STREAM_NAMES = ("posts", "post_likes", "photos", "photo_likes", "gps")
STREAM_NAMESPACE = SIB + "stream/"
ITEMS_AT_ONCE = 100_000
"""About so many items are in a piece of event time."""
_ALBUM_MAX = 39
"""The most photos of an album."""
_AGENT_SHARE = 0.39
_REPLY_SHARE = 0.22
"""How many comments are on comments."""
_TAGS_MORE = 1.3
"""A post has one tag and so many more."""
_TRACKED_SHARE = 0.7
"""How many positions are those of the tenth of the users who are tracked all the time."""


@dataclass(frozen=True, slots=True)
class GeneratedNetwork:
    """The files of a network, their triples, and the user with the most posts (the constant of L1 to L3)."""

    stored: str
    streams: dict[str, str]
    stored_triples: int
    stream_triples: dict[str, int]
    busiest_user: int


@dataclass(slots=True)
class _Later:
    """Items of columns of numbers that wait until their time, the first column."""

    columns: tuple[Int64Array, ...]

    def until(self, end: int, *come: Int64Array) -> tuple[Int64Array, ...]:
        """Let more items wait; return those up to an end by their time, each column. The others wait on."""
        columns = tuple(np.concatenate(pair) for pair in zip(self.columns, come, strict=True))
        order = np.argsort(columns[0], kind="stable")
        columns = tuple(column[order] for column in columns)
        place = int(np.searchsorted(columns[0], end, side="right"))
        self.columns = tuple(column[place:] for column in columns)
        return tuple(column[:place] for column in columns)


def _nothing(columns: int) -> _Later:
    return _Later((np.zeros(0, np.int64),) * columns)


@dataclass(slots=True)
class _Piece:
    """The items of all streams between two times (first_ms, last_ms]."""

    settings: NetworkSettings
    number: int
    first_ms: int
    last_ms: int

    def random(self, kind: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, 4 + kind, self.number])

    def times(self, per_s: float, random: np.random.Generator) -> Int64Array:
        """Draw sorted event times at a rate."""
        start = self.settings.start_ms
        done, all_ = (round(per_s * (time - start) / 1000) for time in (self.first_ms, self.last_ms))
        return np.sort(random.integers(self.first_ms + 1, self.last_ms + 1, all_ - done))

    @property
    def end_ms(self) -> int:
        return self.settings.start_ms + self.settings.duration_ms


Block = tuple[Int64Array, Any, int]
"""Times in their order, the text of each item, and how many triples these are."""


def generate_network(folder: str | Path, settings: NetworkSettings | None = None) -> GeneratedNetwork:
    """Write the network into a folder, which is made if need be.

    Raises: SettingsError (sizes that cannot be), OSError (the folder)."""
    settings = settings or NetworkSettings()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    people = People(settings)
    stored, stored_triples = folder / "stored.nt", 0
    with stored.open("wb") as file:
        for texts, count in stored_texts(settings, people):
            file.write(_bytes(texts))
            stored_triples += count
    paths = {name: folder / f"{name}.nt" for name in STREAM_NAMES}
    streams = _Streams(settings, people)
    counts = dict.fromkeys(STREAM_NAMES, 0)
    with ExitStack() as stack:
        files = {name: stack.enter_context(path.open("wb")) for name, path in paths.items()}
        for piece in _pieces(settings):
            for name, blocks in streams.of(piece).items():
                files[name].write(_bytes(_in_order(blocks)))
                counts[name] += sum(count for _, _, count in blocks)
    return GeneratedNetwork(
        str(stored),
        {name: str(path) for name, path in paths.items()},
        stored_triples,
        counts,
        int(np.argmax(streams.posts_by)),
    )


def _pieces(settings: NetworkSettings) -> Iterator[_Piece]:
    per_s = (
        settings.posts_per_s * (1 + settings.likes_per_post)
        + settings.comments_per_s
        + settings.photos_per_s * (1 + settings.likes_per_photo)
        + settings.positions_per_s
    )
    length_ms = max(1, round(1000 * ITEMS_AT_ONCE / per_s)) if per_s else settings.duration_ms
    end_ms = settings.start_ms + settings.duration_ms
    for number, first_ms in enumerate(range(settings.start_ms, end_ms, length_ms)):
        yield _Piece(settings, number, first_ms, min(first_ms + length_ms, end_ms))


def _in_order(blocks: list[Block]) -> Any:
    """Return the texts of all blocks by their times."""
    times = np.concatenate([block[0] for block in blocks])
    texts = pa.concat_arrays([block[1] for block in blocks])
    return texts.take(pa.array(np.argsort(times, kind="stable"))) if len(blocks) > 1 else texts


def _bytes(texts: Any) -> memoryview:
    """Return the texts after each other, without a copy."""
    _, offsets, values = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(values or b"")[bounds[0] : bounds[-1]] if len(bounds) else memoryview(b"")


class _Streams:
    """The streams of a network, piece by piece. posts_by : int64[users], the posts of each user so far."""

    def __init__(self, settings: NetworkSettings, people: People) -> None:
        self._settings, self._people = settings, people
        self.posts_by = np.zeros(settings.users, np.int64)
        self._post_count = self._comment_count = self._album_count = self._photo_count = self._position_count = 0
        self._roots = np.zeros(0, np.int64)
        """The posts that the last comments belong to."""
        self._post_likes, self._photo_likes, self._photos = _nothing(3), _nothing(3), _nothing(3)

    def of(self, piece: _Piece) -> dict[str, list[Block]]:
        """Return the blocks of each stream in the next piece."""
        posts, post_likes = self._posts(piece)
        photos, photo_likes = self._albums(piece)
        blocks = posts, [post_likes], photos, [photo_likes], [self._positions(piece)]
        return dict(zip(STREAM_NAMES, blocks, strict=True))

    def _posts(self, piece: _Piece) -> tuple[list[Block], Block]:
        random = piece.random(0)
        times = piece.times(self._settings.posts_per_s, random)
        users = self._busy_users(len(times), random)
        self.posts_by += np.bincount(users, minlength=self._settings.users)
        numbers = self._post_count + np.arange(len(times))
        post, end = entity("post", numbers), _ends(times)
        origin, agents = self._origin(post, users, times, end, random)
        tag_counts = 1 + random.poisson(_TAGS_MORE, len(times))
        tags = self._tags(np.repeat(users, tag_counts), random)
        title = among(WORDS, np.concatenate([tags, [0]])[np.cumsum(tag_counts) - tag_counts])
        written = text(
            *line(post, "a", term("sib:Post"), end),
            *line(post, "a", term("sioc:Post"), end),
            *line(post, "dcterms:title", text(*quoted(title)), end),
            origin,
            *line(post, "sioc:content", _content(len(times), random), end),
            *line(entity("forum", 2 * users), "sioc:container_of", post, end),
            *line(entity("user", users), "sioc:creator_of", post, end),
            of_each(post, tag_counts, "sib:hashtag", text(*quoted(among(WORDS, tags))), end),
        )
        likes = self._likes(self._post_likes, piece, users, times, numbers, self._settings.likes_per_post, "post")
        comments = self._comments(piece, times)
        self._post_count += len(times)
        return [(times, written, 9 * len(times) + agents + len(tags)), comments], likes

    def _comments(self, piece: _Piece, post_times: Int64Array) -> Block:
        random = piece.random(1)
        times = piece.times(self._settings.comments_per_s, random)
        earlier = self._post_count + np.searchsorted(post_times, times, side="left")
        times, earlier = times[earlier > 0], earlier[earlier > 0]  # before that there is no post yet
        users = self._busy_users(len(times), random)
        numbers = self._comment_count + np.arange(len(times))
        on = numbers - random.geometric(0.05, len(times))
        is_reply = (random.random(len(times)) < _REPLY_SHARE) & (on >= self._comment_count - len(self._roots))
        posts = np.maximum(0, earlier - random.geometric(0.05, len(times)))
        posts = self._rooted(posts, on, is_reply)
        self._comment_count += len(times)
        comment, post = entity("comment", numbers), entity("post", posts)
        end = _ends(times)
        origin, agents = self._origin(comment, users, times, end, random)
        written = text(
            *line(comment, "a", term("sib:Comment"), end),
            *line(comment, "a", term("sioc:Item"), end),
            origin,
            *line(comment, "sioc:reply_of", chosen(is_reply, entity("comment", on), post), end),
            *line(comment, "sioc:content", _content(len(times), random), end),
            *line(post, "sioc:container_of", comment, end),
            *line(entity("user", users), "sioc:creator_of", comment, end),
        )
        return times, written, 9 * len(times) + agents

    def _rooted(self, posts: Int64Array, on: Int64Array, is_reply: np.ndarray[Any, Any]) -> Int64Array:
        """Return the post that each comment belongs to: that of the comment that it replies to, if it does."""
        before = len(self._roots)
        roots = np.concatenate([self._roots, posts])
        place = on - self._comment_count + before
        open_ = np.flatnonzero(is_reply)
        while len(open_):
            is_settled = ~np.isin(place[open_], open_ + before)
            settled = open_[is_settled]
            roots[settled + before] = roots[place[settled]]
            open_ = open_[~is_settled]
        self._roots = roots[-1000:]
        return roots[before:]

    def _albums(self, piece: _Piece) -> tuple[list[Block], Block]:
        random = piece.random(2)
        times = piece.times(self._settings.photos_per_s / ((1 + _ALBUM_MAX) / 2), random)
        users = self._busy_users(len(times), random)
        sizes = random.integers(1, _ALBUM_MAX + 1, len(times))
        gap_ms = min(1000, max(1, self._settings.duration_ms // 1000))
        times = np.sort(np.maximum(piece.first_ms + 1, np.minimum(times, piece.end_ms - gap_ms * sizes)))
        albums = self._album_count + np.arange(len(times))
        self._album_count += len(times)
        album, end = entity("album", albums), _ends(times)
        title = text('"Album ', among(WORDS, users), '"')
        written = text(
            *line(album, "a", term("sioct:ImageGallery"), end),
            *line(album, "dcterms:title", title, end),
            *line(album, "dc:created", moments(times), end),
            *line(entity("user", users), "sioc:creator_of", album, end),
        )
        of = np.repeat(np.arange(len(times)), sizes)
        within = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        taken = np.minimum(times[of] + gap_ms * (1 + within), piece.end_ms)
        photos, likes = self._photos_of(piece, *self._photos.until(piece.last_ms, taken, users[of], albums[of]))
        return [(times, written, 4 * len(times)), photos], likes

    def _photos_of(
        self, piece: _Piece, times: Int64Array, users: Int64Array, albums: Int64Array
    ) -> tuple[Block, Block]:
        random, people = piece.random(3), self._people
        numbers = self._photo_count + np.arange(len(times))
        self._photo_count += len(times)
        photo, end = entity("photo", numbers), _ends(times)
        origin, agents = self._origin(photo, users, times, end, random)
        starts, tagged = people.some_friends(users, _uniform(self._settings.tags_per_photo, len(times), random), random)
        country = people.countries(users)
        written = text(
            *line(photo, "a", term("sib:Photo"), end),
            *line(photo, "a", term("sioc:Item"), end),
            *line(photo, "dbpo:location", text(*quoted(country)), end),
            *line(photo, "dbpprop:latd", text(*quoted(decimal(people.latitude[users]), "double")), end),
            *line(photo, "dbpprop:longd", text(*quoted(decimal(people.longitude[users]), "double")), end),
            origin,
            *line(entity("album", albums), "sioc:container_of", photo, end),
            of_each(photo, np.diff(starts), "sib:usertag", entity("user", tagged), end),
        )
        likes = self._likes(self._photo_likes, piece, users, times, numbers, self._settings.likes_per_photo, "photo")
        return (times, written, 9 * len(times) + agents + len(tagged)), likes

    def _likes(
        self,
        later: _Later,
        piece: _Piece,
        users: Int64Array,
        times: Int64Array,
        numbers: Int64Array,
        mean: float,
        kind: str,
    ) -> Block:
        """Return the likes in a piece. The items in it are liked a moment later, by friends of who made them."""
        random = piece.random(4 if kind == "post" else 5)
        starts, likers = self._people.some_friends(users, _uniform(mean, len(times), random), random)
        delays = 1 + random.exponential(self._settings.like_delay_ms, len(likers)).astype(np.int64)
        of = np.repeat(np.arange(len(times)), np.diff(starts))
        liked_ms = np.minimum(times[of] + delays, piece.end_ms)
        liked_ms, likers, liked = later.until(piece.last_ms, liked_ms, likers, numbers[of])
        written = text(*line(entity("user", likers), "sib:like", entity(kind, liked), _ends(liked_ms)))
        return liked_ms, written, len(liked_ms)

    def _positions(self, piece: _Piece) -> Block:
        random, people = piece.random(6), self._people
        times = piece.times(self._settings.positions_per_s, random)
        users = random.integers(0, self._settings.users, len(times))
        users[random.random(len(times)) < _TRACKED_SHARE] //= 10
        position = entity("position", self._position_count + np.arange(len(times)))
        self._position_count += len(times)
        north, east = random.normal(0, 0.01, (2, len(times)))
        latitude, longitude = np.round(people.latitude[users] + north, 6), np.round(people.longitude[users] + east, 6)
        country, end = people.countries(users), _ends(times)
        written = text(
            *line(entity("user", users), "sib:trackedAt", position, end),
            *line(position, "dbpprop:latd", text(*quoted(decimal(latitude), "double")), end),
            *line(position, "dbpprop:longd", text(*quoted(decimal(longitude), "double")), end),
            *line(position, "sib:trackedTime", moments(times), end),
            *line(position, "sib:trackedLocation", text(*quoted(country)), end),
        )
        return times, written, 5 * len(times)

    def _origin(
        self, item: Any, users: Int64Array, times: Int64Array, end: Any, random: np.random.Generator
    ) -> tuple[Any, int]:
        """Return what says how a post, a comment or a photo was made, and how many of them name an agent."""
        has_agent = random.random(len(times)) < _AGENT_SHARE
        agent, browser = (text(*quoted(among(pa.array(table), users))) for table in (AGENTS, BROWSERS))
        written = text(
            *line(item, "dc:created", moments(times), end),
            only_where(has_agent, line(item, "sib:agent", agent, end)),
            *line(item, "sib:browser", browser, end),
            *line(item, "sioc:ip_address", self._people.addresses(users), end),
        )
        return written, int(has_agent.sum())

    def _busy_users(self, count: int, random: np.random.Generator) -> Int64Array:
        """Draw users so that some are far more active than others: u0 the most."""
        users = self._settings.users
        return random.exponential(users / 4, count).astype(np.int64) % users

    def _tags(self, users: Int64Array, random: np.random.Generator) -> Int64Array:
        """Draw tags: half of them popular with all, the others favourites of a user, so two posts of one often share
        one."""
        popular = random.exponential(12, len(users)).astype(np.int64) % 256
        favourite = 256 + (users * 13 + random.integers(0, 12, len(users))) % 3840
        return np.where(random.random(len(users)) < 0.5, popular, favourite)


def _uniform(mean: float, count: int, random: np.random.Generator) -> Int64Array:
    """Draw numbers between 0 and twice a mean."""
    return np.floor(random.random(count) * (2 * mean + 1)).astype(np.int64)


def _content(count: int, random: np.random.Generator) -> Any:
    return text(*quoted(SENTENCES.take(pa.array(random.integers(0, len(SENTENCES), count)))))


def _ends(times: Int64Array) -> Any:
    """Return the end of each line of an item: its time."""
    return text(" . ", decimal(times), "\n")

"""A seeded generator of a small social network with streams, in the shape of LSBench: our own data, no files needed.

Written are a stored file (profiles, friendships, groups) and one timestamped file a stream (`s p o . t_ms`): posts and
comments, likes of posts, photo albums, likes of photos, positions. Likes follow what they like by a moment, likers and
tagged people are friends of the author or owner, and friends live near each other on a ring, so friends of friends are
often friends: L1 to L6 have answers in every window. The same settings give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from wukongs.adapters.lsbench_people import NetworkSettings, People, groups, profiles
from wukongs.adapters.lsbench_words import (
    AGENTS,
    BROWSERS,
    COUNTRIES,
    RDF_TYPE,
    SIB,
    T,
    iri,
    moment,
    sentence_of,
    typed,
    word_of,
)

__all__ = ["STREAM_NAMES", "STREAM_NAMESPACE", "GeneratedNetwork", "NetworkSettings", "generate_network"]

STREAM_NAMES = ("posts", "post_likes", "photos", "photo_likes", "gps")
STREAM_NAMESPACE = SIB + "stream/"


@dataclass(frozen=True, slots=True)
class GeneratedNetwork:
    """The files of a network, their triples, and the user with the most posts (the constant of L1 to L3)."""

    stored: str
    streams: dict[str, str]
    stored_triples: int
    stream_triples: dict[str, int]
    busiest_user: int


@dataclass(slots=True)
class _Stream:
    """The items of one stream: (time, its triples as `s p o` lines)."""

    items: list[tuple[int, list[str]]] = field(default_factory=list)

    def add(self, time_ms: int, lines: list[str]) -> None:
        self.items.append((time_ms, lines))

    def write(self, path: Path) -> int:
        self.items.sort(key=lambda item: item[0])
        lines = [f"{line} . {time}\n" for time, block in self.items for line in block]
        path.write_text("".join(lines), "utf-8")
        return len(lines)


def generate_network(folder: str | Path, settings: NetworkSettings | None = None) -> GeneratedNetwork:
    """Write the network into a folder, which is made if need be.

    Raises: SettingsError (sizes that cannot be), OSError (the folder)."""
    settings = settings or NetworkSettings()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(settings.seed)
    people = People(settings, random)
    stored = folder / "stored.nt"
    stored_lines = [*profiles(settings, people, random), *groups(settings, people, random)]
    stored.write_text("".join(f"{line} .\n" for line in stored_lines), "utf-8")
    streams = {name: _Stream() for name in STREAM_NAMES}
    posts_by = _make_posts(settings, people, random, streams)
    _make_photos(settings, people, random, streams)
    _make_positions(settings, people, random, streams["gps"])
    paths = {name: folder / f"{name}.nt" for name in STREAM_NAMES}
    counts = {name: stream.write(paths[name]) for name, stream in streams.items()}
    return GeneratedNetwork(
        str(stored),
        {name: str(path) for name, path in paths.items()},
        len(stored_lines),
        counts,
        int(np.argmax(posts_by)),
    )


def _times(settings: NetworkSettings, per_s: float, random: np.random.Generator) -> list[int]:
    """Sorted event times in (start_ms, start_ms + duration_ms]."""
    count = round(per_s * settings.duration_ms / 1000)
    times: list[int] = np.sort(settings.start_ms + 1 + random.integers(0, settings.duration_ms, count)).tolist()
    return times


def _busy_users(settings: NetworkSettings, count: int, random: np.random.Generator) -> list[int]:
    """Draw users so that some are far more active than others: u0 the most."""
    users: list[int] = (random.exponential(settings.users / 4, count).astype(np.int64) % settings.users).tolist()
    return users


def _add_likes(
    settings: NetworkSettings, likers: list[int], liked: str, time: int, random: np.random.Generator, stream: _Stream
) -> None:
    end = settings.start_ms + settings.duration_ms
    delays = (1 + random.exponential(settings.like_delay_ms, len(likers))).astype(np.int64).tolist()
    for liker, delay in zip(likers, delays, strict=True):
        stream.add(min(time + delay, end), [f"{iri('user', liker)} {T['sib:like']} {liked}"])


def _origin(item: str, people: People, user: int, time: int) -> list[str]:
    """Return the triples that say how a post, a comment or a photo was made."""
    lines = [f"{item} {T['dc:created']} {moment(time)}"]
    if (user + time) % 3:
        lines.append(f'{item} {T["sib:agent"]} "{AGENTS[user % 4]}"')
    lines.append(f'{item} {T["sib:browser"]} "{BROWSERS[user % 4]}"')
    lines.append(f"{item} {T['sioc:ip_address']} {people.address(user)}")
    return lines


def _make_posts(
    settings: NetworkSettings, people: People, random: np.random.Generator, streams: dict[str, _Stream]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Make posts, their likes, and comments on earlier posts; return the number of posts per user."""
    times = _times(settings, settings.posts_per_s, random)
    users = _busy_users(settings, len(times), random)
    likes = random.poisson(settings.likes_per_post, len(times)).tolist()
    tags = random.integers(0, 4, len(times)).tolist()
    for number, (time, user) in enumerate(zip(times, users, strict=True)):
        post = iri("post", number)
        lines = [
            f"{post} {RDF_TYPE} {T['sib:Post']}",
            f"{post} {RDF_TYPE} {T['sioc:Post']}",
            f'{post} {T["dcterms:title"]} "{sentence_of(number, 3)}"',
            *_origin(post, people, user, time),
            f'{post} {T["sioc:content"]} "{sentence_of(number * 3 + 1, 9)}"',
            f"{iri('forum', 2 * user)} {T['sioc:container_of']} {post}",
            f"{iri('user', user)} {T['sioc:creator_of']} {post}",
        ]
        # A user has few favourite tags, so that two posts of one user often share one.
        lines += [
            f'{post} {T["sib:hashtag"]} "{word_of(user % 50 + tag * (1 + number % 2))}"' for tag in range(tags[number])
        ]
        streams["posts"].add(time, lines)
        _add_likes(
            settings, people.some_friends(user, likes[number], random), post, time, random, streams["post_likes"]
        )
    if times:
        _make_comments(settings, people, random, streams["posts"], times)
    return np.bincount(np.array(users, np.int64), minlength=settings.users)


def _make_comments(
    settings: NetworkSettings, people: People, random: np.random.Generator, stream: _Stream, post_times: list[int]
) -> None:
    times = _times(settings, settings.comments_per_s, random)
    users = _busy_users(settings, len(times), random)
    earlier = np.searchsorted(np.array(post_times), times, side="left").tolist()
    back = random.geometric(0.05, len(times)).tolist()
    for number, (time, user) in enumerate(zip(times, users, strict=True)):
        if not earlier[number]:
            continue  # there is no post yet
        comment, post = iri("comment", number), iri("post", max(0, earlier[number] - back[number]))
        lines = [
            f"{comment} {RDF_TYPE} {T['sib:Comment']}",
            f"{comment} {RDF_TYPE} {T['sioc:Item']}",
            *_origin(comment, people, user, time),
            f"{comment} {T['sioc:reply_of']} {post}",
            f'{comment} {T["sioc:content"]} "{sentence_of(number * 7 + 2, 6)}"',
            f"{post} {T['sioc:container_of']} {comment}",
            f"{iri('user', user)} {T['sioc:creator_of']} {comment}",
        ]
        stream.add(time, lines)


def _make_photos(
    settings: NetworkSettings, people: People, random: np.random.Generator, streams: dict[str, _Stream]
) -> None:
    times = _times(settings, settings.photos_per_s, random)
    users = _busy_users(settings, len(times), random)
    tags = random.poisson(settings.tags_per_photo, len(times)).tolist()
    likes = random.poisson(settings.likes_per_photo, len(times)).tolist()
    albums: set[int] = set()
    for number, (time, user) in enumerate(zip(times, users, strict=True)):
        photo, album, lines = iri("photo", number), iri("album", user), []
        if user not in albums:
            albums.add(user)
            lines += [
                f"{album} {RDF_TYPE} {T['sioct:ImageGallery']}",
                f'{album} {T["dcterms:title"]} "Album {word_of(user)}"',
                f"{album} {T['dc:created']} {moment(time)}",
                f"{iri('user', user)} {T['sioc:creator_of']} {album}",
            ]
        lines += [
            f"{photo} {RDF_TYPE} {T['sib:Photo']}",
            f"{photo} {RDF_TYPE} {T['sioc:Item']}",
            f'{photo} {T["dbpo:location"]} "{COUNTRIES[people.country[user]]}"',
            f"{photo} {T['dbpprop:latd']} {typed(people.latitude[user], 'double')}",
            f"{photo} {T['dbpprop:longd']} {typed(people.longitude[user], 'double')}",
            *_origin(photo, people, user, time),
            f"{album} {T['sioc:container_of']} {photo}",
        ]
        tagged = people.some_friends(user, tags[number], random)
        lines += [f"{photo} {T['sib:usertag']} {iri('user', friend)}" for friend in tagged]
        streams["photos"].add(time, lines)
        likers = people.some_friends(user, likes[number], random)
        _add_likes(settings, likers, photo, time, random, streams["photo_likes"])


def _make_positions(settings: NetworkSettings, people: People, random: np.random.Generator, stream: _Stream) -> None:
    times = _times(settings, settings.positions_per_s, random)
    users = random.integers(0, settings.users, len(times)).tolist()
    moves = np.round(random.normal(0, 0.01, (len(times), 2)), 6).tolist()
    for number, (time, user, (north, east)) in enumerate(zip(times, users, moves, strict=True)):
        position = iri("position", number)
        lines = [
            f"{iri('user', user)} {T['sib:trackedAt']} {position}",
            f"{position} {T['dbpprop:latd']} {typed(round(float(people.latitude[user]) + north, 6), 'double')}",
            f"{position} {T['dbpprop:longd']} {typed(round(float(people.longitude[user]) + east, 6), 'double')}",
            f"{position} {T['sib:trackedTime']} {moment(time)}",
            f'{position} {T["sib:trackedLocation"]} "{COUNTRIES[people.country[user]]}"',
        ]
        stream.add(time, lines)

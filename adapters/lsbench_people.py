"""The people of the generated network: who they are, where they live, whom they know, and their groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wukongs.adapters.lsbench_words import (
    BROWSERS,
    COUNTRIES,
    RDF_TYPE,
    T,
    iri,
    moment,
    name_of,
    sentence_of,
    term,
    typed,
    word_of,
)
from wukongs.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Sizes and rates. Rates are items (not triples) per second of event time, over all users.

    A post makes about 10 triples, a comment 8, a photo 13, a like 1, a position 5; the defaults make about 10,000
    triples a second. start_ms: event time begins there (exclusive)."""

    users: int = 1000
    duration_ms: int = 30_000
    friends: int = 40
    seed: int = 1
    start_ms: int = 0
    posts_per_s: float = 120.0
    comments_per_s: float = 80.0
    likes_per_post: float = 4.4
    photos_per_s: float = 240.0
    tags_per_photo: float = 3.0
    likes_per_photo: float = 4.5
    positions_per_s: float = 640.0
    like_delay_ms: float = 150.0

    def __post_init__(self) -> None:
        if self.users < 10 or self.duration_ms < 1 or not 1 <= self.friends < self.users // 2:
            raise SettingsError(
                f"users = {self.users}, duration_ms = {self.duration_ms}, friends = {self.friends}: expected at least "
                "10 users, 1 ms, and from 1 friend to half the users"
            )


class People:
    """The users of a network: their countries and their friends."""

    def __init__(self, settings: NetworkSettings, random: np.random.Generator) -> None:
        count = settings.users
        self.country = random.choice(len(COUNTRIES), count, p=_weights(len(COUNTRIES)))
        self.latitude = np.round(random.uniform(-55, 65, count), 6)
        self.longitude = np.round(random.uniform(-180, 180, count), 6)
        self.ip = random.integers(1, 255, (count, 4))
        self.pairs = _friendships(settings, random)
        self.friends: list[list[int]] = [[] for _ in range(count)]
        for one, other in self.pairs:
            self.friends[one].append(other)
            self.friends[other].append(one)

    def address(self, user: int) -> str:
        return '"' + ".".join(map(str, self.ip[user].tolist())) + '"'

    def some_friends(self, user: int, count: int, random: np.random.Generator) -> list[int]:
        friends = self.friends[user]
        if not friends or not count:
            return []
        return [friends[place] for place in random.permutation(len(friends))[:count].tolist()]


def _weights(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = 1.0 / np.arange(1, count + 1)
    return np.asarray(weights / weights.sum(), np.float64)


def _friendships(settings: NetworkSettings, random: np.random.Generator) -> list[tuple[int, int]]:
    """Pairs of friends, the smaller number first: mostly near each other on a ring, which makes triangles."""
    count, reach = settings.users, max(2.0, settings.friends * 0.6)
    one = np.repeat(np.arange(count), (settings.friends + 1) // 2)
    distance = 1 + np.abs(random.normal(0, reach, len(one))).astype(np.int64)
    other = (one + distance) % count
    pairs = np.unique(np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1), axis=0)
    return [(int(a), int(b)) for a, b in pairs.tolist() if a != b]


def profiles(settings: NetworkSettings, people: People, random: np.random.Generator) -> Iterable[str]:
    present = random.random((settings.users, 6)) < 0.75
    years = random.integers(1950, 1996, settings.users).tolist()
    days = random.integers(0, 365, settings.users).tolist()
    for number in range(settings.users):
        person, user = iri("person", number), iri("user", number)
        country = COUNTRIES[people.country[number]]
        yield f"{person} {RDF_TYPE} {T['foaf:Person']}"
        yield f'{person} {T["foaf:firstName"]} "{name_of(number)}"'
        yield f'{person} {T["foaf:lastName"]} "{name_of(number // 7 + 1000)}"'
        yield f"{person} {T['foaf:based_near']} {term('dbp:' + country)}"
        yield f'{person} {T["foaf:based_near"]} "{country}"'
        yield f"{person} {T['dbpprop:latd']} {typed(people.latitude[number], 'double')}"
        yield f"{person} {T['dbpprop:longd']} {typed(people.longitude[number], 'double')}"
        yield f'{person} {T["sib:browser"]} "{BROWSERS[number % 4]}"'
        yield f"{person} {T['sioc:ip_address']} {people.address(number)}"
        birthday = np.datetime64(f"{years[number]}-01-01") + np.timedelta64(days[number], "D")
        optional = (
            f'{T["foaf:organization"]} "Institute of {word_of(number)}"',
            f"{T['sib:class_year']} {typed(years[number] + 22, 'gYear')}",
            f'{T["sib:workAt"]} "{word_of(number + 50).title()} Works"',
            f'{T["foaf:gender"]} "{("female", "male")[number % 2]}"',
            f"{T['foaf:birthday']} {typed(birthday, 'date')}",
            f'{T["sioc:email"]} "{name_of(number).lower()}{number}@mail.example"',
        )
        for line, there in zip(optional, present[number].tolist(), strict=True):
            if there:
                yield f"{person} {line}"
        yield f"{user} {RDF_TYPE} {T['sib:User']}"
        yield f"{user} {RDF_TYPE} {T['sioc:user']}"
        yield f"{user} {T['sioc:account_of']} {person}"
        for forum in (iri("forum", 2 * number), iri("forum", 2 * number + 1)):
            yield f"{user} {T['sioc:moderator_of']} {forum}"
            yield f"{user} {T['sioc:subscriber_of']} {forum}"
        yield f"{user} {T['dc:date']} {moment(-86_400_000 * (days[number] + 1))}"
        for interest in range(number % 4):
            yield f'{user} {T["sib:interest"]} "{sentence_of(number * 5 + interest, 2)}"'
        for friend in people.friends[number]:
            yield f"{user} {T['foaf:knows']} {iri('user', friend)}"
    for number, (one, other) in enumerate(people.pairs):
        friendship = iri("friendship", number)
        yield f"{friendship} {T['sib:memb']} {iri('user', one)}"
        yield f"{friendship} {T['sib:memb']} {iri('user', other)}"
        yield f"{friendship} {T['sib:initiator']} {iri('user', one)}"
        yield f"{friendship} {T['sib:requested']} {moment(-7_200_000 - number)}"
        yield f"{friendship} {T['sib:approved']} {moment(-3_600_000 - number)}"


def groups(settings: NetworkSettings, people: People, random: np.random.Generator) -> Iterable[str]:
    membership = 0
    for number in range(settings.users // 25):
        group, creator = iri("group", number), int(random.integers(settings.users))
        forums = [iri("forum", 2 * settings.users + 2 * number + side) for side in (0, 1)]
        yield f"{group} {RDF_TYPE} {T['sib:Group']}"
        yield f"{group} {RDF_TYPE} {T['sioc:Usergroup']}"
        yield f'{group} {T["sioc:name"]} "Friends of {word_of(number)}"'
        yield f"{group} {T['dc:created']} {moment(-86_400_000)}"
        yield f'{group} {T["sib:tag"]} "{word_of(number)}"'
        yield f'{group} {T["sib:tag"]} "{word_of(number + 1)}"'
        yield f"{iri('user', creator)} {T['sioc:creator_of']} {group}"
        for forum in forums:
            yield f"{group} {T['sioc:subscriber_of']} {forum}"
            yield f"{forum} {RDF_TYPE} {T['sioc:Forum']}"
            yield f"{iri('user', creator)} {T['sioc:moderator_of']} {forum}"
        for member in people.friends[creator]:
            node = iri("membership", membership)
            membership += 1
            yield f"{group} {T['sioc:has_member']} {iri('user', member)}"
            yield f"{node} {T['sib:member_of_membership']} {iri('user', member)}"
            yield f"{node} {T['sib:group_of_membership']} {group}"
            yield f"{node} {T['sib:added']} {moment(-43_200_000)}"

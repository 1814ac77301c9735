"""The people of the generated network, where they live, whom they know, and their groups.

The shares follow the sample of LSBench's own generator (1,000 users, at most 120 friends): numbers of friends, their
distance in the order of users, members of groups, and each optional triple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from wukongs.adapters.lsbench_words import (
    BROWSERS,
    COUNTRIES,
    NAMES,
    SENTENCES,
    STATUSES,
    WORDS,
    among,
    decimal,
    entity,
    line,
    moments,
    of_each,
    only_where,
    quoted,
    term,
    text,
    together,
)
from wukongs.errors import SettingsError
from wukongs.store.dtypes import Int64Array

USERS_AT_ONCE, GROUPS_AT_ONCE = 10_000, 2000
GROUPS_PER_USER = 0.039
_REACH_PER_FRIEND, _REACH_SHARE = 4.2, 0.2
"""How far friends are from each other: 4.2 users for each friend that people have, at most a fifth of all."""
_OPTIONAL_SHARES = 0.81, 0.65, 0.8, 0.79, 0.81, 0.8
"""How many persons tell their organization, class year, work, gender, birthday, and address."""
_PARTNERS = "", "sib:Engaged_with", "sib:In_relationship_with", "sib:Married_with"
_STATUS_SHARES = 0.514, 0.4, 0.034, 0.033, 0.019
"""How many users tell no status, and each of STATUSES."""
_DECLINED_SHARE = 0.01
"""How many friendships were declined at first; as many requests more came to nothing."""
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Sizes and rates. Rates are items (not triples) per second of event time, over all users.

    A post makes about 12 triples, a comment 9, a photo 14, a like 1, a position 5; the defaults make about 11,000
    triples a second. start_ms: event time begins there (exclusive)."""

    users: int = 1000
    duration_ms: int = 30_000
    friends: int = 40
    seed: int = 1
    start_ms: int = 0
    posts_per_s: float = 120.0
    comments_per_s: float = 100.0
    likes_per_post: float = 4.5
    photos_per_s: float = 240.0
    tags_per_photo: float = 4.5
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
    """The users of a network: where they live, and their friends.

    latitude, longitude : float64[users]
    pairs   : int64[2, n], each pair of friends once, the smaller number first
    starts, friends : int64[users + 1], int64[2n]; the friends of user u are friends[starts[u]:starts[u + 1]]
    """

    def __init__(self, settings: NetworkSettings) -> None:
        random = np.random.default_rng([settings.seed, 0])
        count = settings.users
        weights = 1.0 / np.arange(1, len(COUNTRIES) + 1)
        self._country = random.choice(len(COUNTRIES), count, p=weights / weights.sum()).astype(np.int64)
        self.latitude = np.round(random.uniform(-55, 65, count), 6)
        self.longitude = np.round(random.uniform(-180, 180, count), 6)
        self._ip = random.integers(1, 255, (4, count))
        self.pairs = _friendships(settings, random)
        users = np.concatenate([self.pairs[0], self.pairs[1]])
        order = np.argsort(users, kind="stable")
        self.friends: Int64Array = np.concatenate([self.pairs[1], self.pairs[0]])[order]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=count))]).astype(np.int64)

    def countries(self, users: Int64Array) -> Any:
        return among(pa.array(COUNTRIES), self._country[users])

    def addresses(self, users: Int64Array) -> Any:
        first, *rest = (decimal(part[users]) for part in self._ip)
        return text('"', first, *(part for one in rest for part in (".", one)), '"')

    def some_friends(
        self, users: Int64Array, wanted: Int64Array, random: np.random.Generator
    ) -> tuple[Int64Array, Int64Array]:
        """Draw different friends of each of some users, as many as are wanted and there. Return where those of each
        begin, int64[n + 1], and the friends."""
        known = self.starts[users + 1] - self.starts[users]
        counts = np.minimum(wanted, known)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        of = np.repeat(np.arange(len(users)), counts)
        spread = np.sort(of + random.random(len(of))) - of  # rising, among those of one user
        place = (spread * (known - counts + 1)[of]).astype(np.int64) + np.arange(len(of)) - starts[of]
        return starts, self.friends[self.starts[users][of] + place]


def _friendships(settings: NetworkSettings, random: np.random.Generator) -> Int64Array:
    """Draw the pairs of friends, the smaller number first: mostly near each other on a ring, which makes triangles."""
    count = settings.users
    mean = settings.friends / 2
    asked = np.clip(np.round(random.normal(mean, 0.62 * mean, count)), 1, 2.5 * mean).astype(np.int64)
    one = np.repeat(np.arange(count), asked)
    reach = max(2.0, min(_REACH_PER_FRIEND * settings.friends, _REACH_SHARE * count))
    other = (one + 1 + random.exponential(reach, len(one)).astype(np.int64)) % count
    keys = np.unique(np.minimum(one, other) * count + np.maximum(one, other))
    pairs = np.stack(np.divmod(keys, count))
    return np.ascontiguousarray(pairs[:, pairs[0] != pairs[1]])


def stored_texts(settings: NetworkSettings, people: People) -> Iterator[tuple[Any, int]]:
    """Yield the stored triples: a column of texts, and how many triples these are."""
    for first in range(0, settings.users, USERS_AT_ONCE):
        users = np.arange(first, min(first + USERS_AT_ONCE, settings.users))
        yield from _profiles(settings, people, users)
        yield _friendship_texts(settings, people, users)
    creators = np.random.default_rng([settings.seed, 3]).integers(
        0, settings.users, round(settings.users * GROUPS_PER_USER)
    )
    sizes = people.starts[creators + 1] - people.starts[creators]
    memberships = np.cumsum(sizes) - sizes
    for first in range(0, len(creators), GROUPS_AT_ONCE):
        part = slice(first, first + GROUPS_AT_ONCE)
        yield _groups(settings, people, first, creators[part], int(memberships[first]))


def _profiles(settings: NetworkSettings, people: People, users: Int64Array) -> Iterator[tuple[Any, int]]:
    random = np.random.default_rng([settings.seed, 1, int(users[0])])
    count = len(users)
    person, user = entity("person", users), entity("user", users)
    country = people.countries(users)
    years = random.integers(1950, 1996, count)
    birthdays = ((years - 1970) * 365.2425 + random.integers(0, 365, count)).astype("datetime64[D]")
    name = among(NAMES, users)
    has = [random.random(count) < share for share in _OPTIONAL_SHARES]
    organization, class_year, works, gender, birthday, email = has
    optional = (
        (organization, line(person, "foaf:organization", text('"Institute of ', among(WORDS, users), '"'))),
        (class_year, line(person, "sib:class_year", text(*quoted(decimal(years + 22), "gYear")))),
        (works, line(person, "sib:workAt", text('"', among(WORDS, users + 50), ' Works"'))),
        (works, line(person, "sib:workFrom", text(*quoted(decimal(years + 24), "gYear")))),
        (gender, line(person, "foaf:gender", among(pa.array(['"female"', '"male"']), users))),
        (birthday, line(person, "foaf:birthday", text(*quoted(decimal(birthdays), "date")))),
        (email, line(person, "sioc:email", text('"', name, decimal(users), '@mail.example"'))),
    )
    persons = text(
        *line(person, "a", term("foaf:Person")),
        *line(person, "foaf:firstName", text(*quoted(name))),
        *line(person, "foaf:lastName", text(*quoted(among(NAMES, users // 7 + 500)))),
        *line(person, "foaf:based_near", text(term("dbp:")[:-1], country, ">")),
        *line(person, "foaf:based_near", text(*quoted(country))),
        *line(person, "dbpprop:latd", text(*quoted(decimal(people.latitude[users]), "double"))),
        *line(person, "dbpprop:longd", text(*quoted(decimal(people.longitude[users]), "double"))),
        *(only_where(there, parts) for there, parts in optional),
        *line(person, "sib:browser", text(*quoted(among(pa.array(BROWSERS), users)))),
        *line(person, "sioc:ip_address", people.addresses(users)),
    )
    yield persons, 9 * count + sum(int(there.sum()) for there, _ in optional)

    forums = entity("forum", 2 * users), entity("forum", 2 * users + 1)
    interest_counts = 1 + np.minimum(random.poisson(random.uniform(0.6, 4.5, count)), 8)
    interests = random.integers(0, len(SENTENCES), int(interest_counts.sum()))
    friend_starts = people.starts[users[0] : users[-1] + 2] - people.starts[users[0]]
    friends = people.friends[people.starts[users[0]] : people.starts[users[-1] + 1]]
    status, partner = _partners(people, users, random)
    has_partner = partner >= 0
    accounts = text(
        *line(user, "a", term("sib:User")),
        *line(user, "a", term("sioc:user")),
        *line(user, "sioc:account_of", person),
        *(part for forum in forums for part in line(user, "sioc:moderator_of", forum)),
        *(part for forum in forums for part in line(user, "sioc:subscriber_of", forum)),
        only_where(status >= 0, line(user, "sib:status", text(*quoted(among(pa.array(STATUSES), status))))),
        *(
            only_where(has_partner & (status == kind), line(user, predicate, entity("user", partner)))
            for kind, predicate in enumerate(_PARTNERS)
            if predicate
        ),
        *line(user, "dc:date", moments(-_DAY_MS * random.integers(1, 366, count))),
        of_each(user, interest_counts, "sib:interest", text(*quoted(SENTENCES.take(pa.array(interests))))),
        of_each(user, np.diff(friend_starts), "foaf:knows", entity("user", friends)),
    )
    optional_count = int((status >= 0).sum() + has_partner.sum())
    yield accounts, 8 * count + optional_count + len(interests) + len(friends)


def _partners(people: People, users: Int64Array, random: np.random.Generator) -> tuple[Int64Array, Int64Array]:
    """Draw the status of each user (-1: none is told), and with whom, who is a friend (-1: with nobody)."""
    status = np.digitize(random.random(len(users)), np.cumsum(_STATUS_SHARES)) - 1
    starts, friends = people.some_friends(users, (status > 0).astype(np.int64), random)
    partner = np.full(len(users), -1, np.int64)
    found = np.diff(starts) > 0
    partner[found] = friends
    return status, partner


def _friendship_texts(settings: NetworkSettings, people: People, users: Int64Array) -> tuple[Any, int]:
    """Return the friendships whose smaller number is among some users, and the requests that came to nothing."""
    random = np.random.default_rng([settings.seed, 2, int(users[0])])
    pair_count = people.pairs.shape[1]
    first, last = np.searchsorted(people.pairs[0], [users[0], users[-1] + 1]).tolist()
    refused = np.arange(int(first * _DECLINED_SHARE), int(last * _DECLINED_SHARE))
    strangers = random.integers(0, settings.users, (2, len(refused)))
    one, other = np.concatenate([people.pairs[:, first:last], strangers], axis=1)
    count, is_refused = len(one), np.arange(len(one)) >= last - first
    is_declined = is_refused | (random.random(count) < _DECLINED_SHARE)
    friendship = entity("friendship", np.concatenate([np.arange(first, last), pair_count + refused]))
    asked = random.integers(2 * _HOUR_MS, 300 * _DAY_MS, count)
    texts = text(
        *line(friendship, "sib:memb", entity("user", one)),
        *line(friendship, "sib:memb", entity("user", other)),
        *line(friendship, "sib:initiator", entity("user", np.where(random.random(count) < 0.5, one, other))),
        *line(friendship, "sib:requested", moments(-asked)),
        only_where(is_declined, line(friendship, "sib:declined", moments(_HOUR_MS - asked))),
        only_where(is_declined & ~is_refused, line(friendship, "sib:reapproved", moments(_HOUR_MS - asked // 2))),
        only_where(~is_declined, line(friendship, "sib:approved", moments(_HOUR_MS - asked))),
    )
    return texts, 5 * count + int((is_declined & ~is_refused).sum())


def _groups(
    settings: NetworkSettings, people: People, first: int, creators: Int64Array, first_membership: int
) -> tuple[Any, int]:
    """Return groups whose members are the friends of their creators."""
    random = np.random.default_rng([settings.seed, 3, first])
    count = len(creators)
    groups = first + np.arange(count)
    group, creator = entity("group", groups), entity("user", creators)
    forums = tuple(entity("forum", 2 * settings.users + 2 * groups + side) for side in (0, 1))
    created = moments(-_DAY_MS * random.integers(30, 366, count))
    sizes = people.starts[creators + 1] - people.starts[creators]
    _, members = people.some_friends(creators, sizes, random)
    of, member = pa.array(np.repeat(np.arange(count), sizes)), entity("user", members)
    membership = entity("membership", first_membership + np.arange(len(of)))
    memberships = text(
        *line(group.take(of), "sioc:has_member", member),
        *line(membership, "sib:member_of_membership", member),
        *line(membership, "sib:group_of_membership", group.take(of)),
        *line(membership, "sib:added", moments(-_HOUR_MS * random.integers(1, 700, len(of)))),
    )
    texts = text(
        *line(group, "a", term("sib:Group")),
        *line(group, "a", term("sioc:Usergroup")),
        *line(group, "sioc:name", text('"Friends of ', among(WORDS, groups), '"')),
        *(part for forum in forums for part in line(group, "sioc:subscriber_of", forum)),
        *line(group, "dc:created", created),
        *line(group, "sib:tag", text(*quoted(among(WORDS, groups)))),
        *line(group, "sib:tag", text(*quoted(among(WORDS, groups + 1)))),
        *line(creator, "sioc:creator_of", group),
        *(part for forum in forums for part in line(creator, "sioc:moderator_of", forum)),
        *(part for forum in forums for part in line(forum, "a", term("sioc:Forum"))),
        *(part for forum in forums for part in line(forum, "dc:created", created)),
        together(sizes, memberships),
    )
    return texts, 15 * count + 4 * len(of)

# mypy: disallow-untyped-defs=false
"""A social network in the shape of LSBench, of any size, by rules: each user's text, and what queries must find in it.

Nothing is kept: whether two users are friends, what somebody posted and who liked it are functions of their numbers, so
that any range of users can be written apart, and answers are counted without reading what was written. User u may be a
friend of u + FRIEND_OFFSETS[j] (modulo the users); likes, tags and memberships go to friends in that direction.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit, njit_inline, njit_uncounted

OFFSETS_MAX = 32
POSTS_MAX, COMMENTS_MAX, PHOTOS_MAX = 16, 8, 60
HASHTAGS_MAX, USERTAGS_MAX = 3, 6
POST_LIKES_MAX, PHOTO_LIKES_MAX = 8, 9
USERS_PER_GROUP = 25
COUNTRIES = 12
WORDS = 256
USER_LINES_MAX = 2400
LINE_BYTES_MAX = 220
"""No user has more lines, and none is longer."""

# What is drawn: the second argument of `draw`.
D_COUNTRY, D_FRIENDS, D_PAIR, D_POSTS, D_COMMENTS, D_PHOTOS, D_REPEATED, D_BIRTHDAY = range(8)
D_LATITUDE, D_LONGITUDE, D_IP, D_LIKES, D_TAGS, D_FIRST, D_TEXT, D_TIME, D_TAG = range(8, 17)
POST, COMMENT, PHOTO = 0, 1, 2
# What the object of a line is.
FIXED, LINK, NUMBER, COUNTRY, WORDS_OF, TIME, DEGREES, ADDRESS, BIRTHDAY = range(9)

# Pieces of text, in the order of network.FRAGMENTS.
X_USER, X_PERSON, X_POST, X_COMMENT, X_PHOTO, X_ALBUM, X_FORUM = range(0, 7)
X_GROUP, X_FRIENDSHIP, X_MEMBERSHIP, X_END, X_END_STRING, X_END_TIME, X_END_DATE = range(7, 14)
X_END_DOUBLE, X_TYPE_USER, X_TYPE_ACCOUNT, X_TYPE_PERSON, X_TYPE_POST, X_TYPE_SIOC_POST = range(14, 20)
X_TYPE_COMMENT, X_TYPE_ITEM, X_TYPE_PHOTO, X_TYPE_ALBUM, X_TYPE_GROUP, X_TYPE_USERGROUP, X_TITLE = range(20, 27)
X_FEMALE, X_MALE, X_FIRST_NAME, X_LAST_NAME, X_EMAIL, X_ORGANIZATION, X_NEAR = range(27, 34)
X_NEAR_NAME, X_LATITUDE, X_LONGITUDE, X_BROWSER, X_IP, X_BIRTHDAY, X_DATE = range(34, 41)
X_CREATED, X_CONTENT, X_HASHTAG, X_GROUP_NAME, X_GROUP_TAG, X_LOCATION, X_REQUESTED = range(41, 48)
X_APPROVED, X_ADDED, X_ACCOUNT_OF, X_MODERATOR_OF, X_SUBSCRIBER_OF, X_KNOWS, X_MEMB = range(48, 55)
X_INITIATOR, X_CREATOR_OF, X_CONTAINER_OF, X_REPLY_OF, X_LIKE, X_USERTAG, X_HAS_MEMBER = range(55, 62)
X_MEMBER, X_OF_GROUP, X_END_EMAIL = range(62, 65)


@njit_inline
def draw(number, what, bound):
    """Return an integer in [0, bound) that depends on nothing but a number and what is drawn (splitmix64)."""
    x = np.uint64(number) * np.uint64(32) + np.uint64(what) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return np.int64((x >> np.uint64(1)) % np.uint64(bound))


@njit_inline
def is_friend(user, j):
    """Tell whether a user is a friend of the user at offset j behind: friendships of a user by her own liking."""
    return draw(user * OFFSETS_MAX + j, D_PAIR, 64) < 32 + draw(user, D_FRIENDS, 32)


@njit_inline
def item_number(user, kind, k):
    """Return the number of a user's k-th post, comment or photo; distinct for all kinds."""
    return (user * 3 + kind) * (PHOTOS_MAX + 1) + k


@njit_inline
def likes_max(kind):
    return POST_LIKES_MAX if kind == POST else PHOTO_LIKES_MAX


@njit_uncounted
def list_linked(user, item, what, most, offsets, users, found):
    """Write to found the users that an item is liked by or tagged with: friends of its owner, at most `most`, each
    once. Returns how many."""
    wanted = draw(item, what, most + 1)
    first = draw(item, D_FIRST, offsets.size) if offsets.size > 0 else 0
    count = 0
    for i in range(min(wanted, offsets.size)):
        j = (first + i) % offsets.size
        if is_friend(user, j):
            found[count] = (user + offsets[j]) % users
            count += 1
    return count


@njit_uncounted
def put(out, at, text, starts, fragment):
    """Write a piece of text; return where it ends."""
    for i in range(starts[fragment], starts[fragment + 1]):
        out[at] = text[i]
        at += 1
    return at


@njit_uncounted
def put_number(out, at, number):
    """Write a number that is not negative in decimal."""
    size = 1
    rest = number // 10
    while rest > 0:
        size += 1
        rest //= 10
    for i in range(at + size - 1, at - 1, -1):
        out[i] = 48 + number % 10
        number //= 10
    return at + size


@njit_uncounted
def put_two(out, at, number):
    """Write a number below 100 with two digits."""
    out[at] = 48 + number // 10
    out[at + 1] = 48 + number % 10
    return at + 2


@njit_inline
def note(lines, n, subject, number, predicate, kind, a, b):
    """Note line n, `<subject number> <predicate> object .`; kind says how the object is made of a and b.

    Lines are noted first and written by one loop: each place that writes text takes LLVM a second. Returns n + 1."""
    lines[n, 0] = subject
    lines[n, 1] = number
    lines[n, 2] = predicate
    lines[n, 3] = kind
    lines[n, 4] = a
    lines[n, 5] = b
    return n + 1


@njit_uncounted
def put_line(out, at, text, starts, words, word_starts, countries, country_starts, line):
    """Write a line that was noted; return where it ends."""
    subject, number, predicate, kind, a, b = line[0], line[1], line[2], line[3], line[4], line[5]
    at = put(out, at, text, starts, subject)
    at = put_number(out, at, number)
    at = put(out, at, text, starts, predicate)
    if kind == LINK:
        at = put(out, at, text, starts, a)
        at = put_number(out, at, b)
        return put(out, at, text, starts, X_END)
    if kind == NUMBER:
        at = put_number(out, at, a)
        return put(out, at, text, starts, b)
    if kind == COUNTRY:
        at = put(out, at, countries, country_starts, a)
        return put(out, at, text, starts, b)
    if kind == WORDS_OF:
        for i in range(b):
            if i > 0:
                out[at] = 32
                at += 1
            at = put(out, at, words, word_starts, (a + draw(a, D_TEXT + i, WORDS) * min(i, 1)) % WORDS)
        return put(out, at, text, starts, X_END_STRING)
    if kind == TIME:
        at = put_two(out, at, 1 + a // 86400 % 28)
        out[at] = 84
        at = put_two(out, at + 1, a // 3600 % 24)
        out[at] = 58
        at = put_two(out, at + 1, a // 60 % 60)
        out[at] = 58
        at = put_two(out, at + 1, a % 60)
        return put(out, at, text, starts, X_END_TIME)
    if kind == DEGREES:
        at = put_number(out, at, a // 10000)
        out[at] = 46
        at = put_two(out, at + 1, a // 100 % 100)
        at = put_two(out, at, a % 100)
        return put(out, at, text, starts, X_END_DOUBLE)
    if kind == ADDRESS:
        for i in range(4):
            if i > 0:
                out[at] = 46
                at += 1
            at = put_number(out, at, 1 + draw(a * 4 + i, D_IP, 254))
        return put(out, at, text, starts, X_END_STRING)
    if kind == BIRTHDAY:
        at = put_two(out, at, 55 + a // 336)
        out[at] = 45
        at = put_two(out, at + 1, 1 + a // 28 % 12)
        out[at] = 45
        at = put_two(out, at + 1, 1 + a % 28)
        return put(out, at, text, starts, X_END_DATE)
    return at


@njit_uncounted
def note_profile(lines, n, user):
    """Note a person and her account."""
    country = draw(user, D_COUNTRY, COUNTRIES)
    n = note(lines, n, X_PERSON, user, X_TYPE_PERSON, FIXED, 0, 0)
    n = note(lines, n, X_PERSON, user, X_FIRST_NAME, WORDS_OF, user, 1)
    n = note(lines, n, X_PERSON, user, X_LAST_NAME, WORDS_OF, user // 7, 1)
    n = note(lines, n, X_PERSON, user, X_NEAR, COUNTRY, country, X_END)
    n = note(lines, n, X_PERSON, user, X_NEAR_NAME, COUNTRY, country, X_END_STRING)
    n = note(lines, n, X_PERSON, user, X_LATITUDE, DEGREES, draw(user, D_LATITUDE, 900000), 0)
    n = note(lines, n, X_PERSON, user, X_LONGITUDE, DEGREES, draw(user, D_LONGITUDE, 1800000), 0)
    n = note(lines, n, X_PERSON, user, X_BROWSER, WORDS_OF, user % 4, 1)
    n = note(lines, n, X_PERSON, user, X_IP, ADDRESS, user, 0)
    n = note(lines, n, X_PERSON, user, X_ORGANIZATION, WORDS_OF, user // 50, 2)
    n = note(lines, n, X_PERSON, user, X_FEMALE if user % 2 == 0 else X_MALE, FIXED, 0, 0)
    n = note(lines, n, X_PERSON, user, X_BIRTHDAY, BIRTHDAY, draw(user, D_BIRTHDAY, 40 * 12 * 28), 0)
    n = note(lines, n, X_PERSON, user, X_EMAIL, NUMBER, user, X_END_EMAIL)
    n = note(lines, n, X_USER, user, X_TYPE_USER, FIXED, 0, 0)
    n = note(lines, n, X_USER, user, X_TYPE_ACCOUNT, FIXED, 0, 0)
    n = note(lines, n, X_USER, user, X_ACCOUNT_OF, LINK, X_PERSON, user)
    for forum in (2 * user, 2 * user + 1):
        n = note(lines, n, X_USER, user, X_MODERATOR_OF, LINK, X_FORUM, forum)
        n = note(lines, n, X_USER, user, X_SUBSCRIBER_OF, LINK, X_FORUM, forum)
    n = note(lines, n, X_USER, user, X_DATE, TIME, user % 2419200, 0)
    # Said again, and of somebody long before: repeats that a graph does not keep.
    return note(lines, n, X_USER, draw(user, D_REPEATED, user + 1), X_TYPE_USER, FIXED, 0, 0)


@njit_uncounted
def note_friends(lines, n, offsets, users, user):
    """Note whom a user knows, the friendships that she began, and her group."""
    for j in range(offsets.size):
        before = (user - offsets[j] + users) % users
        if is_friend(before, j):
            n = note(lines, n, X_USER, user, X_KNOWS, LINK, X_USER, before)
        if not is_friend(user, j):
            continue
        friend = (user + offsets[j]) % users
        number = user * OFFSETS_MAX + j
        n = note(lines, n, X_USER, user, X_KNOWS, LINK, X_USER, friend)
        n = note(lines, n, X_FRIENDSHIP, number, X_MEMB, LINK, X_USER, user)
        n = note(lines, n, X_FRIENDSHIP, number, X_MEMB, LINK, X_USER, friend)
        n = note(lines, n, X_FRIENDSHIP, number, X_INITIATOR, LINK, X_USER, user)
        n = note(lines, n, X_FRIENDSHIP, number, X_REQUESTED, TIME, draw(number, D_TIME, 1209600), 0)
        n = note(lines, n, X_FRIENDSHIP, number, X_APPROVED, TIME, draw(number, D_TIME, 1209600) + 1209600, 0)
        if user % USERS_PER_GROUP == 0:
            group = user // USERS_PER_GROUP
            n = note(lines, n, X_GROUP, group, X_HAS_MEMBER, LINK, X_USER, friend)
            n = note(lines, n, X_MEMBERSHIP, number, X_MEMBER, LINK, X_USER, friend)
            n = note(lines, n, X_MEMBERSHIP, number, X_OF_GROUP, LINK, X_GROUP, group)
            n = note(lines, n, X_MEMBERSHIP, number, X_ADDED, TIME, draw(number, D_TIME, 2419200), 0)
    return n


@njit_uncounted
def note_group(lines, n, user):
    """Note the group that a user founded."""
    group = user // USERS_PER_GROUP
    n = note(lines, n, X_GROUP, group, X_TYPE_GROUP, FIXED, 0, 0)
    n = note(lines, n, X_GROUP, group, X_TYPE_USERGROUP, FIXED, 0, 0)
    n = note(lines, n, X_GROUP, group, X_GROUP_NAME, WORDS_OF, group, 3)
    n = note(lines, n, X_GROUP, group, X_GROUP_TAG, WORDS_OF, group, 1)
    n = note(lines, n, X_GROUP, group, X_CREATED, TIME, group % 2419200, 0)
    return note(lines, n, X_USER, user, X_CREATOR_OF, LINK, X_GROUP, group)


@njit_uncounted
def note_origin(lines, n, subject, item, user):
    """Note when, with what and from where an item was made."""
    n = note(lines, n, subject, item, X_CREATED, TIME, draw(item, D_TIME, 2419200), 0)
    n = note(lines, n, subject, item, X_BROWSER, WORDS_OF, user % 4, 1)
    return note(lines, n, subject, item, X_IP, ADDRESS, user, 0)


@njit_uncounted
def note_posts(lines, n, offsets, users, user, found):
    """Note a user's posts and comments, and who likes the posts."""
    for k in range(draw(user, D_POSTS, POSTS_MAX + 1)):
        item = item_number(user, POST, k)
        n = note(lines, n, X_POST, item, X_TYPE_POST, FIXED, 0, 0)
        n = note(lines, n, X_POST, item, X_TYPE_SIOC_POST, FIXED, 0, 0)
        n = note(lines, n, X_POST, item, X_TITLE, FIXED, 0, 0)
        n = note_origin(lines, n, X_POST, item, user)
        n = note(lines, n, X_POST, item, X_CONTENT, WORDS_OF, item, 9)
        n = note(lines, n, X_FORUM, 2 * user, X_CONTAINER_OF, LINK, X_POST, item)
        n = note(lines, n, X_USER, user, X_CREATOR_OF, LINK, X_POST, item)
        tags = draw(item, D_TAGS, HASHTAGS_MAX + 1)
        for tag in range(tags):
            n = note(lines, n, X_POST, item, X_HASHTAG, WORDS_OF, user % 50 + tag, 1)
        likers = list_linked(user, item, D_LIKES, POST_LIKES_MAX, offsets, users, found)
        for i in range(likers):
            n = note(lines, n, X_USER, found[i], X_LIKE, LINK, X_POST, item)
    for k in range(draw(user, D_COMMENTS, COMMENTS_MAX + 1)):
        item = item_number(user, COMMENT, k)
        post = item_number((user + 1 + k) % users, POST, 0)
        n = note(lines, n, X_COMMENT, item, X_TYPE_COMMENT, FIXED, 0, 0)
        n = note(lines, n, X_COMMENT, item, X_TYPE_ITEM, FIXED, 0, 0)
        n = note_origin(lines, n, X_COMMENT, item, user)
        n = note(lines, n, X_COMMENT, item, X_REPLY_OF, LINK, X_POST, post)
        n = note(lines, n, X_COMMENT, item, X_CONTENT, WORDS_OF, item, 6)
        n = note(lines, n, X_POST, post, X_CONTAINER_OF, LINK, X_COMMENT, item)
        n = note(lines, n, X_USER, user, X_CREATOR_OF, LINK, X_COMMENT, item)
    return n


@njit_uncounted
def note_photos(lines, n, offsets, users, user, found):
    """Note a user's album, the photos in it, who is on them and who likes them."""
    photos = draw(user, D_PHOTOS, PHOTOS_MAX + 1)
    if photos == 0:
        return n
    n = note(lines, n, X_ALBUM, user, X_TYPE_ALBUM, FIXED, 0, 0)
    n = note(lines, n, X_ALBUM, user, X_TITLE, FIXED, 0, 0)
    n = note(lines, n, X_ALBUM, user, X_CREATED, TIME, user % 2419200, 0)
    n = note(lines, n, X_USER, user, X_CREATOR_OF, LINK, X_ALBUM, user)
    for k in range(photos):
        item = item_number(user, PHOTO, k)
        n = note(lines, n, X_PHOTO, item, X_TYPE_PHOTO, FIXED, 0, 0)
        n = note(lines, n, X_PHOTO, item, X_TYPE_ITEM, FIXED, 0, 0)
        country = draw(user, D_COUNTRY, COUNTRIES)
        n = note(lines, n, X_PHOTO, item, X_LOCATION, COUNTRY, country, X_END_STRING)
        n = note(lines, n, X_PHOTO, item, X_LATITUDE, DEGREES, draw(item, D_LATITUDE, 900000), 0)
        n = note(lines, n, X_PHOTO, item, X_LONGITUDE, DEGREES, draw(item, D_LONGITUDE, 1800000), 0)
        n = note_origin(lines, n, X_PHOTO, item, user)
        n = note(lines, n, X_ALBUM, user, X_CONTAINER_OF, LINK, X_PHOTO, item)
        tagged = list_linked(user, item, D_TAG, USERTAGS_MAX, offsets, users, found)
        for i in range(tagged):
            n = note(lines, n, X_PHOTO, item, X_USERTAG, LINK, X_USER, found[i])
        likers = list_linked(user, item, D_LIKES, PHOTO_LIKES_MAX, offsets, users, found)
        for i in range(likers):
            n = note(lines, n, X_USER, found[i], X_LIKE, LINK, X_PHOTO, item)
    return n


@njit
def write_users(out, text, starts, words, word_starts, countries, country_starts, offsets, users, first, last):
    """Write users [first, last) as N-Triples, as many as there is room for.

    out : uint8[n]; text, words, countries : uint8[...] with their starts; offsets : int64[k], whom one may know.
    Returns (bytes written, the first user that was not written)."""
    lines = np.empty((USER_LINES_MAX, 6), np.int64)
    found = np.empty(OFFSETS_MAX, np.int64)
    at = 0
    user = first
    while user < last and at + USER_LINES_MAX * LINE_BYTES_MAX <= out.size:
        n = note_profile(lines, 0, user)
        n = note_friends(lines, n, offsets, users, user)
        if user % USERS_PER_GROUP == 0:
            n = note_group(lines, n, user)
        n = note_posts(lines, n, offsets, users, user, found)
        n = note_photos(lines, n, offsets, users, user, found)
        for i in range(n):
            at = put_line(out, at, text, starts, words, word_starts, countries, country_starts, lines[i])
        user += 1
    return at, user

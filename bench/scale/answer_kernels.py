# mypy: disallow-untyped-defs=false
"""Counts of the network by its rules: triples, and the answers of S1 to S6. No text is read.

offsets : int64[k], the distances at which one may have friends; users : how many there are.
"""

from __future__ import annotations

import numpy as np

from wukongs.bench.scale.network_kernels import (
    COMMENTS_MAX,
    D_COMMENTS,
    D_COUNTRY,
    D_LIKES,
    D_PHOTOS,
    D_POSTS,
    D_TAG,
    D_TAGS,
    HASHTAGS_MAX,
    OFFSETS_MAX,
    PHOTO,
    PHOTO_LIKES_MAX,
    PHOTOS_MAX,
    POST,
    POST_LIKES_MAX,
    POSTS_MAX,
    USERS_PER_GROUP,
    USERTAGS_MAX,
    draw,
    is_friend,
    item_number,
    list_linked,
)
from wukongs.store.jit import njit, njit_uncounted


@njit_uncounted
def count_posts(user):
    return draw(user, D_POSTS, POSTS_MAX + 1)


@njit_uncounted
def count_photos(user):
    return draw(user, D_PHOTOS, PHOTOS_MAX + 1)


@njit_uncounted
def count_friends(user, offsets, users):
    """Return (friends that a user made, friends that made themselves hers)."""
    made = 0
    came = 0
    for j in range(offsets.size):
        made += is_friend(user, j)
        came += is_friend((user - offsets[j] + users) % users, j)
    return made, came


@njit_uncounted
def count_created(user):
    """Return of how many things a user is the creator: posts, comments, an album, a group."""
    return (
        count_posts(user)
        + draw(user, D_COMMENTS, COMMENTS_MAX + 1)
        + (count_photos(user) > 0)
        + (user % USERS_PER_GROUP == 0)
    )


@njit
def count_users_triples(offsets, users, first, last):
    """Return (distinct triples, likes) that the text of users [first, last) brings."""
    found = np.empty(OFFSETS_MAX, np.int64)
    triples = 0
    likes = 0
    for user in range(first, last):
        made, came = count_friends(user, offsets, users)
        triples += 21 + came + 6 * made
        if user % USERS_PER_GROUP == 0:
            triples += 6 + 4 * made
        for k in range(count_posts(user)):
            item = item_number(user, POST, k)
            likers = list_linked(user, item, D_LIKES, POST_LIKES_MAX, offsets, users, found)
            likes += likers
            triples += 9 + draw(item, D_TAGS, HASHTAGS_MAX + 1) + likers
        triples += 9 * draw(user, D_COMMENTS, COMMENTS_MAX + 1)
        photos = count_photos(user)
        triples += 4 * (photos > 0)
        for k in range(photos):
            item = item_number(user, PHOTO, k)
            likers = list_linked(user, item, D_LIKES, PHOTO_LIKES_MAX, offsets, users, found)
            likes += likers
            triples += 9 + likers + list_linked(user, item, D_TAG, USERTAGS_MAX, offsets, users, found)
    return triples, likes


@njit
def count_linked_to(user, kind, what, most, offsets, users):
    """Return how many items of a kind (POST, PHOTO) have a user among their likers or on them."""
    found = np.empty(OFFSETS_MAX, np.int64)
    total = 0
    for j in range(offsets.size):
        owner = (user - offsets[j] + users) % users
        if not is_friend(owner, j):
            continue
        for k in range(count_posts(owner) if kind == POST else count_photos(owner)):
            count = list_linked(owner, item_number(owner, kind, k), what, most, offsets, users, found)
            for i in range(count):
                total += found[i] == user
    return total


@njit
def count_answers(user, group, offsets, users):
    """Return the rows of S1 to S5 for a user (and the person with her number) and a group. int64[5]"""
    rows = np.zeros(5, np.int64)
    made, came = count_friends(user, offsets, users)
    liked = count_linked_to(user, POST, D_LIKES, POST_LIKES_MAX, offsets, users)
    liked += count_linked_to(user, PHOTO, D_LIKES, PHOTO_LIKES_MAX, offsets, users)
    rows[0] = 8 + made + came + count_created(user) + liked
    rows[1] = count_created(user)
    for j in range(offsets.size):
        before = (user - offsets[j] + users) % users
        rows[2] += count_created((user + offsets[j]) % users) * is_friend(user, j)
        rows[2] += count_created(before) * is_friend(before, j)
    founder = group * USERS_PER_GROUP
    for j in range(offsets.size):
        if is_friend(founder, j):
            member = (founder + offsets[j]) % users
            rows[3] += count_linked_to(member, PHOTO, D_TAG, USERTAGS_MAX, offsets, users)
    rows[4] = made + came
    return rows


@njit
def count_crossings(author_country, liker_country, offsets, users):
    """Return the rows of S6: (author, post, liker, tag) with author and liker from these countries."""
    found = np.empty(OFFSETS_MAX, np.int64)
    total = 0
    for user in range(users):
        if draw(user, D_COUNTRY, 12) != author_country:
            continue
        for k in range(count_posts(user)):
            item = item_number(user, POST, k)
            likers = 0
            for i in range(list_linked(user, item, D_LIKES, POST_LIKES_MAX, offsets, users, found)):
                likers += draw(found[i], D_COUNTRY, 12) == liker_country
            total += likers * draw(item, D_TAGS, HASHTAGS_MAX + 1)
    return total

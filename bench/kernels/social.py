"""A random social graph in ids: stored edges in several live batches, and a window of posts read through its blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.slice_ring import SliceRing
from wukongs.store.term_ids import term_id

NAMESPACE = "http://example.org/bench/"
STREAM = NAMESPACE + "posts"
STORED = "urn:x-wukongs:default"
SLICE_TUPLES = 1000
"""10,000 tuples/s in stream batches of 100 ms."""
TUPLES_PER_POST = 11


def name_id(name: str) -> int:
    """Return the id of a predicate or graph of this benchmark."""
    return term_id(f"<{name}>" if ":" in name else f"<{NAMESPACE}{name}>")


def random_ids(count: int, rng: np.random.Generator) -> Int64Array:
    """Return distinct ids as hashing would give them: uniform, low bit 0."""
    ids = np.unique(rng.integers(1, 1 << 62, count + count // 1000 + 8, np.int64))
    ids = rng.permutation(ids)[:count] << 1
    assert len(ids) == count
    return ids


@dataclass(frozen=True, slots=True)
class Social:
    """knows : int64[n, 2] numbers of users; posters : int64[m] numbers of the users who posted in the window, one per
    post; users, persons : int64[n_users] ids; stored: eight live batches; merged: the same as one; window: the blocks
    of ten stream batches."""

    users: Int64Array
    persons: Int64Array
    knows: Int64Array
    posters: Int64Array
    stored: BatchSet
    merged: BatchSet
    window: BatchSet


def make_social(edge_count: int, degree: int, rng: np.random.Generator, live_batches: int = 8) -> Social:
    """Make a graph with about edge_count stored triples, in which a user knows `degree` others."""
    user_count = max(16, edge_count // (degree + 1))
    users, persons = random_ids(user_count, rng), random_ids(user_count, rng)
    pairs = np.unique(
        np.repeat(np.arange(user_count), degree) * user_count + rng.integers(0, user_count, user_count * degree)
    )
    knows = np.stack((pairs // user_count, pairs % user_count), axis=1)
    subjects = np.concatenate((users[knows[:, 0]], users))
    objects = np.concatenate((users[knows[:, 1]], persons))
    predicates = np.repeat(np.array([name_id("knows"), name_id("account_of")]), (len(knows), user_count))
    order = rng.permutation(len(subjects))
    shares = [0.5**k for k in range(1, live_batches)]
    cuts = np.cumsum([int(len(order) * share) for share in shares])
    batches = [_stored_batch(subjects[rows], predicates[rows], objects[rows]) for rows in np.split(order, cuts)]
    merged = _stored_batch(subjects, predicates, objects)
    window, posters = _make_window(users, rng)
    return Social(
        users,
        persons,
        knows,
        posters,
        BatchSet.of(tuple(batches), disjoint=True),
        BatchSet.of((merged,), disjoint=True),
        window,
    )


def _stored_batch(subjects: Int64Array, predicates: Int64Array, objects: Int64Array) -> Batch:
    return build_batch(np.full(len(subjects), name_id(STORED), np.int64), subjects, predicates, objects)


def _make_window(users: Int64Array, rng: np.random.Generator) -> tuple[BatchSet, Int64Array]:
    ring = SliceRing()
    ring.index_windows(10)
    # Stream batches 21 to 30 lie as badly as ten can: in five blocks (1, 2, 4, 2 and 1 long).
    post_count = SLICE_TUPLES // TUPLES_PER_POST
    others = np.array([name_id(f"property{n}") for n in range(TUPLES_PER_POST - 1)], np.int64)
    posters = []
    for number in range(21, 31):
        by = rng.integers(0, len(users), post_count)
        posts = random_ids(post_count, rng)
        subjects = np.concatenate((users[by], np.repeat(posts, len(others))))
        predicates = np.concatenate((np.full(post_count, name_id("creator_of")), np.tile(others, post_count)))
        objects = np.concatenate((posts, random_ids(post_count * len(others), rng)))
        times = np.full(len(subjects), number * 100, np.int64)
        ring.add(number, subjects, predicates, objects, times, np.empty(0, np.int64))
        ring.close(number)
        posters.append(by)
    return ring.window(20, 30), np.concatenate(posters)

# mypy: disallow_untyped_defs=False
"""Kernels of a hash table from triples to ranks: open addressing, linear probing, a power of two of slots."""

from __future__ import annotations

from wukongs.store.jit import njit
from wukongs.store.slot_kernels import mix_id


@njit
def slot_of(slots, ranks, graph, subject, predicate, object_):
    """Return the slot of a triple, or the empty one where it belongs. slots : int64[n, 4]; ranks : int64[n], 0:
    empty."""
    mask = len(ranks) - 1
    mixed = mix_id(subject ^ (mix_id(object_) << 15) ^ (mix_id(predicate ^ ~graph) << 7))
    at = (mixed * len(ranks)) >> 32
    while ranks[at] != 0:
        if slots[at, 1] == subject and slots[at, 3] == object_ and slots[at, 2] == predicate and slots[at, 0] == graph:
            break
        at = (at + 1) & mask
    return at


@njit
def put_ranks(slots, ranks, graphs, subjects, predicates, objects, first):
    """Give triples the ranks from `first` on, in their order and in the place of those that they have; return how many
    had none.

    slots : int64[n, 4]; ranks : int64[n]: room for all. graphs, subjects, predicates, objects : int64[m]. Cost: a probe
    or a few for each."""
    added = 0
    for row in range(len(subjects)):
        at = slot_of(slots, ranks, graphs[row], subjects[row], predicates[row], objects[row])
        if ranks[at] == 0:
            slots[at, 0], slots[at, 1] = graphs[row], subjects[row]
            slots[at, 2], slots[at, 3] = predicates[row], objects[row]
            added += 1
        ranks[at] = first + row
    return added


@njit
def forget_ranks(slots, ranks, graphs, subjects, predicates, objects):
    """Let triples have no rank any more; their entries stay, with -1. slots, ..., objects: as in put_ranks."""
    for row in range(len(subjects)):
        at = slot_of(slots, ranks, graphs[row], subjects[row], predicates[row], objects[row])
        if ranks[at] != 0:
            ranks[at] = -1


@njit
def raise_to_ranks(slots, ranks, graphs, subjects, predicates, objects, found):
    """Raise each of `found` to the rank of its triple, if that is higher. A triple without a rank has 0.

    found : int64[m], written to; the others as in put_ranks."""
    for row in range(len(subjects)):
        rank = ranks[slot_of(slots, ranks, graphs[row], subjects[row], predicates[row], objects[row])]
        if rank > found[row]:
            found[row] = rank


@njit
def move_ranks(old_slots, old_ranks, slots, ranks):
    """Put all entries of one table into a larger one."""
    for old in range(len(old_ranks)):
        if old_ranks[old] != 0:
            at = slot_of(slots, ranks, old_slots[old, 0], old_slots[old, 1], old_slots[old, 2], old_slots[old, 3])
            slots[at] = old_slots[old]
            ranks[at] = old_ranks[old]

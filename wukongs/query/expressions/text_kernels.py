# mypy: disallow-untyped-defs=false
"""Canonical forms taken apart: the kind of each term, its characters, and its language tag or datatype. Texts found in
texts."""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit
from wukongs.store.slot_kernels import copy_bytes, same_bytes

NOTHING = 0
STRING = 1
TAGGED = 2
TYPED = 3
IRI = 4
BLANK = 5
TRIPLE = 6

ANYWHERE, AT_START, AT_END = 0, 1, 2
"""Where one text is to stand in another."""


@njit
def take_apart(text, offsets):
    """Split canonical forms; an empty one stands for no term.

    text : uint8[n_bytes]; offsets : int64[n + 1].

    Returns
    -------
    kinds : uint8[n]                    One of the constants above.
    lexical, lexical_offsets            As text and offsets: the lexical form of a literal, the IRI without brackets, a
                                        blank node or triple term as it is.
    tails, tail_offsets                 The same: the language tag of a TAGGED literal, the datatype IRI of a TYPED one.
    """
    n = len(offsets) - 1
    kinds = np.empty(n, np.uint8)
    lexical = np.empty(len(text), np.uint8)
    tails = np.empty(len(text), np.uint8)
    lexical_offsets = np.zeros(n + 1, np.int64)
    tail_offsets = np.zeros(n + 1, np.int64)
    end = np.int64(0)
    tail_end = np.int64(0)
    for i in range(n):
        start, stop = offsets[i], offsets[i + 1]
        first = text[start] if start < stop else np.uint8(0)
        kind = TRIPLE if first == 40 else BLANK
        if first == 0:
            kind = NOTHING
        elif first == 60:
            kind = IRI
            start, stop = start + 1, stop - 1
        elif first == 34:
            quote = stop - 1
            while text[quote] != 34:
                quote -= 1
            kind = STRING
            tail, tail_stop = stop, stop
            if quote < stop - 1:
                kind = TAGGED if text[quote + 1] == 64 else TYPED
                tail = quote + 2 if kind == TAGGED else quote + 4
                tail_stop = stop if kind == TAGGED else stop - 1
            copy_bytes(text, tail, tail_stop - tail, tails, tail_end)
            tail_end += tail_stop - tail
            start, stop = start + 1, quote
        copy_bytes(text, start, stop - start, lexical, end)
        end += stop - start
        kinds[i] = kind
        lexical_offsets[i + 1] = end
        tail_offsets[i + 1] = tail_end
    return kinds, lexical[:end], lexical_offsets, tails[:tail_end], tail_offsets


@njit
def find_parts(where, texts, text_offsets, text_places, parts, part_offsets, part_places, found):
    """Tell of each row whether one text stands in another. In UTF-8, bytes match where characters do.

    where : ANYWHERE, AT_START or AT_END; texts : uint8[n_bytes], text i is texts[text_offsets[i]:text_offsets[i + 1]];
    text_places : int64[n_rows], the text of each row; the same for parts; found : bool[n_rows], written.

    Cost: the bytes of both texts of each row, multiplied, at worst."""
    for row in range(len(found)):
        start, stop = text_offsets[text_places[row]], text_offsets[text_places[row] + 1]
        at = part_offsets[part_places[row]]
        size = part_offsets[part_places[row] + 1] - at
        last = stop - size
        if size == 0 or last < start:
            found[row] = size == 0
        elif where == AT_START:
            found[row] = same_bytes(texts, start, size, parts, at)
        elif where == AT_END:
            found[row] = same_bytes(texts, last, size, parts, at)
        else:
            found[row] = False
            for p in range(start, last + 1):
                if texts[p] == parts[at] and same_bytes(texts, p, size, parts, at):
                    found[row] = True
                    break

# mypy: disallow-untyped-defs=false
"""Kernels of the results formats: canonical forms to cells, and cells to rows of text, in UTF-8 (row_text.py).

A term is a body (an IRI, a label, a lexical form) and perhaps a tail (a datatype IRI, a language tag). A format is
data: for each kind of term the pieces around body and tail, and the bytes that stand for each byte of them.

pieces : uint8[any size]; bounds : int64[N_KINDS, 3, 2], the places of the pieces before, between and after in it;
rules : int64[N_KINDS, RULE_WIDTH]; sizes : int64[n_classes, 256], how many bytes stand for a byte, 1: itself, 0: the
format has nothing for it; escapes : uint8[n_classes, 256, ESCAPE_SIZE_MAX].
"""

from __future__ import annotations

import numpy as np

from wukongs.store.hash_kernels import read_word, write_word
from wukongs.store.jit import njit, njit_inline, njit_uncounted
from wukongs.store.slot_kernels import copy_bytes

IRI = 0
BLANK = 1
STRING = 2
"""Without a tail, as a term that no kind below fits."""
TYPED = 3
LANGUAGE = 4
N_KINDS = 5

PARTS = 0
"""BODY_ALONE, BODY_THEN_TAIL or TAIL_THEN_BODY."""
BODY_CLASS = 1
TAIL_CLASS = 2
QUOTED = 3
"""1: a body with a comma, quote or line end stands in quotes."""
RULE_WIDTH = 4
BODY_ALONE = 0
BODY_THEN_TAIL = 1
TAIL_THEN_BODY = 2

ESCAPE_SIZE_MAX = 8

OPENING = 0
BETWEEN = 1
CELL_END = 2
CLOSING = 3
SEPARATOR = 4
N_FRAME = 5


@njit_uncounted
def parts_of(text, start, stop):
    """Return (kind or -1, start and stop of the body, start and stop of the tail) of a term in canonical form.

    -1: a triple term, or a literal with a base direction."""
    if text[start] == 60:  # <
        return IRI, start + 1, stop - 1, stop, stop
    if text[start] == 95:  # _:
        return BLANK, start + 2, stop, stop, stop
    if text[start] != 34:
        return -1, start, start, start, start
    quote = stop - 1
    while text[quote] != 34:
        quote -= 1
    if quote == stop - 1:
        return STRING, start + 1, quote, stop, stop
    if text[quote + 1] == 94:  # ^^<
        return TYPED, start + 1, quote, quote + 4, stop - 1
    for at in range(quote + 2, stop - 1):
        if text[at] == 45 and text[at + 1] == 45:
            return -1, start, start, start, start
    return LANGUAGE, start + 1, quote, quote + 2, stop


@njit_inline
def escape_bytes(text, start, stop, sizes, escapes, out, at):
    """Write text[start:stop], escaped, to out[at:]. sizes, escapes: of one class. Returns the end, -1: it cannot be
    written. Eight bytes that stand for themselves are written at a time."""
    i = np.int64(start)
    while i < stop:
        if i + 8 <= stop:
            odd = np.int64(0)
            for k in range(8):
                odd |= sizes[text[i + k]] ^ 1
            if odd == 0:
                write_word(read_word(text, i), out, at)
                i += 8
                at += 8
                continue
        byte = text[i]
        i += 1
        size = sizes[byte]
        if size == 1:
            out[at] = byte
            at += 1
        elif size == 0:
            return np.int64(-1)
        else:
            for k in range(size):
                out[at + k] = escapes[byte, k]
            at += size
    return np.int64(at)


@njit_uncounted
def needs_quotes(text, start, stop):
    """Tell whether a CSV field has to stand in quotes: for a comma, a quote or a line end."""
    for i in range(start, stop):
        byte = text[i]
        if byte == 44 or byte == 34 or byte == 13 or byte == 10:
            return True
    return False


@njit_inline
def write_body(text, start, stop, rule, sizes, escapes, out, at):
    """Write a body to out[at:], in quotes where that is the rule. Returns the end, -1: it cannot be written."""
    is_quoted = rule[QUOTED] == 1 and needs_quotes(text, start, stop)
    if is_quoted:
        out[at] = 34
        at += 1
    at = escape_bytes(text, start, stop, sizes[rule[BODY_CLASS]], escapes[rule[BODY_CLASS]], out, at)
    if is_quoted and at >= 0:
        out[at] = 34
        at += 1
    return np.int64(at)


@njit_inline
def write_piece(pieces, bounds, number, out, at):
    """Copy pieces[bounds[number, 0]:bounds[number, 1]] to out[at:]. Returns the end."""
    size = bounds[number, 1] - bounds[number, 0]
    copy_bytes(pieces, bounds[number, 0], size, out, at)
    return np.int64(at + size)


@njit_uncounted
def write_term(text, start, stop, pieces, bounds, rules, sizes, escapes, out, at):
    """Write one term to out[at:]. Returns the end, -1 if the tables cannot write it."""
    kind, body, body_stop, tail, tail_stop = parts_of(text, start, stop)
    if kind < 0:
        return np.int64(-1)
    rule = rules[kind]
    tail_class = rule[TAIL_CLASS]
    at = write_piece(pieces, bounds[kind], 0, out, at)
    if rule[PARTS] == TAIL_THEN_BODY:
        at = escape_bytes(text, tail, tail_stop, sizes[tail_class], escapes[tail_class], out, at)
    else:
        at = write_body(text, body, body_stop, rule, sizes, escapes, out, at)
    if rule[PARTS] != BODY_ALONE and at >= 0:
        at = write_piece(pieces, bounds[kind], 1, out, at)
        if rule[PARTS] == TAIL_THEN_BODY:
            at = write_body(text, body, body_stop, rule, sizes, escapes, out, at)
        else:
            at = escape_bytes(text, tail, tail_stop, sizes[tail_class], escapes[tail_class], out, at)
    return write_piece(pieces, bounds[kind], 2, out, at) if at >= 0 else np.int64(-1)


@njit
def write_terms(text, offsets, pieces, bounds, rules, sizes, escapes):
    """Write terms as cells, one after the other.

    Parameters
    ----------
    text : uint8[any size]; offsets : int64[n + 1], term i in canonical form is text[offsets[i]:offsets[i + 1]].
    pieces, bounds, rules, sizes, escapes   The format: see above.

    Returns
    -------
    cells : uint8[n_bytes]; ends : int64[n + 1], cell i is cells[ends[i]:ends[i + 1]].
    odd : bool[n]                   The tables cannot write these; their cells are empty."""
    n = len(offsets) - 1
    room = len(pieces) + 2
    cells = np.empty(len(text) + n * 48 + room, np.uint8)
    ends = np.zeros(n + 1, np.int64)
    odd = np.zeros(n, np.bool_)
    for i in range(n):
        end = ends[i]
        needed = end + ESCAPE_SIZE_MAX * (offsets[i + 1] - offsets[i]) + room
        if needed > len(cells):
            grown = np.empty(2 * len(cells) + needed, np.uint8)
            grown[:end] = cells[:end]
            cells = grown
        at = write_term(text, offsets[i], offsets[i + 1], pieces, bounds, rules, sizes, escapes, cells, end)
        odd[i] = at < 0
        ends[i + 1] = end if at < 0 else at
    return cells[: ends[n]], ends, odd


@njit
def write_rows(places, cells, starts, sizes, prefixes, prefix_bounds, frame, frame_bounds, leaves_out):
    """Write rows of cells.

    Parameters
    ----------
    places : int64[n_columns, n_rows]   The number of each cell.
    cells : uint8[any size]; starts, sizes : int64[n_cells], cell i is cells[starts[i]:][:sizes[i]], starts -1: unbound.
    prefixes : uint8[any size]; prefix_bounds : int64[n_columns, 2], what stands before the cells of each column.
    frame : uint8[any size]; frame_bounds : int64[N_FRAME, 2], what stands around rows and cells.
    leaves_out : bool                   Nothing stands for an unbound cell; else a cell without text does.

    Returns
    -------
    text : uint8[n_bytes]"""
    n_columns, n_rows = places.shape
    per_row = np.int64(0)
    for number in (OPENING, CLOSING, SEPARATOR):
        per_row += frame_bounds[number, 1] - frame_bounds[number, 0]
    per_cell = np.int64(0)
    for number in (BETWEEN, CELL_END):
        per_cell += frame_bounds[number, 1] - frame_bounds[number, 0]
    room = n_rows * per_row
    for column in range(n_columns):
        room += n_rows * (per_cell + prefix_bounds[column, 1] - prefix_bounds[column, 0])
        for row in range(n_rows):
            room += sizes[places[column, row]]
    out = np.empty(room, np.uint8)
    at = np.int64(0)
    for row in range(n_rows):
        if row > 0:
            at = write_piece(frame, frame_bounds, SEPARATOR, out, at)
        at = write_piece(frame, frame_bounds, OPENING, out, at)
        is_first = True
        for column in range(n_columns):
            place = places[column, row]
            if starts[place] < 0 and leaves_out:
                continue
            if not is_first:
                at = write_piece(frame, frame_bounds, BETWEEN, out, at)
            is_first = False
            at = write_piece(prefixes, prefix_bounds, column, out, at)
            if starts[place] >= 0:
                copy_bytes(cells, starts[place], sizes[place], out, at)
                at += sizes[place]
            at = write_piece(frame, frame_bounds, CELL_END, out, at)
        at = write_piece(frame, frame_bounds, CLOSING, out, at)
    return out[:at]


@njit
def write_few(
    places,
    text,
    offsets,
    pieces,
    bounds,
    rules,
    sizes,
    escapes,
    prefixes,
    prefix_bounds,
    frame,
    frame_bounds,
    leaves_out,
):
    """Do what write_terms and write_rows do, by one call.

    places : int64[n_columns, n_rows]   The number of each cell's term; as many as there are terms: unbound.

    Returns (text uint8[n_bytes], whether the tables can write all terms; if not, the text is not the rows')."""
    cells, ends, odd = write_terms(text, offsets, pieces, bounds, rules, sizes, escapes)
    n = len(odd)
    starts = np.full(n + 1, -1, np.int64)
    cell_sizes = np.zeros(n + 1, np.int64)
    for i in range(n):
        if odd[i]:
            return cells, False
        starts[i] = ends[i]
        cell_sizes[i] = ends[i + 1] - ends[i]
    return write_rows(places, cells, starts, cell_sizes, prefixes, prefix_bounds, frame, frame_bounds, leaves_out), True

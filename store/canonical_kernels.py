# mypy: disallow-untyped-defs=false
"""A term as a span of a buffer -> its canonical form: escapes decoded, xsd:string dropped, language tags in lower case,
blank nodes labelled by their scope."""

from __future__ import annotations

import numpy as np

from wukongs.store.inline_kernels import TYPE_STRING, pack_string, pack_typed, type_code
from wukongs.store.jit import njit_inline
from wukongs.store.ntriples_kernels import (
    BLANK,
    F_KIND,
    F_LEX_STOP,
    F_START,
    F_STOP,
    F_TAIL,
    F_TAIL_START,
    F_TAIL_STOP,
    IRI,
    LITERAL,
    TAIL_DATATYPE,
    TAIL_LANGUAGE,
)
from wukongs.store.unicode_kernels import read_escape, write_utf8

SCOPE_SIZE_MAX = 32
"""A canonical form is at most this much longer than its N-Triples form: the scope of a blank node."""


@njit_inline
def _write_decoded(data, start, stop, out, at):
    """Copy data[start:stop] to out[at:] with its escapes decoded; return where it ends. The escapes are valid."""
    i = start
    while i < stop:
        if data[i] != 92:
            out[at] = data[i]
            at += 1
            i += 1
            continue
        kind = data[i + 1]
        if kind == 117 or kind == 85:
            point, i = read_escape(data, i, stop)
            at = np.int64(write_utf8(out, at, point))
            continue
        if kind == 116:
            out[at] = 9
        elif kind == 98:
            out[at] = 8
        elif kind == 110:
            out[at] = 10
        elif kind == 114:
            out[at] = 13
        elif kind == 102:
            out[at] = 12
        else:
            out[at] = kind
        at += 1
        i += 2
    return at


@njit_inline
def _write_canonical(data, fields, row, is_string, scope_prefix, out, at):
    """Write the canonical form of a term at out[at:]; return where it ends.

    The term is fields[row]; scope_prefix : uint8[20], which a blank node's label gets in place of `_:`."""
    start = fields[row, F_START]
    stop = fields[row, F_STOP]
    if fields[row, F_KIND] == BLANK:
        for i in range(len(scope_prefix)):
            out[at + i] = scope_prefix[i]
        at += len(scope_prefix)
        for i in range(start + 2, stop):
            out[at] = data[i]
            at += 1
        return at
    if fields[row, F_KIND] == IRI:
        return _write_decoded(data, start, stop, out, at)
    at = np.int64(_write_decoded(data, start, fields[row, F_LEX_STOP], out, at))
    out[at] = 34
    at += 1
    if fields[row, F_TAIL] == TAIL_LANGUAGE:
        out[at] = 64
        at += 1
        for i in range(fields[row, F_TAIL_START], fields[row, F_TAIL_STOP]):
            byte = data[i]
            out[at] = byte + 32 if 65 <= byte <= 90 else byte
            at += 1
    elif fields[row, F_TAIL] == TAIL_DATATYPE and not is_string:
        out[at] = 94
        out[at + 1] = 94
        at = np.int64(_write_decoded(data, fields[row, F_TAIL_START] - 1, fields[row, F_TAIL_STOP] + 1, out, at + 2))
    return at


@njit_inline
def write_slow(data, fields, row, code, names, types, scope_prefix, text, start):
    """Write the canonical form of a term that is not in it as it stands to text[start:].

    Returns (where it ends, inlined id or -1): an escape may have hidden a form that can be inlined, or xsd:string."""
    stop = np.int64(_write_canonical(data, fields, row, code == TYPE_STRING, scope_prefix, text, start))
    if fields[row, F_KIND] != LITERAL or fields[row, F_TAIL] == TAIL_LANGUAGE:
        return stop, np.int64(-1)
    if text[stop - 1] == 62:
        quote = stop - 1
        while text[quote] != 34:
            quote -= 1
        code = np.int64(type_code(text, quote + 4, stop - 1, names, types))
        if code != TYPE_STRING:
            return stop, np.int64(pack_typed(text, start + 1, quote, code, types))
        stop = quote + 1
    return stop, np.int64(pack_string(text, start + 1, stop - 1))

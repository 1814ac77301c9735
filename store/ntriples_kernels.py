# mypy: disallow-untyped-defs=false
"""N-Triples and N-Quads by the byte: one statement's terms as spans of the buffer, checked against the grammar.

A term is described by a row of int64 fields (the F constants). Nothing is copied or decoded here. A reader returns the
position behind the term, or minus an error code (the E constants) with the offending position beside it.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit_inline, njit_uncounted
from wukongs.store.memo_kernels import find_known
from wukongs.store.slot_kernels import same_bytes
from wukongs.store.snapshot import EVENT_MAX_MS, EVENT_MIN_MS
from wukongs.store.unicode_kernels import is_in_label, read_escape, read_utf8

IN_IRI = 1
"""Character class bits: the character may stand unescaped in an IRI, in a literal, in a blank node label, ..."""
IN_LITERAL = 2
IN_LABEL = 4
STARTS_LABEL = 8
LETTER = 16
LETTER_OR_DIGIT = 32
IN_SCHEME = 64
UPPER = 128
LANGUAGE_TYPES = 256
"""Behind the classes of the bytes: the IRI of rdf:langString, a zero, `dirLangString`, a zero."""
DIRECTION_TYPE = LANGUAGE_TYPES + 54
_DIRECTION_TYPE_STOP = DIRECTION_TYPE + 13
_LANGUAGE_NAME = LANGUAGE_TYPES + 43
_LANGUAGE_TYPE_SIZE = 53
SUBTAG_SIZE_MAX = 8

IRI = 1
BLANK = 2
LITERAL = 3
KNOWN = 4
"""An IRI that the term table holds already: F_START is the number of its entry."""
SAME = 5
"""The IRI that the statement before has in this place."""

F_KIND = 0
F_START = 1
F_STOP = 2
F_LEX_STOP = 3
"""A literal's lexical form is [F_START + 1, F_LEX_STOP); its language or datatype IRI [F_TAIL_START, F_TAIL_STOP)."""
F_TAIL_START = 4
F_TAIL_STOP = 5
F_TAIL = 6
F_ESCAPED = 7
"""1 if the term is not in canonical form as it stands: escapes, a language tag with capitals, space before the tag or
the datatype."""
FIELDS = 8
F_MEMO = 3
"""An IRI's place in the memo, -1 if it has none."""

TAIL_NONE = 0
TAIL_LANGUAGE = 1
TAIL_DATATYPE = 2
TAIL_UNCHECKED = 3
"""A long datatype, until `has_language_type` has looked at it. A call within `_read_literal` would slow literals."""

E_SUBJECT = 1
E_SUBJECT_LITERAL = 2
E_PREDICATE = 3
E_OBJECT = 4
E_GRAPH = 5
E_DOT = 6
E_AFTER_DOT = 7
E_IRI_OPEN = 8
E_IRI_CHARACTER = 9
E_IRI_RELATIVE = 10
E_LITERAL_OPEN = 11
E_ESCAPE = 12
E_UTF8 = 13
E_LANGUAGE = 14
E_DATATYPE = 15
E_LABEL = 16
E_TIME = 17
E_TIME_AFTER = 18
E_AFTER_TERM = 19
E_NULL = 20
E_FOURTH = 21
E_LANGUAGE_TYPE = 22
E_VERSION = 23

TRIPLE = 3
"""The most terms of a statement: of N-Triples, of N-Quads."""
QUAD = 4

NO_TIMES = 0
TIME_SUFFIX = 1
TIME_PREFIX = 2

ROLE_SUBJECT = 0
ROLE_PREDICATE = 1
ROLE_OBJECT = 2
ROLE_GRAPH = 3


@njit_inline
def _skip_space(data, p, end):
    while p < end and (data[p] == 32 or data[p] == 9):
        p += 1
    return p


@njit_inline
def _skip_class(data, p, end, classes, wanted):
    """Return the first position from p on whose byte is not of this character class.

    The index is unsigned, so that numba leaves out its test for negative ones; eight bytes take one branch."""
    i = np.uint64(p)
    stop = np.uint64(end)
    eight = np.uint64(8)
    while i + eight <= stop:
        shared = classes[data[i]] & classes[data[i + np.uint64(1)]]
        shared &= classes[data[i + np.uint64(2)]] & classes[data[i + np.uint64(3)]]
        shared &= classes[data[i + np.uint64(4)]] & classes[data[i + np.uint64(5)]]
        shared &= classes[data[i + np.uint64(6)]] & classes[data[i + np.uint64(7)]]
        if shared & wanted == 0:
            break
        i += eight
    while i < stop and classes[data[i]] & wanted != 0:
        i += np.uint64(1)
    return np.int64(i)


@njit_inline
def _read_iri(data, p, end, classes):
    """Read the IRI whose `<` is data[p]. Returns (position behind `>` or -error, error position, 1 if escaped)."""
    i = p + 1
    if i < end and classes[data[i]] & LETTER != 0:
        while i < end and classes[data[i]] & IN_SCHEME != 0:
            i += 1
    absolute = i > p + 1 and i < end and data[i] == 58
    escaped = 0
    while True:
        i = _skip_class(data, i, end, classes, IN_IRI)
        if i >= end or data[i] == 10 or data[i] == 13:
            return -E_IRI_OPEN, p, 0
        byte = data[i]
        if byte == 62:
            break
        if byte == 92:
            point, after = read_escape(data, i, end)
            if point < 0:
                return -E_ESCAPE, i, 0
            if point < 128 and classes[point] & IN_IRI == 0:
                return -E_IRI_CHARACTER, i, 0
            escaped = 1
            i = after
        elif byte >= 128:
            point, after = read_utf8(data, i, end)
            if point < 0:
                return -E_UTF8, i, 0
            i = after
        else:
            return -E_IRI_CHARACTER, i, 0
    if not absolute:
        return -E_IRI_RELATIVE, p, 0
    return i + 1, i, escaped


@njit_inline
def _read_label(data, p, end, classes):
    """Read the blank node whose `_` is data[p]. Returns (position behind it or -error, error position)."""
    if p + 2 >= end or data[p + 1] != 58:
        return -E_LABEL, p
    i = p + 2
    stop = i
    # `stop` stays behind the last character that may end a label: dots may stand within one, not at its end.
    while i < end:
        byte = data[i]
        if byte < 128:
            if classes[byte] & (STARTS_LABEL if i == p + 2 else IN_LABEL) != 0:
                i += 1
                stop = i
            elif byte == 46 and i > p + 2:
                i += 1
            else:
                break
        else:
            point, after = read_utf8(data, i, end)
            if point < 0:
                return -E_UTF8, i
            if not is_in_label(point, i == p + 2):
                break
            i = after
            stop = i
    if stop == p + 2 or (stop < end and data[stop] == 58):
        return -E_LABEL, stop
    return stop, stop


@njit_inline
def _read_quoted(data, p, end, classes):
    """Read the text whose first quote is data[p].

    Returns (position of the closing quote or -error, error position, 1 if escaped)."""
    i = p + 1
    escaped = 0
    while True:
        i = _skip_class(data, i, end, classes, IN_LITERAL)
        if i >= end or data[i] == 10 or data[i] == 13:
            return -E_LITERAL_OPEN, p, 0
        byte = data[i]
        if byte == 34:
            return i, i, escaped
        if byte == 92:
            escaped = 1
            following = data[i + 1] if i + 1 < end else 0
            # t b n r f " ' and \
            if (
                following == 116
                or following == 98
                or following == 110
                or following == 114
                or following == 102
                or following == 34
                or following == 39
                or following == 92
            ):
                i += 2
            else:
                point, after = read_escape(data, i, end)
                if point < 0:
                    return -E_ESCAPE, i, 0
                i = after
        else:
            point, after = read_utf8(data, i, end)
            if point < 0:
                return -E_UTF8, i, 0
            i = after


@njit_uncounted
def _is_language_type(data, p, stop, classes):
    """Tell whether the IRI data[p:stop], escapes decoded, is rdf:langString or rdf:dirLangString."""
    at = np.int64(LANGUAGE_TYPES)
    while p < stop:
        point = np.int64(data[p])
        if point == 92:
            point, p = read_escape(data, p, stop)
        else:
            p += 1
        if at == _LANGUAGE_NAME and point == 100:
            at = np.int64(DIRECTION_TYPE)
        if np.int64(classes[at]) != point or point == 0:
            return False
        at += 1
    return at == DIRECTION_TYPE - 1 or at == _DIRECTION_TYPE_STOP


@njit_uncounted
def _find_tail(data, p, end):
    """Return where the language tag or the datatype behind the space at data[p] begins; p if there is none."""
    i = _skip_space(data, p, end)
    return i if i < end and (data[i] == 64 or data[i] == 94) else p


@njit_inline
def _read_literal(data, p, end, classes, fields, row):
    """Read the literal whose first quote is data[p] into fields[row].

    Returns (position behind it or -error, error position)."""
    i, at, escaped = _read_quoted(data, p, end, classes)
    if i < 0:
        return i, at
    fields[row, F_LEX_STOP] = i
    i += 1
    fields[row, F_TAIL] = TAIL_NONE
    if i + 1 < end and (data[i] == 32 or data[i] == 9) and data[i + 1] != 46:
        tail = _find_tail(data, i, end)
        if tail > i:
            i = tail
            escaped = 1
    if i < end and data[i] == 64:
        start = i + 1
        i = start
        part = start
        while i < end and classes[data[i]] & (LETTER if part == start else LETTER_OR_DIGIT) != 0:
            if i - part == SUBTAG_SIZE_MAX:
                return -E_LANGUAGE, i
            if classes[data[i]] & UPPER != 0:
                escaped = 1
            i += 1
            if i < end and data[i] == 45 and i > part and not (i + 1 < end and data[i + 1] == 45):
                i += 1
                part = i
        if i == part:
            return -E_LANGUAGE, i
        if i + 1 < end and data[i] == 45 and data[i + 1] == 45:  # a base direction (RDF 1.2): --ltr or --rtl
            first = data[i + 2] if i + 4 < end else 0
            if not ((first == 108 or first == 114) and data[i + 3] == 116 and data[i + 4] == 222 - first):
                return -E_LANGUAGE, i
            i += 5
        fields[row, F_TAIL] = TAIL_LANGUAGE
        fields[row, F_TAIL_START] = start
        fields[row, F_TAIL_STOP] = i
    elif i + 1 < end and data[i] == 94 and data[i + 1] == 94:
        start = i + 2
        if start < end and data[start] != 60:
            start = _skip_space(data, start, end)
            escaped = 1
        if start >= end or data[start] != 60:
            return -E_DATATYPE, start
        after, at, escaped_iri = _read_iri(data, start, end, classes)
        if after < 0:
            return after, at
        fields[row, F_TAIL] = TAIL_DATATYPE
        fields[row, F_TAIL_START] = start + 1
        fields[row, F_TAIL_STOP] = after - 1
        if after - start - 2 + 64 * escaped_iri >= _LANGUAGE_TYPE_SIZE:
            fields[row, F_TAIL] = TAIL_UNCHECKED
        escaped |= escaped_iri
        i = after
    fields[row, F_ESCAPED] = escaped
    return i, i


@njit_inline
def has_language_type(data, classes, fields, row):
    """Tell whether a term that was read is a literal without a tag whose datatype asks for one."""
    if fields[row, F_KIND] != LITERAL or fields[row, F_TAIL] != TAIL_UNCHECKED:
        return False
    fields[row, F_TAIL] = TAIL_DATATYPE
    return _is_language_type(data, fields[row, F_TAIL_START], fields[row, F_TAIL_STOP], classes)


@njit_inline
def read_term(data, p, end, role, classes, fields, row, memo, offsets, text):
    """Read one term of a role at data[p:end] into fields[row], fields : int64[n, FIELDS].

    memo (may be empty), offsets, text: as for find_known. Ask has_language_type about an object afterwards.

    Returns (position behind it or -error, error position)."""
    byte = data[p] if p < end else 0
    fields[row, F_START] = p
    fields[row, F_ESCAPED] = 0
    if byte == 60:
        place = np.int64(-1)
        if len(memo) > 0:
            after, entry, place = find_known(data, p, end, memo, offsets, text)
            if entry >= 0:
                fields[row, F_KIND] = KNOWN
                fields[row, F_START] = entry
                return after, after
        after, at, escaped = _read_iri(data, p, end, classes)
        fields[row, F_KIND] = IRI
        fields[row, F_MEMO] = place
        fields[row, F_ESCAPED] = escaped
    elif byte == 95 and role != ROLE_PREDICATE:
        after, at = _read_label(data, p, end, classes)
        fields[row, F_KIND] = BLANK
    elif byte == 34 and role == ROLE_OBJECT:
        after, at = _read_literal(data, p, end, classes, fields, row)
        fields[row, F_KIND] = LITERAL
    elif role == ROLE_SUBJECT:
        after, at = -E_SUBJECT_LITERAL if byte == 34 else -E_SUBJECT, p
    elif role == ROLE_PREDICATE:
        after, at = -E_PREDICATE, p
    elif role == ROLE_OBJECT:
        after, at = -E_OBJECT, p
    else:
        after, at = -E_GRAPH, p
    fields[row, F_STOP] = after
    return after, at


@njit_inline
def _read_time(data, p, end):
    """Read a time that a stream takes. Returns (position behind it or -error, value)."""
    negative = p < end and data[p] == 45
    i = p + 1 if negative else p
    first = i
    value = np.int64(0)
    while i < end and i < first + 18 and 48 <= data[i] <= 57:
        value = value * 10 + np.int64(data[i]) - 48
        i += 1
    if i == first or (i < end and 48 <= data[i] <= 57) or value > (-EVENT_MIN_MS if negative else EVENT_MAX_MS):
        return -E_TIME, value
    return i, (-value if negative else value)


@njit_inline
def find_line_end(data, p, end):
    """Return the position of the next line feed or carriage return, `end` if there is none."""
    while p < end and data[p] != 10 and data[p] != 13:
        p += 1
    return p


@njit_uncounted
def _read_comment(data, p, end):
    """Read to the end of the line. Returns (the line's end or -error, error position)."""
    while p < end and data[p] != 10 and data[p] != 13:
        if data[p] < 128:
            p += 1
            continue
        point, after = read_utf8(data, p, end)
        if point < 0:
            return np.int64(-E_UTF8), p
        p = after
    return p, p


@njit_uncounted
def _read_version(data, p, end, classes):
    """Read the directive `VERSION "1.2"` (RDF 1.2) whose `V` is data[p]. Returns (the line's end or -error, error
    position)."""
    if not (
        p + 7 <= end
        and data[p + 1] == 69
        and data[p + 2] == 82
        and data[p + 3] == 83
        and data[p + 4] == 73
        and data[p + 5] == 79
        and data[p + 6] == 78
    ):
        return np.int64(-E_SUBJECT), p
    p = _skip_space(data, p + 7, end)
    if p >= end or data[p] != 34:
        return np.int64(-E_VERSION), p
    quote, at, _ = _read_quoted(data, p, end, classes)
    if quote < 0:
        return np.int64(quote), at
    p = _skip_space(data, quote + 1, end)
    if p < end and data[p] == 35:
        return _read_comment(data, p, end)
    if p < end and data[p] != 10 and data[p] != 13:
        return np.int64(-E_VERSION), p
    return p, p


@njit_uncounted
def read_statement(data, p, end, times, terms_max, classes, fields, row, memo, offsets, text):
    """Read one line's statement, blank line, comment or directive at data[p].

    data : uint8[n]; terms_max : TRIPLE or QUAD; fields : int64[..., FIELDS], filled from `row` on in the order subject,
    predicate, object, graph; if row > 0, the statement before is in the four rows before; memo, offsets, text: as for
    read_term.

    Returns (position of the line's end or -error, error position, number of terms: 0, 3 or 4, time in ms)."""
    time = np.int64(0)
    p = _skip_space(data, p, end)
    if p >= end or data[p] == 10 or data[p] == 13:
        return p, p, 0, time
    if data[p] == 35 or data[p] == 86:
        after, at = _read_comment(data, p, end) if data[p] == 35 else _read_version(data, p, end, classes)
        return after, at, 0, time
    if times == TIME_PREFIX:
        after, time = _read_time(data, p, end)
        if after < 0:
            return after, p, 0, time
        p = _skip_space(data, after, end)
        if p == after:
            return -E_TIME_AFTER, p, 0, time
    count = 0
    while count < 4:
        if count == 3 and p < end and data[p] == 46:
            break
        if count == 3 and (p >= end or (data[p] != 60 and data[p] != 95)):
            return -E_DOT, p, 0, time
        if count == terms_max:
            return -E_FOURTH, p, 0, time
        after = np.int64(-1)
        at = p
        if count == 0 and row > 0 and (fields[row - 4, F_KIND] == IRI or fields[row - 4, F_KIND] == SAME):
            size = fields[row - 4, F_STOP] - fields[row - 4, F_START]
            if p + size <= end and same_bytes(data, p, size, data, fields[row - 4, F_START]):
                after = p + size
                fields[row, F_KIND] = SAME
                fields[row, F_START] = p
                fields[row, F_STOP] = after
        if after < 0:
            after, at = read_term(data, p, end, count, classes, fields, row + count, memo, offsets, text)
        if after < 0:
            return after, at, 0, time
        count += 1
        p = _skip_space(data, after, end)
    if p >= end or data[p] != 46:
        return -E_DOT, p, 0, time
    if has_language_type(data, classes, fields, row + ROLE_OBJECT):
        return -E_LANGUAGE_TYPE, fields[row + ROLE_OBJECT, F_TAIL_START] - 1, 0, time
    p = _skip_space(data, p + 1, end)
    if times == TIME_SUFFIX:
        after, time = _read_time(data, p, end)
        if after < 0:
            return after, p, 0, time
        p = _skip_space(data, after, end)
    if p < end and data[p] == 35:
        after, at = _read_comment(data, p, end)
        return after, at, count, time
    if p < end and data[p] != 10 and data[p] != 13:
        return -E_AFTER_DOT, p, 0, time
    return p, p, count, time

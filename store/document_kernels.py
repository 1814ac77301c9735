# mypy: disallow-untyped-defs=false
"""Counts the tokens of documents while they are read: their bytes, their lines, and how deeply they nest.

A parser of a library reads the same text. These kernels only bound what it meets, and tell where a document ends. Text
that no parser accepts may be counted in any way.

* The state of a document is int64[STATE_WIDTH], zeros at its beginning. It goes from piece to piece.
* A piece may end anywhere, inside of a token or a character as well.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.dtypes import BoolArray
from wukongs.store.jit import njit

MODE, DEPTH, IS_CLOSED, TOKEN_BYTES, LINE_ENDS, TOKEN_LINE_ENDS, LAST, REPEATED = range(8)
"""Fields of the state: what the next byte is part of; open elements or triple terms; whether the root element has
ended; bytes of the token so far; line feeds before the next byte, and before the token; the byte before, as far as it
counts; how often it was there in a row."""
STATE_WIDTH = 8
PLAIN = 0
"""The mode between tokens, with which documents begin and end."""
GOES_ON, TOO_LONG, TOO_DEEP, BEHIND_ROOT = range(4)
"""The findings of scan_markup and scan_tokens."""

_OPEN, _TAG, _TAG_DOUBLE, _TAG_SINGLE, _END_TAG, _BANG, _COMMENT, _CDATA, _INSTRUCTION, _DOCTYPE = range(1, 11)
_LESS, _GREATER, _IRI, _LINE_COMMENT, _ESCAPED, _QUOTE, _QUOTES, _SHORT, _SHORT_ESCAPED, _LONG, _LONG_ESCAPED = range(
    1, 12
)
_FEED, _RETURN, _BLANK = 10, 13, 32
_DOUBLE, _HASH, _SINGLE, _HYPHEN, _SLASH, _LT, _GT, _EXCLAMATION, _QUESTION = 34, 35, 39, 45, 47, 60, 62, 33, 63
_BRACKET, _CLOSE, _BACKSLASH = 91, 93, 92
_SIGNS = (40, 41, 44, 59, 91, 93, 94, 123, 124, 125)
"""( ) , ; [ ] ^ { | }, each a sign of its own between names, numbers and words."""


def _quiet(loud_of_modes: dict[int, bytes]) -> BoolArray:
    """Return which bytes change nothing in a mode. loud_of_modes: those that do; all in other modes."""
    quiet = np.zeros((12, 256), np.bool_)
    for mode, loud in loud_of_modes.items():
        quiet[mode] = True
        quiet[mode, list(loud + b"\n")] = False
    return quiet


_CONTROLS = bytes(range(33))
QUIET_IN_MARKUP = _quiet(
    {
        PLAIN: b"<",
        _TAG: b"\"'>",
        _TAG_DOUBLE: b'"',
        _TAG_SINGLE: b"'",
        _END_TAG: b">",
        _COMMENT: b"->",
        _CDATA: b"]>",
        _INSTRUCTION: b"?>",
        _DOCTYPE: b"]>",
    }
)
QUIET_IN_TOKENS = _quiet(
    {
        PLAIN: b"<>\"'#\\" + bytes(_SIGNS) + _CONTROLS,
        _IRI: b">" + _CONTROLS,
        _LINE_COMMENT: b"\r",
        _SHORT: b"\"'\\",
        _LONG: b"\"'\\",
    }
)


@njit
def scan_markup(text, state, depth_max, token_max, is_quiet):
    """Count the next piece of an XML document, without internal subset but for one that ends with `]>`.

    Parameters
    ----------
    text : uint8[n]              The next piece.
    state : int64[STATE_WIDTH]   Of the document. DEPTH counts the elements that are open.
    depth_max : int              Elements in each other at most.
    token_max : int              Bytes of a tag, a text, a comment or a section at most.
    is_quiet : bool[modes, 256]  QUIET_IN_MARKUP.

    Returns
    -------
    found : GOES_ON; TOO_LONG, TOO_DEEP; BEHIND_ROOT: there is a tag or a text behind the root element. TOKEN_LINE_ENDS
    then has the line ends before that token.
    place : int                  Up to where the text was counted.

    Cost: n steps."""
    mode, depth, is_closed, token = state[MODE], state[DEPTH], state[IS_CLOSED], state[TOKEN_BYTES]
    line, token_line, last, repeated = state[LINE_ENDS], state[TOKEN_LINE_ENDS], state[LAST], state[REPEATED]
    found, i = GOES_ON, 0
    while i < len(text):
        begin = i
        if is_closed == 0 or mode != PLAIN:
            while i < len(text) and is_quiet[mode, text[i]]:
                i += 1
        if i > begin:
            token, last, repeated = token + i - begin, text[i - 1], 0
            if token > token_max:
                found = TOO_LONG
            if i == len(text) or found != GOES_ON:
                break
        byte = text[i]
        i += 1
        token += 1
        before = mode
        if mode == PLAIN:
            if byte == _LT:
                mode, token, token_line = _OPEN, 1, line
            elif is_closed == 1 and byte > _BLANK:
                found, token_line = BEHIND_ROOT, line
        elif mode == _TAG:
            if byte == _DOUBLE:
                mode = _TAG_DOUBLE
            elif byte == _SINGLE:
                mode = _TAG_SINGLE
            elif byte == _GT:
                if depth >= depth_max:
                    found = TOO_DEEP
                if last != _SLASH:
                    depth += 1
                elif depth == 0:
                    is_closed = 1
                mode = PLAIN
            last = byte
        elif mode == _TAG_DOUBLE:
            if byte == _DOUBLE:
                mode, last = _TAG, byte
        elif mode == _TAG_SINGLE:
            if byte == _SINGLE:
                mode, last = _TAG, byte
        elif mode == _END_TAG:
            if byte == _GT:
                mode = PLAIN
                depth -= 1
                if depth <= 0:
                    is_closed = 1
        elif mode == _OPEN:
            last, repeated = 0, 0
            if byte == _SLASH:
                mode = _END_TAG
            elif byte == _EXCLAMATION:
                mode = _BANG
            elif byte == _QUESTION:
                mode = _INSTRUCTION
            else:
                mode, last = _TAG, byte
                if is_closed == 1:
                    found = BEHIND_ROOT
        elif mode == _BANG:
            mode = _COMMENT if byte == _HYPHEN else _CDATA if byte == _BRACKET else _DOCTYPE
            repeated = -1 if byte == _HYPHEN else 0  # the second hyphen begins the comment, too
        elif mode in (_COMMENT, _CDATA):
            if byte == (_HYPHEN if mode == _COMMENT else _CLOSE):
                repeated += 1
            else:
                if byte == _GT and repeated >= 2:
                    mode = PLAIN
                repeated = 0
        else:
            if byte == _GT and last == (_QUESTION if mode == _INSTRUCTION else _CLOSE):
                mode = PLAIN
            last = byte
        if mode == PLAIN and before != PLAIN:
            token, token_line = 0, line
        if byte == _FEED:
            line += 1
        if token > token_max:
            found = TOO_LONG
        if found != GOES_ON:
            break
    state[MODE], state[DEPTH], state[IS_CLOSED], state[TOKEN_BYTES] = mode, depth, is_closed, token
    state[LINE_ENDS], state[TOKEN_LINE_ENDS], state[LAST], state[REPEATED] = line, token_line, last, repeated
    return found, i - max(token - token_max, 0)


@njit
def scan_tokens(text, state, depth_max, token_max, is_quiet):
    """Count the next piece of a document in Turtle, TriG, N3, N-Triples, N-Quads or JSON.

    The strings and numbers of JSON are tokens of Turtle, too.

    Parameters
    ----------
    text : uint8[n]              The next piece.
    state : int64[STATE_WIDTH]   Of the document. DEPTH counts the triple terms that are open.
    depth_max : int              Triple terms in each other at most.
    token_max : int              Bytes of a name, IRI, string, number or comment at most.
    is_quiet : bool[modes, 256]  QUIET_IN_TOKENS.

    Returns
    -------
    found : GOES_ON; TOO_LONG, TOO_DEEP. TOKEN_LINE_ENDS then has the line ends before that token.
    place : int                  Up to where the text was counted.

    Cost: n steps."""
    mode, depth, token, line = state[MODE], state[DEPTH], state[TOKEN_BYTES], state[LINE_ENDS]
    token_line, quote, repeated = state[TOKEN_LINE_ENDS], state[LAST], state[REPEATED]
    found, i = GOES_ON, 0
    while i < len(text):
        begin = i
        while i < len(text) and is_quiet[mode, text[i]]:
            i += 1
        if i > begin:
            token, repeated = token + i - begin, 0
            if token > token_max:
                found = TOO_LONG
            if i == len(text) or found != GOES_ON:
                break
        byte = text[i]
        i += 1
        token += 1
        if mode == _QUOTES:  # two of them: an empty string, unless a third one begins a long one
            mode = _LONG if byte == quote else PLAIN
            repeated = 0
            if mode == _LONG:
                continue
        elif mode == _GREATER:
            mode = PLAIN
            if byte == _GT:
                depth = max(depth - 1, 0)
                token, token_line = 0, line
                continue
        elif mode == _LESS:
            mode = _IRI
            if byte == _LT:
                mode, token, token_line = PLAIN, 0, line
                depth += 1
                if depth > depth_max:
                    found = TOO_DEEP
                    break
                continue
        if mode == PLAIN:
            if byte == _LT:
                mode, token, token_line = _LESS, 1, line
            elif byte == _GT:
                mode, token, token_line = _GREATER, 1, line
            elif byte in (_DOUBLE, _SINGLE):
                mode, token, token_line, quote = _QUOTE, 1, line, byte
            elif byte == _HASH:
                mode, token, token_line = _LINE_COMMENT, 1, line
            elif byte == _BACKSLASH:
                mode = _ESCAPED
            elif byte <= _BLANK or byte in _SIGNS:
                token, token_line = 0, line
        elif mode == _IRI:
            if byte == _GT or byte <= _BLANK:  # `<` is an operator of N3 before a blank
                mode, token, token_line = PLAIN, 0, line
        elif mode == _LINE_COMMENT:
            if byte in (_FEED, _RETURN):
                mode, token, token_line = PLAIN, 0, line
        elif mode == _ESCAPED:
            mode = PLAIN
        elif mode == _QUOTE and byte == quote:
            mode = _QUOTES
        elif mode in (_QUOTE, _SHORT):
            mode = _SHORT_ESCAPED if byte == _BACKSLASH else _SHORT
            if byte == quote:
                mode, token, token_line = PLAIN, 0, line
        elif mode == _SHORT_ESCAPED:
            mode = _SHORT
        elif mode == _LONG:
            repeated = repeated + 1 if byte == quote else 0
            if byte == _BACKSLASH:
                mode = _LONG_ESCAPED
            elif repeated == 3:
                mode, token, token_line = PLAIN, 0, line
        elif mode == _LONG_ESCAPED:
            mode = _LONG
        if byte == _FEED:
            line += 1
            if mode == PLAIN:
                token_line = line
        if token > token_max:
            found = TOO_LONG
            break
    state[MODE], state[DEPTH], state[TOKEN_BYTES], state[LINE_ENDS] = mode, depth, token, line
    state[TOKEN_LINE_ENDS], state[LAST], state[REPEATED] = token_line, quote, repeated
    return found, i - max(token - token_max, 0)

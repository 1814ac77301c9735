"""A document on its way to a parser: its tokens, its nesting and its end are checked while it is read.

The parsers of the library hold a token as a whole, end the process at some ten thousand triple terms in each other, and
take RDF/XML that is cut off for a whole document. Such documents end in a DataError with their line.
"""

from __future__ import annotations

import io
from functools import partial
from typing import IO, NoReturn

import numpy as np

from wukongs.errors import DataError
from wukongs.store.document_kernels import (
    BEHIND_ROOT,
    DEPTH,
    GOES_ON,
    IS_CLOSED,
    LINE_ENDS,
    MODE,
    PLAIN,
    QUIET_IN_MARKUP,
    QUIET_IN_TOKENS,
    STATE_WIDTH,
    TOKEN_LINE_ENDS,
    TOO_DEEP,
    scan_markup,
    scan_tokens,
)

TOKEN_BYTES_MAX = 16_000_000
"""Bytes of a token at most: the library's buffers have 16 MiB."""
JSON_TOKEN_BYTES_MAX = 8_000_000
"""Bytes of a token of JSON at most: the library doubles its buffer when 8 MiB are full."""
READ_BYTES = 1 << 21
"""Text is counted in pieces of this size: kernels that are not compiled yet are interpreted for smaller ones."""
ELEMENTS_MAX = 2_000
"""Elements of XML in each other at most: the time that the library takes for each grows with their number."""
TRIPLE_TERMS_MAX = 100
"""Triple terms in each other at most, reified triples counted."""


class ScannedFile:
    """Reads another file, in a format of rdf_files.FORMATS.

    Raises DataError, with the line: a token is too long, the nesting too deep; for XML also if it ends before its root
    element does, or goes on behind it."""

    def __init__(self, source: IO[bytes], name: str, format: str) -> None:
        """name: of the file, in errors."""
        self._source, self._name = source, name
        self._is_markup = format == "rdf"
        self._token_max = JSON_TOKEN_BYTES_MAX if format == "jsonld" else TOKEN_BYTES_MAX
        self._state = np.zeros(STATE_WIDTH, np.int64)
        self._ready = io.BytesIO()
        """Text to hand on, before which nothing is wrong."""
        self._found = GOES_ON
        """The finding behind it. The parser may find a mistake before."""

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(partial(self.read, READ_BYTES), b""))
        while not (data := self._ready.read(size)) and size:
            if self._found != GOES_ON:
                self._refuse()
            text = self._source.read(READ_BYTES)
            if not text:
                self._check_end()
                break
            self._ready = io.BytesIO(text[: self._scanned(text)])
        return data

    def _scanned(self, text: bytes) -> int:
        """Count a piece of text; return up to where nothing is wrong."""
        found, place = (
            scan_markup(np.frombuffer(text, np.uint8), self._state, ELEMENTS_MAX, self._token_max, QUIET_IN_MARKUP)
            if self._is_markup
            else scan_tokens(
                np.frombuffer(text, np.uint8), self._state, TRIPLE_TERMS_MAX, self._token_max, QUIET_IN_TOKENS
            )
        )
        self._found = found
        return int(place)

    def _check_end(self) -> None:
        state = self._state
        if not self._is_markup:
            return
        if state[IS_CLOSED] and state[MODE] == PLAIN and not state[DEPTH]:
            return
        found = f"{state[DEPTH]} elements are open" if state[DEPTH] else "its root element is not whole"
        raise DataError(f"the document is cut off: {found} at its end", self._name, int(state[LINE_ENDS]) + 1)

    def _refuse(self) -> NoReturn:
        found = self._found
        line = int(self._state[TOKEN_LINE_ENDS]) + 1
        if found == TOO_DEEP:
            kind, most = ("elements", ELEMENTS_MAX) if self._is_markup else ("triple terms", TRIPLE_TERMS_MAX)
            raise DataError(f"expected at most {most:,} {kind} in each other, found more", self._name, line)
        if found == BEHIND_ROOT:
            raise DataError("expected the end of the document behind its root element, found more", self._name, line)
        raise DataError(too_long(self._token_max), self._name, line)


def too_long(size_max: int = TOKEN_BYTES_MAX, kind: str = "a token") -> str:
    return f"{kind} is longer than {size_max // 10**6} MB: expected shorter ones, such as a link to a large file"

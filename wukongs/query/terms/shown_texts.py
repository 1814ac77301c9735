"""Texts as answers show them: canonical forms with language tags cased as RFC 5646, 2.1.1 recommends.

Ids hash the canonical form, whose tags are in lower case, so that `"a"@en-GB` and `"a"@EN-gb` are one term (RDF 1.1
Concepts, 3.3). The case is put in where texts leave the engine (decision 0110): it depends on the tag alone, so all
nodes and all replays show the same, and nothing stored knows of it.

* A shown text has as many bytes as its canonical form, and reading it gives the same term.
* Showing a shown text changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.canonical import shown_tag, triple_parts
from wukongs.store.dtypes import Int64Array, UInt8Array

_QUOTE, _CLOSING, _OPENING, _AT, _HYPHEN, _TO_UPPER = ord('"'), ord(">"), ord("("), ord("@"), ord("-"), 32


def shown(text: str) -> str:
    """Return a canonical form as answers show it."""
    if text[-1] in '">' or text[0] not in '"(':
        return text
    if text[0] == "(":
        return f"({' '.join(map(shown, triple_parts(text)))})"
    head, _, tag = text.rpartition("@")
    return f"{head}@{shown_tag(tag)}"


class ShownTexts:
    """A reader that shows the texts of another."""

    __slots__ = ("_reader",)

    def __init__(self, reader: Utf8Reader) -> None:
        self._reader = reader

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the shown text of each id; UNBOUND is never asked."""
        texts = self._reader.texts(ids)
        # Most terms end in a quote or a bracket; blank nodes and tags without a hyphen stay as they are, too.
        return [text if text[-1] in '">' or text[-3] == "@" or text[0] == "_" else shown(text) for text in texts]

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the shown texts of ids as UTF-8, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""
        text, offsets = self._reader.gather(ids)
        return shown_bytes(text, offsets), offsets


def shown_bytes(text: UInt8Array, offsets: Int64Array) -> UInt8Array:
    """Return canonical forms as answers show them; the same array if nothing changes.

    text : uint8[n_bytes]; offsets : int64[n + 1], the form i is text[offsets[i]:offsets[i + 1]]. Tags of a language and
    a region, such as en-gb, are changed all at once, others one by one."""
    if len(offsets) < 2:
        return text
    stops = offsets[1:]
    last = text[stops - 1]
    is_open = (last != _QUOTE) & (last != _CLOSING)
    if not is_open.any():
        return text
    rows = np.flatnonzero(is_open)
    first = text[offsets[rows]]
    nested, rows = rows[first == _OPENING], rows[first == _QUOTE]
    rows = rows[(text[stops[rows] - 3] != _AT) & (text[stops[rows] - 4] != _AT)]  # @en and @gsw stay
    if not len(rows) and not len(nested):
        return text
    text = text.copy()
    ends = stops[rows]
    has_region = (text[ends - 3] == _HYPHEN) & (text[np.maximum(ends - 6, 0)] == _AT)
    for place in (ends[has_region] - 2, ends[has_region] - 1):
        text[place] -= np.where((text[place] >= ord("a")) & (text[place] <= ord("z")), _TO_UPPER, 0).astype(np.uint8)
    rest = np.concatenate((rows[~has_region], nested))
    return text if not len(rest) else _one_by_one(text, offsets[rest].tolist(), stops[rest].tolist())


def _one_by_one(text: UInt8Array, starts: Sequence[int], stops: Sequence[int]) -> UInt8Array:
    """Show the forms text[starts[i]:stops[i]]: tagged literals and triple terms."""
    whole = bytearray(text)
    known: dict[bytes, bytes] = {}
    for start, stop in zip(starts, stops, strict=True):
        if whole[start] == _OPENING:
            whole[start:stop] = shown(whole[start:stop].decode()).encode()
            continue
        at = whole.rfind(b"@", start, stop) + 1
        tag = bytes(whole[at:stop])
        made = known.get(tag)
        if made is None:
            made = known[tag] = shown_tag(tag.decode()).encode()
        whole[at:stop] = made
    return np.frombuffer(whole, np.uint8)

"""store/line_pieces.py: a text of lines in pieces, cut where lines end."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.store import line_pieces
from wukongs.store.line_pieces import cut_ranges, cut_stream

TEXTS = st.text(st.sampled_from("ab\n\r"), max_size=60).map(str.encode)
_LINE_END = re.compile(rb"\r\n|\r|\n")


def check(pieces: list[bytes], text: bytes) -> None:
    assert b"".join(pieces) == text
    assert all(pieces)
    ends = {match.end() for match in _LINE_END.finditer(text)} | {len(text)}
    at = 0
    for piece in pieces:
        at += len(piece)
        assert at in ends


@given(TEXTS, st.integers(1, 9))
@fuzzed(300)
def test_pieces_of_a_stream_are_whole_lines(text: bytes, size: int) -> None:
    check([bytes(piece) for piece in cut_stream(io.BytesIO(text), size)], text)


@given(TEXTS, st.integers(1, 9), st.integers(2, 5))
@fuzzed(300)
def test_ranges_of_a_file_are_whole_lines(text: bytes, size: int, look: int) -> None:
    descriptor = os.memfd_create("lines") if hasattr(os, "memfd_create") else pytest.skip("no file in memory")
    try:
        os.write(descriptor, text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_pieces, "LOOK_BYTES", look)
            ranges = list(cut_ranges(descriptor, 0, len(text), size))
    finally:
        os.close(descriptor)
    check([text[start:stop] for start, stop in ranges], text)
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]


def test_a_file_that_has_grown_is_read_to_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\nbc\ndef\n")
    with path.open("rb") as file:
        assert list(cut_ranges(file.fileno(), 2, 5, 100)) == [(2, 5)]
        assert list(cut_ranges(file.fileno(), 2, 9, 2)) == [(2, 5), (5, 9)]

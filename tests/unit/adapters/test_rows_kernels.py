"""The kernels of the line sources, jitted and plain, against plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles import line_rows
from wukongs.adapters.sources import rows_kernels as kernels
from wukongs.adapters.sources.lsbench_file import RDF_TYPE
from wukongs.store.encoder import CHARACTER_CLASSES
from wukongs.store.ntriples_kernels import QUAD, TIME_SUFFIX

pytestmark = pytest.mark.nojit
PREFIXES = {b"ex": b"http://ex/", b"e": b"http://e#", b"": b"http://none/"}


def _both(kernel: Any) -> list[Callable[..., Any]]:
    """The compiled kernel and the function that it was made of (the same one without jit)."""
    return [kernel, getattr(kernel, "py_func", kernel)]


def _array(data: bytes) -> Any:
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"])
_STATEMENTS = st.sampled_from(
    [
        b"<h:a> <h:p> <h:b> . 5",
        b'<h:a>\t<h:p>"x"  .  -12  ',
        b'<h:a> <h:p> "" . 4300000000000 # note',
        b"<h:a> <h:p> <h:b> .",
        b"<h:a> <h:p> <h:b> . 1234567890123456789",
        b"<h:a> <h:p> <h:b> . 5 6",
        b"<h:a> <h:p> . 5",
        b"# only a note",
        b"  ",
        b"",
    ]
)


@fuzzed(150)
@given(lines=st.lists(st.tuples(_STATEMENTS, _ENDS), max_size=12), cut=st.booleans())
def test_rows_and_times_are_those_of_plain_python(lines: list[tuple[bytes, bytes]], cut: bool) -> None:
    data = b"".join(line + end for line, end in lines)
    data = data.rstrip(b"\r\n") if cut else data
    rows = line_rows.rows_of(data)
    expected_starts = np.cumsum([0, *map(len, rows)]).tolist()
    for count_rows in _both(kernels.count_rows):
        assert count_rows(_array(data), 0) == len(rows)
    for scan_rows in _both(kernels.scan_rows):
        starts, times = np.zeros(len(rows) + 1, np.int64), np.zeros(len(rows), np.int64)
        scan_rows(_array(data), 0, TIME_SUFFIX, QUAD, CHARACTER_CLASSES, starts, times)
        assert starts.tolist() == expected_starts
        assert times.tolist() == [line_rows.time_of(row) for row in rows]
    for scan_starts in _both(kernels.scan_starts):
        starts = np.zeros(len(rows) + 1, np.int64)
        scan_starts(_array(data), 0, starts)
        assert starts.tolist() == expected_starts


@fuzzed(100)
@given(
    st.lists(st.sampled_from(["5", "-7", "", "x", "1 2", "123456789012345678", "1234567890123456789", "-"]), max_size=9)
)
def test_integers_are_read_one_a_row(texts: list[str]) -> None:
    data = "".join(f"{text}\n" for text in texts).encode()
    expected = [int(text) if text.lstrip("-").isdigit() and len(text) <= 18 else line_rows.NO_TIME for text in texts]
    for read_integers in _both(kernels.read_integers):
        values = np.zeros(len(texts), np.int64)
        read_integers(_array(data), values)
        assert values.tolist() == expected


_WORDS = st.sampled_from(
    [b"ex:a", b"e:b", b":c", b"exx:d", b"nope", b"<h:x>", b"_:b", b"_:", b"a", b'"v"', b'"two words"', b'"open',
     b'"1"^^ex:int', b'"1"^^no:int', b'"1"^^', b'"x"@en', b".", b"", b'"'],
)  # fmt: skip


@fuzzed(300)
@given(
    st.lists(st.tuples(st.lists(_WORDS, max_size=4), st.sampled_from([b" .", b"", b" . ", b"."]), _ENDS), max_size=6)
)
def test_prefixed_lines_are_spelt_out_or_marked(lines: list[tuple[list[bytes], bytes, bytes]]) -> None:
    data = b"".join(b" ".join(words) + stop + end for words, stop, end in lines)
    rows = line_rows.rows_of(data)
    expected = [line_rows.expand(row, PREFIXES) for row in rows]
    names, spaces = list(PREFIXES), list(PREFIXES.values())
    for expand in _both(kernels.expand_prefixed):
        out = np.zeros(len(data) + 200 * len(rows) + 1, np.uint8)
        status, places = np.zeros(len(rows), np.uint8), np.zeros(len(rows), np.int64)
        written = expand(
            _array(data),
            _array(RDF_TYPE),
            _array(b"".join(names)),
            np.cumsum([0, *map(len, names)]),
            _array(b"".join(spaces)),
            np.cumsum([0, *map(len, spaces)]),
            out,
            status,
            places,
        )
        assert (status == kernels.OK).tolist() == [line is not None for line in expected]
        assert out[:written].tobytes() == b"".join(line + b"\n" for line in expected if line is not None)
        for row, start in enumerate(np.cumsum([0, *map(len, rows)])[:-1].tolist()):
            if status[row] not in (kernels.OK, kernels.BLANK_ROW):
                assert start <= places[row] <= start + len(rows[row])

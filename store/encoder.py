"""RDF in N-Triples or N-Quads, as lines or as columns of terms -> Encoded: columns of term ids and their strings.

The same code serves load, push and the pipeline; any process encodes without asking another. The hot loops are in
store/encode_kernels.py; this module owns the growing tables behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from wukongs.errors import DataError
from wukongs.store import encode_kernels as kernels
from wukongs.store import ntriples_kernels as grammar
from wukongs.store.dtypes import CLASH_FIRST, HASH_SEED, INLINE_MARK, UNBOUND, BoolArray, Int64Array, UInt8Array
from wukongs.store.encoded import (
    NO_SIGNS,
    NOT_UTF8,
    Encoded,
    MalformedLine,
    TermTable,
    cut,
    replace_ids,
    signs,
    utf8_fault,
)
from wukongs.store.slot_kernels import fill_slots, take_texts
from wukongs.store.term_ids import (
    DATATYPE_NAMES,
    DATATYPES,
    HASH_BITS,
    hash_mask,
    is_inlined,
    readonly_bytes,
    term_id,
    text_ids,
    unpack,
)
from wukongs.store.terms import blank_node_prefix

if TYPE_CHECKING:
    import mmap

    import pyarrow as pa

__all__ = [
    "REASONS",
    "canonical_term",
    "encode_columns",
    "encode_ntriples",
    "term_id",
]

TermColumn: TypeAlias = "Sequence[str | None] | pa.Array | pa.ChunkedArray"
Timestamps = Literal["none", "suffix", "prefix"]
_TIMES = {"none": grammar.NO_TIMES, "suffix": grammar.TIME_SUFFIX, "prefix": grammar.TIME_PREFIX}

REASONS: dict[int, str] = {
    grammar.E_SUBJECT: "expected a subject: an IRI in <> or a blank node",
    grammar.E_SUBJECT_LITERAL: "a literal cannot be a subject",
    grammar.E_PREDICATE: "expected a predicate: an IRI in <>",
    grammar.E_OBJECT: "expected an object: an IRI in <>, a blank node or a literal in double quotes",
    grammar.E_GRAPH: "expected a graph name: an IRI in <> or a blank node",
    grammar.E_DOT: "expected '.' at the end of the statement",
    grammar.E_AFTER_DOT: "expected the end of the line after the statement",
    grammar.E_IRI_OPEN: "this IRI has no closing '>' on its line",
    grammar.E_IRI_CHARACTER: "this character cannot stand in an IRI",
    grammar.E_IRI_RELATIVE: "this IRI is relative: it has to begin with a scheme such as http:",
    grammar.E_LITERAL_OPEN: "this literal has no closing quote on its line",
    grammar.E_ESCAPE: "this is not a valid escape",
    grammar.E_UTF8: NOT_UTF8,
    grammar.E_LANGUAGE: "this is not a valid language tag",
    grammar.E_DATATYPE: "expected a datatype IRI in <> after '^^'",
    grammar.E_LABEL: "this is not a valid blank node label",
    grammar.E_TIME: "expected a timestamp, an integer in milliseconds",
    grammar.E_TIME_AFTER: "expected a tab between timestamp and subject",
    grammar.E_AFTER_TERM: "expected the end of the term",
    grammar.E_NULL: "a value is missing (null)",
    grammar.E_FOURTH: "expected '.' after three terms: N-Triples has no graphs, N-Quads (nq) has",
    grammar.E_LANGUAGE_TYPE: "expected a language tag: this datatype is that of literals which have one",
    grammar.E_VERSION: "expected a version in double quotes after VERSION, and the end of the line",
}

_ROLES = {
    "subject": grammar.ROLE_SUBJECT,
    "predicate": grammar.ROLE_PREDICATE,
    "object": grammar.ROLE_OBJECT,
    "graph": grammar.ROLE_GRAPH,
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_BYTES = 100
_MEMO_BITS_MAX = 14
_NO_TIMES = np.empty(0, np.int64)
_LANGUAGE_TYPES = b"http://www.w3.org/1999/02/22-rdf-syntax-ns#langString\0dirLangString\0"


def _character_classes() -> UInt8Array:
    types = np.frombuffer(_LANGUAGE_TYPES, np.uint8)
    classes = np.zeros(grammar.LANGUAGE_TYPES + len(types), np.uint8)
    classes[grammar.LANGUAGE_TYPES :] = types
    for byte in range(128):
        character = chr(byte)
        if byte > 32 and byte != 127 and character not in '<>"{}|^`\\':
            classes[byte] |= grammar.IN_IRI
        if character not in '"\\\n\r':
            classes[byte] |= grammar.IN_LITERAL
        if character.isalnum() or character == "_":
            classes[byte] |= grammar.STARTS_LABEL
        if character.isalnum() or character in "_-":
            classes[byte] |= grammar.IN_LABEL
        if character.isalpha():
            classes[byte] |= grammar.LETTER
        if character.isalnum():
            classes[byte] |= grammar.LETTER_OR_DIGIT
        if character.isalnum() or character in "+-.":
            classes[byte] |= grammar.IN_SCHEME
        if character.isupper():
            classes[byte] |= grammar.UPPER
    # 127 is a control character, but the grammar lets it stand in an IRI.
    classes[127] |= grammar.IN_IRI
    return classes


CHARACTER_CLASSES = _character_classes()


class _TermTableBuilder:
    """The growing table of distinct terms that one call of the encoder fills."""

    def __init__(self, scope: bytes, hash_bits: int, text_size: int, term_count: int) -> None:
        slot_bits = max(4, (2 * term_count).bit_length())
        self.state = np.zeros(kernels.STATE_SIZE, np.int64)
        self.fixed: tuple[Any, ...] = (
            CHARACTER_CLASSES,
            DATATYPE_NAMES,
            DATATYPES,
            blank_node_prefix(scope),
            np.uint64(HASH_SEED),
            hash_mask(hash_bits),
        )
        self.text: UInt8Array = np.empty(text_size, np.uint8)
        self.memo = np.zeros(1 << min(slot_bits, _MEMO_BITS_MAX), np.int32)
        self._make_room(slot_bits)
        self.offsets[0] = 0

    def _make_room(self, slot_bits: int) -> None:
        capacity = 1 << (slot_bits - 1)
        self.offsets: Int64Array = np.empty(capacity + 1, np.int64)
        self.ids: Int64Array = np.empty(capacity, np.int64)
        self.values: Int64Array = np.empty(capacity, np.int64)
        self.slots = np.zeros(1 << slot_bits, np.int32)

    def arrays(self) -> tuple[Any, ...]:
        """Return the arguments of the kernels from `text` on."""
        return self.text, self.offsets, self.ids, self.values, self.slots, self.memo, self.state

    def grow(self, full: int) -> None:
        """Make room in the table that the kernel found full."""
        count = int(self.state[kernels.S_TERMS])
        if full == kernels.FULL_TEXT:
            used = int(self.offsets[count])
            text = np.empty(max(2 * len(self.text), int(self.state[kernels.S_TEXT_NEEDED])), np.uint8)
            text[:used] = self.text[:used]
            self.text = text
            return
        offsets, ids, values = self.offsets, self.ids, self.values
        self._make_room(len(self.slots).bit_length())
        self.offsets[: count + 1] = offsets[: count + 1]
        self.ids[:count] = ids[:count]
        self.values[:count] = values[:count]
        fill_slots(self.ids, count, self.slots)

    def tables(self) -> tuple[TermTable, TermTable]:
        """Return the distinct terms, and apart those that clash with one of them."""
        count = int(self.state[kernels.S_TERMS])
        ids, offsets = self.ids[:count].copy(), self.offsets[: count + 1].copy()
        whole = TermTable(ids, offsets, self.text[: offsets[-1]].copy())
        if self.state[kernels.S_CLASHES] == 0:
            return whole, TermTable.empty()
        clashing = self.values[:count] <= CLASH_FIRST
        return whole.take(np.flatnonzero(~clashing)), whole.take(np.flatnonzero(clashing))


def encode_ntriples(
    data: bytes | memoryview | mmap.mmap,
    scope: bytes,
    *,
    timestamps: Timestamps = "none",
    graphs: bool = True,
    hash_bits: int = HASH_BITS,
    first_line: int = 1,
) -> tuple[Encoded, list[MalformedLine]]:
    """Encode lines of N-Quads, or with graphs=False of N-Triples, malformed ones set aside.

    scope says where blank node labels are valid. timestamps: "suffix" for `s p o [g] . 1234567`, "prefix" for
    `1234567<TAB>s p o [g] .`, in ms. A byte order mark, blank lines, comments, LF, CRLF and CR line ends are all right.
    Lines are numbered from first_line on."""
    encoded, malformed, _ = encode_lines(memoryview(data), scope, timestamps, graphs, hash_bits, first_line)
    return encoded, malformed


def encode_lines(
    data: bytes | memoryview, scope: bytes, timestamps: Timestamps, graphs: bool, hash_bits: int, first_line: int
) -> tuple[Encoded, list[MalformedLine], int]:
    """Do the same as encode_ntriples, for one piece of a longer text; the third result is the number of the line behind
    it."""
    array = readonly_bytes(data)
    builder = _TermTableBuilder(scope, hash_bits, len(array) // 4 + 4096, min(len(array) // 200, 1 << 20) + 64)
    state = builder.state
    state[kernels.S_LINE] = first_line
    if array[:3].tobytes() == _BYTE_ORDER_MARK:
        state[kernels.S_POSITION] = 3
    columns = np.empty((5, len(array) // _LINE_BYTES + kernels.BLOCK_ROWS), np.int64)
    malformed = np.empty((16, 5), np.int64)
    scratch = (_scratch_fields(), np.empty(4 * kernels.BLOCK_ROWS, np.int64), np.empty(kernels.BLOCK_ROWS, np.int64))
    with np.errstate(over="ignore"):
        while True:
            modes = (_TIMES[timestamps], terms_max(graphs))
            arguments = (array, *modes, *builder.fixed, columns, malformed, *scratch, *builder.arrays())
            full = kernels.encode_lines(*arguments)
            if full == kernels.DONE:
                break
            if full == kernels.FULL_ROWS:
                columns = np.concatenate((columns, np.empty_like(columns)), axis=1)
            elif full == kernels.FULL_MALFORMED:
                malformed = np.concatenate((malformed, np.empty_like(malformed)))
            else:
                builder.grow(full)
    rows = int(state[kernels.S_ROWS])
    # A view keeps the whole table alive: good enough if that is not mostly empty.
    trimmed = [column[:rows] if 2 * rows > columns.shape[1] else column[:rows].copy() for column in columns]
    terms, clashes = builder.tables()
    times = _NO_TIMES if timestamps == "none" else trimmed[4]
    encoded = Encoded(trimmed[0], trimmed[1], trimmed[2], trimmed[3], times, terms, clashes)
    bad_lines = [_describe(array, row) for row in malformed[: state[kernels.S_MALFORMED]].tolist()]
    return encoded, bad_lines, int(state[kernels.S_LINE])


def _scratch_fields() -> Int64Array:
    return np.zeros((4 * kernels.BLOCK_ROWS, grammar.FIELDS), np.int64)


def terms_max(graphs: bool) -> int:
    """Return how many terms a line may have: four in N-Quads, three in N-Triples."""
    return grammar.QUAD if graphs else grammar.TRIPLE


def _describe(array: UInt8Array, row: Sequence[int]) -> MalformedLine:
    line, start, stop, at, error = row
    text = array[start:stop].tobytes()
    before, reason = _fault(text, at - start, error)
    return MalformedLine(line, before + 1, reason, text.decode(errors="replace"))


def _fault(text: bytes, at: int, error: int) -> tuple[int, str]:
    """Return how many characters of a text stand before its fault, and the reason: bytes that are not UTF-8 come
    first. at, error: the byte and the code of the fault that the kernel has found."""
    if fault := utf8_fault(text):
        return len(text[: fault[0]].decode()), fault[1]
    return len(text[:at].decode(errors="replace")), REASONS[error]


def columns_of_lines(
    data: bytes, *, timestamps: Timestamps, graphs: bool, name: str
) -> tuple[list[pa.Array], Int64Array]:
    """Return the terms of lines as they stand, in four columns of large strings: subjects, predicates, objects and
    graphs, "" where a line has none; and the times of the lines.

    Raises DataError for the first malformed line. name: of the text in messages."""
    import pyarrow as pa

    array = readonly_bytes(memoryview(data))
    rows = data.count(b"\n") + data.count(b"\r") + 1
    bounds, times, bad = np.zeros((4, 2, rows), np.int64), np.zeros(rows, np.int64), np.zeros(5, np.int64)
    first = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    count = kernels.find_terms(
        array, first, _TIMES[timestamps], terms_max(graphs), CHARACTER_CLASSES, bounds, times, bad
    )
    if count < 0:
        line = _describe(array, bad.tolist())
        raise DataError(f"column {line.column}: {line.reason}, found {line.shown!r}", name, line.line)
    source, columns = array.copy(), []
    for starts, stops in bounds[:, :, :count]:
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(stops - starts, out=offsets[1:])
        text = np.empty(offsets[-1], np.uint8)
        take_texts(source, np.stack((starts, stops), axis=1).ravel(), 2 * np.arange(count), offsets, text)
        columns.append(pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text)))
    return columns, times[:count]


def encode_columns(
    subjects: TermColumn,
    predicates: TermColumn,
    objects: TermColumn,
    timestamps: Sequence[int] | Int64Array | pa.Array | None = None,
    graphs: TermColumn | None = None,
    ops: pa.Array | pa.ChunkedArray | None = None,
    *,
    scope: bytes,
    hash_bits: int = HASH_BITS,
) -> Encoded:
    """Encode columns of N-Triples terms: lists of str, or pyarrow string columns (their buffers are read in place).

    timestamps in ms. A missing value (None, null) is allowed among the graphs only: no graph term. ops: "+" for a tuple
    that comes, "-" for a retraction; None: all come.

    Raises DataError, naming row (from 0) and column, for a malformed or missing term or sign, for columns of unequal
    length and for timestamps that are no integers."""
    rows = len(subjects)
    sources = {"subject": subjects, "predicate": predicates, "object": objects}
    if graphs is not None:
        sources["graph"] = graphs
    for name, source in (*sources.items(), *([] if ops is None else [("op", ops)])):
        if len(source) != rows:
            raise DataError(f"column {name!r} has {len(source)} rows, column 'subject' has {rows}")
    builder = _TermTableBuilder(scope, hash_bits, 64 * rows + 256, 2 * rows + 8)
    columns = {name: _encode_column(builder, name, source, rows) for name, source in sources.items()}
    if graphs is None:
        columns["graph"] = np.full(rows, -1, np.int64)
    terms, clashes = builder.tables()
    return Encoded(
        columns["subject"],
        columns["predicate"],
        columns["object"],
        columns["graph"],
        _NO_TIMES if timestamps is None else _times(timestamps, rows),
        terms,
        clashes,
        NO_SIGNS if ops is None else _signs(ops),
    )


def encode_term_column(name: str, source: TermColumn, *, scope: bytes, hash_bits: int = HASH_BITS) -> Encoded:
    """Encode one column of N-Triples terms of any kind, as tuples: in tuple i every term but the graph is term i.

    Raises DataError, naming row (from 0) and column, for a malformed or missing term."""
    rows = len(source)
    builder = _TermTableBuilder(scope, hash_bits, 64 * rows + 256, rows + 8)
    column = _encode_column(builder, name, source, rows, "object")
    return Encoded(column, column, column, np.full(rows, -1, np.int64), _NO_TIMES, *builder.tables())


def _times(timestamps: Any, rows: int) -> Int64Array:
    if getattr(timestamps, "null_count", 0):
        raise DataError("column 'timestamp_ms': a value is missing (null)")
    array = np.asarray(timestamps)
    if len(array) == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"column 'timestamp_ms': expected integers in milliseconds, found {array.dtype}")
    if len(array) != rows:
        raise DataError(f"column 'timestamp_ms' has {len(array)} rows, column 'subject' has {rows}")
    if array.dtype.kind == "u" and rows and array.max() >= 1 << 63:
        raise DataError(f"column 'timestamp_ms': expected integers of 64 bits with a sign, found {array.max()}")
    return array.astype(np.int64, copy=False)


def _signs(ops: pa.Array | pa.ChunkedArray) -> BoolArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = ops.type.value_type if pa.types.is_dictionary(ops.type) else ops.type
    if not is_text_type(kind) and not pa.types.is_null(kind):
        raise DataError(f"column 'op': expected strings, found {ops.type}")
    found = plain_texts(ops)
    goes, comes = (
        pc.fill_null(pc.equal(found, sign), False).to_numpy(zero_copy_only=False).astype(np.bool_) for sign in "-+"
    )
    odd = np.flatnonzero(~(goes | comes))
    if len(odd):
        row, value = int(odd[0]), found[int(odd[0])].as_py()
        what = REASONS[grammar.E_NULL] if value is None else f"expected + or -, found {value!r:.200}"
        raise DataError(f"row {row}, column 'op': {what}")
    return signs(goes)


def _encode_column(
    builder: _TermTableBuilder, name: str, source: TermColumn, rows: int, role: str | None = None
) -> Int64Array:
    column = np.empty(rows, np.int64)
    kind = _ROLES[role or name]
    fields = _scratch_fields()
    state = builder.state
    first = 0
    for data, starts, stops, valid, codes in _pieces(name, source):
        state[kernels.S_POSITION] = state[kernels.S_ROWS] = 0
        end = first + (len(starts) if codes is None else len(codes))
        found = column[first:end] if codes is None else np.empty(len(starts), np.int64)
        with np.errstate(over="ignore"):
            while True:
                arguments = (data, starts, stops, valid, kind, *builder.fixed, found, fields, *builder.arrays())
                full = kernels.encode_terms(*arguments)
                if full == kernels.DONE:
                    break
                at = int(state[kernels.S_POSITION])
                if full == kernels.FAILED:
                    text = data[starts[at] : stops[at]].tobytes()
                    _refuse(name, first + (at if codes is None else int((codes == at).argmax())), state, text)
                builder.grow(full)
        if codes is not None:
            np.take(found, codes, out=column[first:end])
        first = end
    return column


def _refuse(name: str, row: int, state: Int64Array, text: bytes) -> None:
    error, at = int(state[kernels.S_ERROR]), int(state[kernels.S_ERROR_AT])
    if error == grammar.E_NULL:
        raise DataError(f"row {row}, column {name!r}: {REASONS[error]}")
    before, reason = _fault(text, at, error)
    shown = cut(text.decode(errors="replace"))
    raise DataError(f"row {row}, column {name!r}, character {before + 1}: {reason}, found {shown!r}")


ROWS_MIN, SAMPLE = 1024, 8
"""Rows of a column from which on its first part, the SAMPLE-th, decides whether its texts repeat."""
VALUES_MAX = 8
"""Most values of a dictionary for each row; a larger dictionary is read row by row."""
_ALL_VALID: BoolArray = np.empty(0, np.bool_)
_Piece = tuple[UInt8Array, Int64Array, Int64Array, BoolArray, Int64Array | None]
"""Bytes; where each term begins and ends in them; which terms there are, or empty: all; the number of each row's term,
the first rows first, None: row i has term i."""


def _pieces(name: str, source: TermColumn) -> list[_Piece]:
    """Return a column as pieces that the kernel can read."""
    if hasattr(source, "chunks"):
        return [_arrow_piece(name, chunk) for chunk in source.chunks]
    if hasattr(source, "buffers"):
        return [_arrow_piece(name, source)]
    missing = None in source
    try:
        parts = [b"" if text is None else text.encode() for text in source]
    except (AttributeError, UnicodeEncodeError):
        row, found = next((row, text) for row, text in enumerate(source) if not _is_text(text))
        raise DataError(f"row {row}, column {name!r}: expected an N-Triples term as str, found {found!r}") from None
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=starts[1:])
    valid = np.array([text is not None for text in source], np.bool_) if missing else _ALL_VALID
    return [(readonly_bytes(b"".join(parts)), starts[:-1], starts[1:], valid, None)]


def _is_text(value: object) -> bool:
    if value is None:
        return True
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _arrow_piece(name: str, array: Any) -> _Piece:
    """Return an Arrow array as a piece: its own bytes, or those of its dictionary, which is not decoded. Texts that
    repeat are numbered first: that takes a sixth of the time of reading a term."""
    import pyarrow as pa

    if _repeats(array):
        array = array.dictionary_encode()
    count, valid, codes = len(array), _valid(array), None
    rows: Int64Array | slice = slice(None)
    if pa.types.is_dictionary(array.type):
        indices, array = array.indices, array.dictionary
        values = (indices.fill_null(0) if indices.null_count else indices).to_numpy(zero_copy_only=False)
        if len(array) and count and not 0 <= values.min() <= values.max() < len(array):
            raise DataError(
                f"column {name!r}: its indices are {values.min()} to {values.max()}, its dictionary has {len(array)} "
                "values"
            )
        rows = values
        if not len(valid) and len(array) <= VALUES_MAX * count:
            rows, codes = _used(values, len(array))
            valid = _valid(array)[rows] if array.null_count else _ALL_VALID
        elif len(array) and array.null_count:
            valid = _valid(array)[rows] & (valid if len(valid) else True)
    if pa.types.is_null(array.type) or not len(array):
        nowhere = np.zeros(count, np.int64)
        return readonly_bytes(b""), nowhere, nowhere, np.zeros(count, np.bool_), None
    if not is_text_type(array.type):
        raise DataError(f"column {name!r}: expected strings, found {array.type}")
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    _, offsets, text = array.buffers()
    width = np.int32 if pa.types.is_string(array.type) else np.int64
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    starts, stops = bounds[:-1][rows].astype(np.int64), bounds[1:][rows].astype(np.int64)
    return readonly_bytes(memoryview(text) if text is not None else b""), starts, stops, valid, codes


def _repeats(array: Any) -> bool:
    """Return whether most texts of an Arrow array occur several times, by its first part."""
    import pyarrow as pa

    if len(array) < ROWS_MIN or not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return False
    part = array[: len(array) // SAMPLE]
    return len(part.unique()) < len(part) // 2


def _used(values: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """Return the distinct values, in the order of their first rows, and the place of each row's value among them.

    values : int64[n], below count."""
    firsts = np.full(count, -1, np.int64)
    firsts[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    used = np.flatnonzero(firsts >= 0)
    used = used[np.argsort(firsts[used])]
    firsts[used] = np.arange(len(used))
    return used, firsts[values]


def _valid(array: Any) -> BoolArray:
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else _ALL_VALID


def is_text_type(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type is one of texts, in whatever layout."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def plain_texts(column: Any) -> Any:
    """Return an Arrow column of texts, or a dictionary of them, as large strings."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):  # Arrow cannot take from views
        column = column.cast(pa.dictionary(column.type.index_type, pa.large_string()))
    return column.cast(pa.large_string())


def rename_terms(encoded: Encoded, rows: Int64Array, texts: Sequence[str], hash_bits: int = HASH_BITS) -> Encoded:
    """Give the terms with these numbers (those of `terms`, then those of `clashes`) other canonical forms.

    No text may be that of an inlined literal."""
    old = (encoded.terms, encoded.clashes)
    parts = [text.encode() for text in texts]
    data = np.concatenate((old[0].text, old[1].text, np.frombuffer(b"".join(parts), np.uint8)))
    starts = np.concatenate((old[0].offsets[:-1], old[0].offsets[-1] + old[1].offsets[:-1]))
    stops = np.concatenate((old[0].offsets[1:], old[0].offsets[-1] + old[1].offsets[1:]))
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts))) + len(data) - sum(map(len, parts))
    starts[rows], stops[rows] = ends - np.fromiter(map(len, parts), np.int64, len(parts)), ends
    builder = _TermTableBuilder(b"", hash_bits, len(data) + 64, len(starts) + 8)
    fields = np.zeros((len(starts), grammar.FIELDS), np.int64)
    # The kernel takes the bytes of a term of this kind as they are.
    fields[:, grammar.F_KIND] = grammar.IRI
    fields[:, grammar.F_MEMO] = -1
    fields[:, grammar.F_START], fields[:, grammar.F_STOP] = starts, stops
    new = np.empty(len(starts), np.int64)
    data.flags.writeable = False
    with np.errstate(over="ignore"):
        arguments = (data, fields, len(starts), new, *builder.fixed[1:], *builder.arrays())
        kernels.intern_terms(*arguments)
    codes = np.concatenate((old[0].ids, CLASH_FIRST - np.arange(len(old[1]))))
    terms, clashes = builder.tables()
    subjects, predicates, objects, graphs = (
        replace_ids(column, codes, new)
        for column in (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs)
    )
    return Encoded(subjects, predicates, objects, graphs, encoded.timestamps, terms, clashes, encoded.goes)


def canonical_term(ntriples: str, scope: bytes) -> str:
    """Return the canonical form of one term in N-Triples syntax. Raises DataError if it is malformed."""
    builder = _TermTableBuilder(scope, HASH_BITS, 2 * len(ntriples) + 256, 8)
    term = _encode_column(builder, "object", [ntriples], 1)
    if is_inlined(term)[0]:
        return unpack(term)[0].tobytes().decode()
    return builder.text[: builder.offsets[1]].tobytes().decode()


def encode_texts(texts: Sequence[str], hash_bits: int) -> Encoded:
    """Return canonical forms, repeats allowed, as tuples: in tuple i every term but the graph is text i."""
    distinct = dict.fromkeys(texts)
    parts = [text.encode() for text in distinct]
    ids = text_ids(parts, hash_bits)
    places = np.flatnonzero(ids & INLINE_MARK == 0)
    firsts = np.sort(np.unique(ids[places], return_index=True)[1])
    others = np.delete(places, firsts)  # whose id another text had first
    codes = ids.copy()
    codes[others] = CLASH_FIRST - np.arange(len(others))
    terms, clashes = (
        TermTable.of(ids[some], [parts[place] for place in some.tolist()]) for some in (places[firsts], others)
    )
    if len(distinct) < len(texts):
        numbers = dict(zip(distinct, range(len(distinct)), strict=True))
        codes = codes[np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))]
    return Encoded(codes, codes, codes, np.full(len(codes), UNBOUND), np.empty(0, np.int64), terms, clashes)

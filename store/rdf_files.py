"""RDF files -> Encoded, a piece at a time, so that memory stays bounded whatever the size of the file.

N-Triples and N-Quads go through our own kernel. Turtle, TriG, N3, RDF/XML and JSON-LD go through pyoxigraph
(`store/rdf_parser.py`), which keeps lexical forms, and its N-Quads through the same kernel (decision 0001).

* The same file read twice under one scope gives the same ids. pyoxigraph labels anonymous blank nodes at random, so
  they are labelled anew: .0, .1, ... in the order of their first occurrence. No label in a file begins with a dot.
* Nothing is fetched: a context of JSON-LD that is given by its IRI has to be among the files of `contexts`.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from wukongs.errors import DataError
from wukongs.store.dtypes import CLASH_FIRST
from wukongs.store.encoded import Encoded, MalformedLine
from wukongs.store.encoder import rename_terms
from wukongs.store.hidden_graphs import check_graphs_written
from wukongs.store.json_ld_text import Contexts
from wukongs.store.line_pieces import LINE_BYTES_MAX, LongLine, cut_ranges, cut_stream
from wukongs.store.term_ids import HASH_BITS
from wukongs.store.terms import blank_node
from wukongs.store.token_scan import TOKEN_BYTES_MAX, too_long
from wukongs.store.triple_terms import encode_lines_with_triples, with_blanks

if TYPE_CHECKING:
    OnMalformed = Callable[[str, MalformedLine], None]

CHUNK_BYTES = 32 << 20
CHUNK_QUADS = 1 << 17
FORMATS: dict[str, tuple[str, ...]] = {
    "nt": ("ntriples", "n-triples"),
    "nq": ("nquads", "n-quads"),
    "ttl": ("turtle",),
    "trig": (),
    "n3": (),
    "rdf": ("xml", "rdfxml", "rdf/xml", "owl"),
    "jsonld": ("json-ld",),
}
"""Format -> other names that are understood, in any case; a file's extension may be any of them."""

SHOWN_BYTES = 200
"""Bytes of a line with a term that is too long, in messages."""
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_COMPRESSED = (".gz", ".zst")
_GENERATED_LABEL = re.compile(r"[a-f][0-9a-f]{15,31}")
"""The form of pyoxigraph's names for anonymous blank nodes: a random 128-bit number. A label in a file may look so too.
It then gets a new name as well, which does no harm."""
_MAY_HAVE_LABELS = (ord("_"), ord("("))  # blank nodes, and triple terms


def find_format(name: str, format: str | None = None) -> str:
    """Return the format of a file: the one that is given, or that of the extension, .gz and .zst left aside.

    Raises DataError, listing the known ones, for an unknown format."""
    if format is None:
        stem = Path(name.lower())
        wanted = (stem.with_suffix("") if stem.suffix in _COMPRESSED else stem).suffix.removeprefix(".")
    else:
        wanted = format.lower().removeprefix(".")
    for known, aliases in FORMATS.items():
        if wanted == known or wanted in aliases:
            return known
    found = f"unknown RDF format {wanted!r}" if wanted else "no RDF format given, and the name has no extension"
    raise DataError(f"{found}: expected one of {', '.join(FORMATS)}", name)


class _ReadAdapter(io.RawIOBase):
    """Anything with read(n), as a raw file that io.BufferedReader accepts."""

    def __init__(self, source: Any, name: str) -> None:
        self.source = source
        self._file_name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.source.read(len(buffer))
        if isinstance(data, str):
            raise DataError("expected a file opened in binary mode ('rb'), found one opened as text", self._file_name)
        buffer[: len(data)] = data
        return len(data)


def _left_bytes(source: Any) -> int | None:
    """Return how many bytes a file has from where it stands, None if only reading it could say."""
    if isinstance(source, io.BytesIO):
        return source.getbuffer().nbytes - source.tell()
    source = getattr(source, "file", source)  # that of a tempfile
    if isinstance(getattr(source, "raw", source), io.FileIO):
        found = os.fstat(source.fileno())
        return found.st_size - source.tell() if stat.S_ISREG(found.st_mode) else None
    return None


class _Limited:
    """Reads another file, and raises DataError once it was more than so many bytes."""

    def __init__(self, source: IO[bytes], name: str, size_max: int, message: str) -> None:
        self._source, self._name, self._left, self._message = source, name, size_max, message

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(self._message, self._name)
        return data


def decompressed(source: IO[bytes] | io.FileIO, name: str) -> IO[bytes]:
    """Return a file that reads the content of another, decompressed if it begins like a gzip or zstd file.

    Raises DataError: its name says that it is compressed, and it has not even the beginning of that."""
    file: Any
    if isinstance(source, io.FileIO):
        file = io.BufferedReader(source, 1 << 20)
    else:
        file = source if hasattr(source, "peek") else io.BufferedReader(_ReadAdapter(source, name))
    head = file.peek(4)[:4]
    if head.startswith(_GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"), 1 << 20)
    if head == _ZSTD_MAGIC:
        import pyarrow as pa

        return io.BufferedReader(
            _ReadAdapter(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"), name), 1 << 20
        )
    if len(head) < len(_ZSTD_MAGIC) and name.lower().endswith(_COMPRESSED):
        raise DataError(f"the compressed file is damaged or cut short: it has {len(head)} bytes", name)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError("the file is in UTF-16: expected UTF-8", name, 1)
    return file  # type: ignore[no-any-return]


def read_rdf(
    source: str | os.PathLike[str] | IO[bytes],
    format: str | None = None,
    base: str | None = None,
    scope: bytes = b"",
    *,
    on_malformed: OnMalformed | None,
    strict: bool = False,
    hash_bits: int = HASH_BITS,
    chunk_bytes: int = CHUNK_BYTES,
    chunk_quads: int = CHUNK_QUADS,
) -> Iterator[Encoded]:
    """Read a file, or a binary file object, in one of FORMATS, gzip and zstd undone; yield its tuples in pieces.

    base resolves relative IRIs (default: the file's own URI). scope says where its blank node labels are valid.
    Malformed lines of nt and nq are given to on_malformed(file, line) and left out; with strict, or without
    on_malformed, the first one is raised. The other formats cannot be read on behind an error.

    An error may come after pieces: nothing of a file may be made visible before its end.

    Raises DataError, naming file and line where there is one, for a file that is missing, unreadable, of unknown
    format, cut short, in another encoding, or malformed."""
    reader = RdfReader(source, format, base, scope, hash_bits=hash_bits, chunk_quads=chunk_quads)
    return read_in_order(reader, on_malformed, strict, chunk_bytes)


def read_in_order(
    reader: RdfReader, on_malformed: OnMalformed | None, strict: bool, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Encoded]:
    """Do the same as read_rdf, for an open reader, which is closed at the end."""
    first_line = 1
    with reader:
        for job in reader.jobs(chunk_bytes):
            piece = job()
            check_lines(reader.name, piece, first_line, on_malformed, strict)
            first_line += piece.line_count
            if len(piece.encoded):
                yield piece.encoded


def check_lines(
    name: str, piece: EncodedPiece, first_line: int, on_malformed: OnMalformed | None, strict: bool
) -> None:
    """Give the malformed lines of a piece, whose first line has this number in the file, to on_malformed(name, line).

    Raises DataError for the first of them, with strict or without on_malformed; for quads of a graph that cannot be
    written."""
    for found in piece.malformed:
        bad = replace(found, line=found.line + first_line - 1)
        if strict or on_malformed is None:
            raise DataError(f"column {bad.column}: {bad.reason}, found {bad.shown!r}", name, bad.line)
        on_malformed(name, bad)
    try:
        check_graphs_written(piece.encoded)
    except DataError as error:
        raise DataError(error.message, name) from None


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """The tuples of a piece of a file. malformed: its lines that were set aside, counted from 1 in the piece; stop: the
    byte of the text, decompressed, that comes behind it; read_bytes: how much of the file was read by then."""

    encoded: Encoded
    malformed: list[MalformedLine]
    line_count: int
    stop: int
    read_bytes: int


Job = Callable[[], EncodedPiece]


class RdfReader:
    """An RDF file as jobs, each of which encodes a piece of it; a context manager, open until all jobs are done.

    is_lines: whether it is in N-Triples or N-Quads, so that the lines before an error can be used; is_plain: whether
    the jobs themselves read their pieces, at their places; size_bytes: of the file, 0 if that is unknown; text_bytes:
    of the text to read, None if that is unknown, as of a pipe or a compressed file."""

    def __init__(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        format: str | None = None,
        base: str | None = None,
        scope: bytes = b"",
        *,
        hash_bits: int = HASH_BITS,
        chunk_quads: int = CHUNK_QUADS,
        name: str | None = None,
        text_limit: tuple[int, str] | None = None,
        contexts: Contexts | None = None,
        check: Callable[[Encoded], None] | None = None,
    ) -> None:
        """Open a file for read_rdf, with its errors. name: in messages; text_limit: the most bytes of a file object,
        decompressed, and the text of the DataError if there are more; contexts: files for contexts of JSON-LD; check:
        called with all that is encoded, in any thread, may raise."""
        is_path = isinstance(source, str | os.PathLike)
        if not is_path and not hasattr(source, "read"):
            raise DataError(f"expected a path or a binary file object, found a value of type {type(source).__name__}")
        self.name = name or (str(source) if is_path else str(getattr(source, "name", "<stream>")))
        self._base = Path(source).absolute().as_uri() if base is None and is_path else base  # type: ignore[arg-type]
        self._scope, self._hash_bits = scope, hash_bits
        self._contexts, self._check = contexts or Contexts(), check
        self._chunk_quads = chunk_quads
        self._owned = ExitStack()
        try:
            with named_errors(self.name):
                self._source = self._owned.enter_context(io.FileIO(source)) if is_path else source  # type: ignore[arg-type]
                self._format = find_format(self.name, format)
                self.is_lines = self._format in ("nt", "nq")
                left_bytes = _left_bytes(self._source)
                self._file = decompressed(self._source, self.name)  # type: ignore[arg-type]
                raw = getattr(self._file, "raw", self._file)
                is_as_it_is = self._source in (self._file, raw, getattr(raw, "source", None))
                self.text_bytes = left_bytes if is_as_it_is else None
                if text_limit is not None:
                    limited = _Limited(self._file, self.name, *text_limit)
                    self._file = io.BufferedReader(_ReadAdapter(limited, self.name), 1 << 20)
                found = os.fstat(self._source.fileno()) if is_path else None  # type: ignore[union-attr]
        except BaseException:
            self._owned.close()
            raise
        is_regular = found is not None and stat.S_ISREG(found.st_mode)
        self.size_bytes = found.st_size if found is not None and is_regular else 0
        self.is_plain = self.is_lines and is_regular and getattr(self._file, "raw", None) is self._source

    def __enter__(self) -> RdfReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def jobs(self, chunk_bytes: int = CHUNK_BYTES, start: int = 0) -> Iterator[Job]:
        """Yield the jobs, in order; each may run in any thread, and raises DataError as read_rdf does.

        chunk_bytes, start: only for formats of lines: how much text a piece has, and the byte of the decompressed text
        to read from, where a line begins."""
        check, jobs = self._check, self._jobs(chunk_bytes, start)
        return jobs if check is None else (partial(_checked, job, check) for job in jobs)

    def _jobs(self, chunk_bytes: int, start: int) -> Iterator[Job]:
        with named_errors(self.name), _named_long_line(self.name):
            if self.is_plain:
                descriptor = self._file.fileno()
                for place in cut_ranges(descriptor, start, self.size_bytes, chunk_bytes):
                    yield partial(self._encode_range, descriptor, *place)
            elif self.is_lines:
                yield from self._stream_jobs(chunk_bytes, start)
            else:
                for encoded in _read_oxigraph(
                    self._file,
                    self.name,
                    self._format,
                    self._base,
                    self._contexts,
                    self._scope,
                    self._hash_bits,
                    self._chunk_quads,
                ):
                    yield partial(EncodedPiece, encoded, [], 0, 0, self._read_bytes())

    def _stream_jobs(self, chunk_bytes: int, start: int) -> Iterator[Job]:
        skipped = 0
        while skipped < start and (rest := self._file.read(min(start - skipped, chunk_bytes))):
            skipped += len(rest)
        for text in cut_stream(self._file, chunk_bytes):
            start += len(text)
            yield partial(self._encode, text, start, self._read_bytes())

    def _read_bytes(self) -> int:
        """How much of the file was read by now."""
        return self._source.tell() if self.size_bytes else 0  # type: ignore[union-attr]

    def _encode_range(self, descriptor: int, start: int, stop: int) -> EncodedPiece:
        with named_errors(self.name):
            text = os.pread(descriptor, stop - start, start)
        if len(text) < stop - start:
            raise DataError("the file has become shorter while it was read: load it again", self.name)
        return self._encode(memoryview(text), stop, stop)

    def _encode(self, text: memoryview, stop: int, read_bytes: int) -> EncodedPiece:
        is_quads = self._format == "nq"
        encoded, malformed, behind = encode_lines_with_triples(text, self._scope, is_quads, self._hash_bits)
        if len(text) > TOKEN_BYTES_MAX and _has_long_term(encoded):
            kept, long = self._without_long_terms(bytes(text), is_quads)
            encoded, malformed, behind = encode_lines_with_triples(kept, self._scope, is_quads, self._hash_bits)
            malformed = sorted((*malformed, *long), key=lambda found: found.line)
        return EncodedPiece(encoded, malformed, behind - 1, stop, read_bytes)

    def _without_long_terms(self, text: bytes, is_quads: bool) -> tuple[bytes, list[MalformedLine]]:
        """Return a piece of text with empty lines in place of those that have a term of too many bytes; and these."""
        lines, long = text.splitlines(keepends=True), list[MalformedLine]()
        for place, line in enumerate(lines):
            if len(line) > TOKEN_BYTES_MAX:
                found = encode_lines_with_triples(line, self._scope, is_quads, self._hash_bits)[0]
                if _has_long_term(found):
                    lines[place] = b"\n"
                    long.append(
                        MalformedLine(
                            place + 1, 1, too_long(kind="a term"), line[:SHOWN_BYTES].decode(errors="replace")
                        )
                    )
        return b"".join(lines), long


def _checked(job: Job, check: Callable[[Encoded], None]) -> EncodedPiece:
    piece = job()
    check(piece.encoded)
    return piece


def _has_long_term(encoded: Encoded) -> bool:
    """Whether a term has more bytes than a token of the other formats may have."""
    return any(
        len(table) and int(np.diff(table.offsets).max()) > TOKEN_BYTES_MAX for table in (encoded.terms, encoded.clashes)
    )


@contextmanager
def _named_long_line(name: str) -> Iterator[None]:
    try:
        yield
    except LongLine as error:
        raise DataError(f"a line is longer than {LINE_BYTES_MAX // 10**6} MB", name, error.line) from None


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Turn the errors of reading and decompressing into DataError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"the compressed file is damaged or cut short: {error}", name) from error
    except OSError as error:
        raise DataError(f"cannot read the file: {error.strerror or error}", name) from error


def _read_oxigraph(
    file: IO[bytes],
    name: str,
    known: str,
    base: str | None,
    contexts: Contexts,
    scope: bytes,
    hash_bits: int,
    chunk_quads: int,
) -> Iterator[Encoded]:
    from wukongs.store.rdf_parser import parse_to_nquads

    if file.peek(3)[:3] == codecs.BOM_UTF8:  # type: ignore[attr-defined]
        file.read(3)
    numbers: dict[str, int] = {}
    try:
        pieces = parse_to_nquads(file, known, base, contexts, name=name, chunk_quads=chunk_quads)
    except ValueError as error:
        raise DataError(f"base IRI {base!r}: {error}", name) from error
    while True:
        try:
            data = next(pieces, b"")
        except SyntaxError as error:
            raise DataError(_describe(error, base), name, error.lineno or 0) from error
        except ValueError as error:
            raise DataError(f"this is not RDF: {error}", name) from error
        if not data:
            return
        encoded, malformed, _ = encode_lines_with_triples(data, scope, True, hash_bits)
        if malformed:
            raise DataError(f"this is not RDF: {malformed[0].reason}, found {malformed[0].shown!r}", name)
        yield _relabel(encoded, scope, hash_bits, numbers)


def _describe(error: SyntaxError, base: str | None) -> str:
    # The parser's text ends in the line number that DataError puts in front.
    text = re.sub(r"^Parser error at line \d+ ", "", error.msg or str(error))
    if "No scheme found" in text and base is None:
        text += "; give a base IRI to resolve relative ones"
    return text


def _relabel(encoded: Encoded, scope: bytes, hash_bits: int, numbers: dict[str, int]) -> Encoded:
    """Give the anonymous blank nodes of a piece the labels .0, .1, ...; `numbers` remembers them for the file."""
    rows: dict[int, int] = {}
    old: dict[int, str] = {}
    scope_size = len(blank_node(scope, ""))  # the canonical form is _:s<hash of scope>x<label>

    def relabelled(text: str) -> str:
        label = text[scope_size:]
        if not _GENERATED_LABEL.fullmatch(label):
            return text
        return blank_node(scope, f".{numbers.setdefault(label, len(numbers))}")

    for table, first_row in ((encoded.terms, 0), (encoded.clashes, len(encoded.terms))):
        found = np.flatnonzero(np.isin(table.text[table.offsets[:-1]], _MAY_HAVE_LABELS))
        for row, text in zip(found.tolist(), table.take(found).texts(), strict=True):
            if text.startswith("(") or _GENERATED_LABEL.fullmatch(text, scope_size):
                code = int(table.ids[row]) if first_row == 0 else CLASH_FIRST - row
                rows[code], old[code] = first_row + row, text
    if not rows:
        return encoded
    # Which terms are among the clashes depends on the random labels; where a term first stands does not.
    cells = np.stack((encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs), axis=1).ravel()
    codes, first_cells = np.unique(cells[np.isin(cells, list(rows))], return_index=True)
    ordered = codes[np.argsort(first_cells)].tolist()
    texts = [with_blanks(old[code], relabelled) for code in ordered]
    return rename_terms(encoded, np.array([rows[code] for code in ordered], np.int64), texts, hash_bits)

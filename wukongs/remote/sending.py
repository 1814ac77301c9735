"""Files on their way to a node: read here, sent in parts as they are taken; malformed lines come back meanwhile."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from wukongs.errors import DataError, NodeUnavailable
from wukongs.remote.connection import Connection, Joined, SessionLost, raise_failure
from wukongs.remote.kinds import FULL, MALFORMED, MORE, OVER, PART, PART_BYTES
from wukongs.store.encoded import MalformedLine
from wukongs.store.json_ld_text import Contexts
from wukongs.wire.packets import Packet


class SourceFile:
    """A path or a binary file object that is read once, in parts; a context manager that closes what it has opened.

    name, base: what errors call it, and what its relative IRIs are resolved against, as in an embedded engine. Raises
    DataError, as Engine.load."""

    def __init__(self, source: str | os.PathLike[str] | BinaryIO, base: str | None) -> None:
        self._owned: io.FileIO | None = None
        self._source: Any = source
        self._start: int | None = None
        """Where the reading began; 0 for an object that does not tell."""
        self.base = base
        if isinstance(source, str | os.PathLike):
            self.name = str(source)
            self.base = Path(source).absolute().as_uri() if base is None else base
            try:
                self._source = self._owned = io.FileIO(source)
            except OSError as error:
                raise DataError(f"cannot read the file: {error.strerror or error}", self.name) from error
        elif hasattr(source, "read"):
            self.name = str(getattr(source, "name", "<stream>"))
        else:
            raise DataError(f"expected a path or a binary file object, found a value of type {type(source).__name__}")

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned is not None:
            self._owned.close()

    @property
    def raw(self) -> Any:
        """The file that is read."""
        return self._source

    def begin(self) -> None:
        """Go to where the reading began. Raises NodeUnavailable for a file object that was read already, and has no
        way back."""
        if self._start is not None:
            try:
                self._source.seek(self._start)
            except (AttributeError, OSError, ValueError):
                raise NodeUnavailable(
                    f"{self.name}: the node stopped answering when a part of the file was sent, and it cannot be read "
                    "again: nothing was added. Load it anew"
                ) from None
            return
        try:
            self._start = self._source.tell()
        except (AttributeError, OSError, ValueError):
            self._start = 0

    def read(self) -> bytes:
        """Return the next part, nothing at the end."""
        try:
            part = self._source.read(PART_BYTES)
        except OSError as error:
            raise DataError(f"cannot read the file: {error.strerror or error}", self.name) from error
        if isinstance(part, str):
            raise DataError("expected a file opened in binary mode ('rb'), found one opened as text", self.name)
        return bytes(part or b"")


class ParsedDocument(io.BytesIO):
    """The quads of a document, as N-Quads. name: of the document, for errors."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def parse_json_ld(
    source: str | os.PathLike[str] | BinaryIO, base: str | None, format: str | None, contexts: Contexts
) -> ParsedDocument | None:
    """Return the quads of a document of JSON-LD; None for another format. contexts: files for its contexts.

    Raises DataError, as Engine.load."""
    from wukongs.store.rdf_files import decompressed, find_format, named_errors
    from wukongs.store.rdf_parser import parse_to_nquads

    with SourceFile(source, base) as file:
        if find_format(file.name, format) != "jsonld":
            return None
        parsed = ParsedDocument(file.name)
        try:
            with named_errors(file.name):
                opened = decompressed(file.raw, file.name)
                if opened.peek(3)[:3] == codecs.BOM_UTF8:  # type: ignore[attr-defined]
                    opened.read(3)
                parsed.writelines(parse_to_nquads(opened, "jsonld", file.base, contexts, name=file.name))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 0
            raise DataError(f"expected JSON-LD: {error}", file.name, line) from None
    parsed.seek(0)
    return parsed


def send_file(
    connection: Connection,
    joined: Joined,
    number: int,
    file: SourceFile,
    on_malformed: Callable[[str, MalformedLine], object],
) -> None:
    """Send a file to a load that has begun, until that is over.

    Raises DataError, SessionLost, what on_malformed raises."""
    file.begin()
    told, index = 0, 0
    part: bytes | None = file.read()
    while True:
        fields = {"number": number, "told": told, "index": index, "is_last": not part}
        arrays = {} if part is None else {"bytes": np.frombuffer(part, np.uint8)}
        try:
            answer = connection.ask(joined, PART, fields, arrays)
        except SessionLost as lost:
            # Nothing can be added before the last part is there.
            raise SessionLost(str(lost), joined, may_be_done=not part) from lost
        raise_failure(answer, joined.address)
        if answer.kind == MALFORMED:
            told = _report(answer, joined, on_malformed)
        elif answer.kind == OVER:
            return
        elif answer.kind == MORE and part is not None:
            index += 1
            part = file.read() if part else None  # behind the last part only news are asked for
        elif answer.kind not in (MORE, FULL):
            raise DataError(f"{joined.address}: expected to be asked for more, found {answer.kind!r}")


def _report(answer: Packet, joined: Joined, on_malformed: Callable[[str, MalformedLine], object]) -> int:
    """Report malformed lines; return how many that makes in all."""
    first, lines = answer.fields.get("first"), answer.fields.get("lines")
    if type(first) is not int or not isinstance(lines, list):
        raise DataError(f"{joined.address}: expected malformed lines, found {lines!r}")
    for line in lines:
        if not (isinstance(line, list) and [type(one) for one in line] == [str, int, int, str, str]):
            raise DataError(f"{joined.address}: expected a malformed line, found {line!r}")
        on_malformed(line[0], MalformedLine(*line[1:]))
    return first + len(lines)

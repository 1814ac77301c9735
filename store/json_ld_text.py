"""JSON-LD that pyoxigraph reads otherwise than the standard has it, rewritten while it is read.

pyoxigraph 0.5 (docs/decisions/0108-parsers-where-the-library-cannot.md)

* cannot load a context by its IRI: a file that stands for the IRI takes its place; nothing is ever fetched.
* makes xsd:double of integers with 21 digits. JSON-LD 1.1 API 8.6 makes xsd:integer of those below 10^21. They are read
  as other numbers of 15 digits and put back into the N-Quads.
* ends the process at some thousands of brackets: that depth is bounded.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import numpy as np

from wukongs.errors import DataError
from wukongs.store.token_scan import JSON_TOKEN_BYTES_MAX, too_long

_KEY = re.compile(r'"@context"\s*:\s*')
_KEY_AT_END = re.compile(r'"@context"\s*:?\s*\Z')
_MAY_BE_LARGE = re.compile(rb"[0-9]{21}|[0-9][eE]\+?[0-9]")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_UP_TO_OPEN = re.compile(rb'(?:[^"]++|"(?:[^"\\]|\\.)*+")*+"', re.DOTALL)
"""All up to the quote that begins a string without an end."""
_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?[0-9][0-9.eE+-]*', re.DOTALL)
_STAND_IN = re.compile(rb"[0-9]{15}|[0-9]\.[0-9]{1,14}E14")
_LITERAL = re.compile(rb'"((?:[^"\\]|\\.)*+)"(?:\^\^<([^>]*)>)?', re.DOTALL)
_JSON = b"http://www.w3.org/1999/02/22-rdf-syntax-ns#JSON"
_TAIL = b"0123456789.eE+-"
_OTHERS = bytes(set(range(256)) - set(b"{[]}"))
_STEPS = np.array([(one in b"{[") - (one in b"]}") for one in range(256)], np.int8)
DEPTH_MAX = 256
"""Brackets in each other at most: the parser ends the process at some thousands."""
CHAIN_MAX = 64
"""How many contexts may lead to each other."""
READ_BYTES = 1 << 18
KNOWN_MAX = 64


@dataclass(frozen=True, slots=True)
class Contexts:
    """Files that stand for contexts of JSON-LD: pairs of an IRI and a path."""

    files: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def from_mapping(files: Mapping[str, str | PathLike[str]]) -> Contexts:
        return Contexts(tuple((iri, str(path)) for iri, path in files.items()))

    def merged(self, others: Contexts) -> Contexts:
        """Return these contexts and others; the others win."""
        return Contexts(tuple((dict(self.files) | dict(others.files)).items()))

    def read(self, iri: str) -> Any:
        """Return the context that an IRI stands for. Raises DataError: there is no file for it, or no context in it."""
        wanted = _plain(iri)
        path = next((path for known, path in self.files if _plain(known) == wanted), None)
        if path is None:
            raise DataError(
                f"the @context <{iri}> is a remote document, and nothing is fetched: save it as a file and give "
                f'contexts = {{ "{iri}" = "FILE" }} (--context {iri}=FILE on the command line, WUKONGS_CONTEXTS in the '
                "environment), or put the context into the document"
            )
        return _context_in(path, _stamp(path))


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError as error:
        raise DataError(f"a file of contexts cannot be read: {error.strerror}", path) from None
    return found.st_mtime_ns, found.st_size


@lru_cache(64)
def _context_in(path: str, stamp: tuple[int, int]) -> Any:
    """Return the context that a file holds. stamp: of the version that is wanted."""
    try:
        found = json.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"expected JSON with a @context: {error}", path) from None
    if not isinstance(found, dict) or "@context" not in found:
        raise DataError("expected a JSON object with the key @context, found none", path)
    return found["@context"]


def _plain(iri: str) -> str:
    """Return an IRI as it is compared: an empty path is `/` (RFC 3986, 6.2.3), a fragment does not count."""
    parts = urlsplit(iri)._replace(fragment="")
    if parts.scheme.lower() in ("http", "https") and not parts.path:
        parts = parts._replace(path="/")
    return parts.geturl()


class JsonLdText:
    """A file of JSON-LD to read from, as pyoxigraph may read it; and the way back for its N-Quads."""

    def __init__(
        self,
        file: IO[bytes],
        name: str,
        base: str | None,
        contexts: Contexts,
        resolve: Callable[[str, str], str | None],
    ) -> None:
        """name: of the file, in errors; resolve(base, reference): the absolute IRI, None where there is none."""
        self._file = file
        self._name, self._base, self._contexts, self._resolve = name, base, contexts, resolve
        self._held = b""
        """Text that was read and waits for the end of its string, number or context."""
        self._ready = bytearray()
        self._line = 1
        self._depth = 0
        self._numbers: dict[int, bytes] = {}
        """Stand-ins, positive, and the digits that they stand for."""
        self._stand_ins: dict[bytes, int] = {}
        self._known: dict[str, str] = {}
        """Contexts of the document, and what they become: many objects share one."""

    def read(self, size: int = -1) -> bytes:
        while not self._ready or size < 0:
            data = self._file.read(size if size < 0 else max(size, READ_BYTES))
            while data and len(data) < len(self._held) and (more := self._file.read(len(self._held))):
                data += more  # else a long string that comes in small pieces is looked through with each of them
            text = self._held + data
            stop = self._whole(text) if data else len(text)
            out, place = self._taken(text[:stop], is_last=not data)
            self._check_depth(text[:place])
            self._held = text[place:]
            if len(self._held) > JSON_TOKEN_BYTES_MAX:
                reason = too_long(JSON_TOKEN_BYTES_MAX, "a string, number or @context")
                raise DataError(reason, self._name, self._line)
            self._ready += out
            if not data:
                break
        end = len(self._ready) if size < 0 else size
        found = bytes(self._ready[:end])
        del self._ready[:end]
        return found

    def _check_depth(self, text: bytes) -> None:
        """Count the brackets of the text. Raises ValueError: they nest too deeply."""
        brackets = _STRING.sub(b"", text).translate(None, _OTHERS)
        if brackets:
            depths = self._depth + np.cumsum(_STEPS[np.frombuffer(brackets, np.uint8)], dtype=np.int64)
            if depths.max() > DEPTH_MAX:
                raise ValueError(f"expected JSON with at most {DEPTH_MAX} brackets in each other, found more")
            self._depth = int(depths[-1])

    @property
    def has_stand_ins(self) -> bool:
        """Whether the text read so far holds something that `restored` puts back."""
        return bool(self._numbers)

    def restored(self, nquads: bytes) -> bytes:
        """Return lines of N-Quads with the numbers that the file has."""
        return _LITERAL.sub(self._restored, nquads) if self._numbers else nquads

    def _restored(self, literal: re.Match[bytes]) -> bytes:
        text, datatype = literal[1], literal[2]
        if datatype is None or _STAND_IN.search(text) is None:
            return literal[0]

        def number(found: re.Match[bytes]) -> bytes:
            digits = self._numbers.get(int(Decimal(found[0].decode())))
            if digits is None:
                return found[0]
            if b"E" in found[0]:
                fraction = digits[1:].rstrip(b"0") or b"0"
                return digits[:1] + b"." + fraction + b"E20"
            return _canonical_json(float(digits)) if datatype == _JSON else digits

        if datatype == _JSON:
            text = re.sub(rb"[0-9]{15}", number, text)
        elif _STAND_IN.fullmatch(text.removeprefix(b"-")):
            text = _STAND_IN.sub(number, text)
        return b'"' + text + b'"^^<' + datatype + b">"

    def _whole(self, text: bytes) -> int:
        """Return up to where the strings and numbers of the text are whole. It begins outside of them."""
        begun = _UP_TO_OPEN.match(text)
        return len(text.rstrip(_TAIL)) if begun is None else begun.end() - 1

    def _taken(self, data: bytes, *, is_last: bool) -> tuple[bytes, int]:
        """Return the text, rewritten, up to a context that is not whole; and how much of it that is."""
        if b'"@context"' not in data:
            self._line += data.count(b"\n")
            return self._without_large(data), len(data)
        text = data.decode("utf-8", "surrogateescape")
        end = len(text)
        if not is_last and (last := text.rfind('"@context"')) >= 0 and _KEY_AT_END.match(text, last):
            end = last
        out: list[str] = []
        place, line, counted = 0, self._line, 0
        for key in _KEY.finditer(text, 0, end):
            if key.start() < place:
                continue  # inside of a context that was rewritten
            try:
                value, stop = json.JSONDecoder().raw_decode(text, key.end())
            except json.JSONDecodeError as error:
                if is_last or error.pos < len(text) - len("false"):
                    continue  # the parser says what is wrong
                end = key.start()
                break
            except RecursionError:
                continue
            if _leads_elsewhere(value):
                line, counted = line + text.count("\n", counted, key.start()), key.start()
                lines = "\n" * text.count("\n", key.end(), stop)
                out += (text[place : key.end()], self._local_text(value, text[key.end() : stop], line), lines)
                place = stop
        out.append(text[place:end])
        rest = text[end:].encode("utf-8", "surrogateescape")
        stop_byte = len(data) - len(rest)
        self._line += data.count(b"\n", 0, stop_byte)
        return self._without_large("".join(out).encode("utf-8", "surrogateescape")), stop_byte

    def _local_text(self, context: Any, text: str, line: int) -> str:
        """Return a context as JSON, with the content of files. text: as the document has it, at this line of it. Raises
        DataError."""
        found = self._known.get(text)
        if found is None:
            try:
                local = self._localised(context, self._base, ())
            except DataError as error:
                raise DataError(error.message, error.file or self._name, error.line or line) from None
            found = json.dumps(local, ensure_ascii=False)
            if len(self._known) < KNOWN_MAX:
                self._known[text] = found
        return found

    def _localised(self, context: Any, base: str | None, chain: tuple[str, ...]) -> Any:
        """Return a context with the content of files in place of IRIs. base: of relative ones; chain: the IRIs that
        lead to it. Raises DataError."""
        if isinstance(context, str):
            iri = self._resolve(base, context) if base is not None else context
            if iri is None:
                raise DataError(f"the @context {context!r} is no IRI")
            if iri in chain or len(chain) >= CHAIN_MAX:
                raise DataError(f"the @context <{iri}> leads to itself, by {', '.join(chain)}")
            return self._localised(self._contexts.read(iri), iri, (*chain, iri))
        if isinstance(context, list):
            found = [self._localised(one, base, chain) for one in context]
            return [one for part in found for one in (part if isinstance(part, list) else [part])]
        if not isinstance(context, dict):
            return context
        local: dict[str, Any] = {}
        if isinstance(imported := context.get("@import"), str):
            found = self._localised(imported, base, chain)
            if not isinstance(found, dict):
                raise DataError(f"the @context of @import {imported!r} is no single object")
            local.update(found)
        for key, value in context.items():
            if key == "@import" and isinstance(value, str):
                continue
            if isinstance(value, dict) and "@context" in value:
                value = {**value, "@context": self._localised(value["@context"], base, chain)}
            local[key] = value
        return local

    def _without_large(self, text: bytes) -> bytes:
        """Return the text with stand-ins for integers from 10^20 to below 10^21."""
        return _STRING_OR_NUMBER.sub(self._stand_in, text) if _MAY_BE_LARGE.search(text) else text

    def _stand_in(self, token: re.Match[bytes]) -> bytes:
        text = token[0]
        if text.startswith(b'"') or not _MAY_BE_LARGE.search(text):
            return text
        try:
            value = abs(Decimal(text.decode()))
        except DecimalException:
            return text
        if value.adjusted() != 20 or value != value.to_integral_value():
            return text
        digits = str(int(value)).encode()
        number = self._stand_ins.get(digits)
        if number is None:
            number = 10**14 + secrets.randbelow(9 * 10**14)
            self._stand_ins[digits], self._numbers[number] = number, digits
        return (b"-" if text.startswith(b"-") else b"") + str(number).encode()


def _canonical_json(number: float) -> bytes:
    """Return a whole number as canonical JSON has it: the fewest digits that name it (RFC 8785, 3.2.2.3)."""
    digits = str(int(Decimal(repr(number))))
    return digits.encode() if number < 1e21 else b"1e+21"


def _leads_elsewhere(context: Any) -> bool:
    """Whether a context has others in it by their IRIs."""
    if isinstance(context, list):
        return any(map(_leads_elsewhere, context))
    if isinstance(context, dict):
        inner = (one["@context"] for one in context.values() if isinstance(one, dict) and "@context" in one)
        return "@import" in context or any(map(_leads_elsewhere, inner))
    return isinstance(context, str)

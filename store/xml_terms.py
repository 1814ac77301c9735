"""RDF/XML that pyoxigraph refuses, rewritten while it is read: empty xml:lang, relative xml:base and others.

pyoxigraph 0.5 knows neither of these valid forms (docs/decisions/0108-parsers-where-the-library-cannot.md):

* `xml:lang=""` takes an inherited language back (RDF/XML 2.7). It is read as a private language, removed afterwards.
* `xml:base` may be empty or relative to the base in scope (RDF/XML 2.14, XML Base 4). It is read as an absolute one.
* `rdf:datatype` of rdf:langString: the literal has the language in scope. Without one, RDF has no such literal.
* A comment, an instruction or a CDATA section in the middle of a text does not end it (XML 1.0, 2.5 to 2.7).

The document type is replaced by one that declares its entities with their texts written out. So what the library makes
of references is known before it does: it stays within a bound.

Pieces of a file without these forms are handed on as they are. Tags are counted only inside of an element that has a
base of its own, other than the root, and inside of XML literals, which keep their text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, NoReturn
from xml.sax.saxutils import escape

from wukongs.errors import DataError
from wukongs.store.token_scan import ELEMENTS_MAX, TOKEN_BYTES_MAX, too_long

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NAME = rb"[^\s<>\"'/=]+"
_ATTRIBUTE = re.compile(rb"(?P<name>" + _NAME + rb")\s*=\s*(?P<value>\"[^\"]*\"|'[^']*')")
_TAG = re.compile(rb"<(?P<end>/?)(?P<name>" + _NAME + rb")(?:[^<>\"']|\"[^\"]*\"|'[^']*')*+>")
_DOCTYPE = re.compile(
    rb"<!DOCTYPE(?:[^\[\]<>\"']|\"[^\"]*\"|'[^']*')*+"
    rb"(?:\[(?:(?><!--.*?-->)|(?><\?.*?\?>)|<!(?:[^<>\"'-]|-(?!-)|\"[^\"]*\"|'[^']*')*+>|[^\]<])*+\]\s*+)?>",
    re.DOTALL,
)
_ENTITY = re.compile(rb"<!ENTITY\s+(" + _NAME + rb")\s+(\"[^\"]*\"|'[^']*')\s*>")
_NO_DECLARATION = re.compile(rb"(\"[^\"]*\"|'[^']*')|<!--.*?-->|<\?.*?\?>", re.DOTALL)
"""Comments and instructions of a document type; a quoted text, which may look like one, is the group."""
_REFERENCE = re.compile(r"&(#x[0-9A-Fa-f]+|#[0-9]+|[^;&\s]+);")
_NAMED = re.compile(rb"&([^#;&<>\s][^;&<>\s]*);")
_KNOWN_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_MARKS = re.compile(
    rb"<!|<\?|xml:base\s*=|xml:lang\s*=\s*(?:\"\"|''|[\"']&)|langString[\"']|parseType\s*=\s*[\"']Literal"
)
"""Where a piece may have to be rewritten, or holds what must not be."""
_HAS_LANGUAGE = re.compile(rb'"@[A-Za-z0-9-]+ \.\n\Z')
_ENTITY_CHAIN_MAX = 32
"""How many entities may lead to each other."""
ENTITY_BYTES, ENTITY_FACTOR = 8 << 20, 100
"""The texts of references may take as many bytes as the first says, or as the document has times the second."""
READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class _Aside:
    """A part of XML that holds no tags. is_text: whether it is text of its element."""

    begin: bytes
    end: bytes
    is_text: bool = False


_ASIDE = (_Aside(b"<!--", b"-->"), _Aside(b"<![CDATA[", b"]]>", is_text=True), _Aside(b"<?", b"?>"))


@dataclass(slots=True)
class _Scope:
    """An element with its own base, or an XML literal. depth: open elements inside of it, itself included; base: before
    it; is_literal: whether all inside of it stays as it is."""

    depth: int
    base: str | None
    is_literal: bool


class RdfXmlText:
    """A file of RDF/XML to read from, in the forms that pyoxigraph knows; and the way back for its N-Quads."""

    def __init__(self, file: IO[bytes], name: str, base: str | None, resolve: Callable[[str, str], str | None]) -> None:
        """name: of the file, in errors; resolve(base, reference): the absolute IRI, None where there is none."""
        self._file, self._name, self._base, self._resolve = file, name, base, resolve
        self._held = b""
        """Text that was read and waits for the end of its tag."""
        self._ready = bytearray()
        self._aside: _Aside | None = None
        """The part in which the text read so far stops."""
        self._is_kept = False
        """Whether that part stays as it is."""
        self._lines_owed = b""
        """Line ends of comments that were left out. They go into the next tag, so that errors name the right line."""
        self._scopes: list[_Scope] = []
        self._is_root_open = False
        self._entities: dict[str, str] = {}
        self._has_type = False
        self._cut = b""
        """The beginning of a reference at the end of what was handed on."""
        self._read_bytes = self._entity_bytes = 0
        """Bytes of the document so far, and of the texts of its references."""
        self._line = 1
        """The line of what is handed on next."""
        self._no_language = f"x-{secrets.token_hex(4)}-{secrets.token_hex(4)}"
        self._of_language = secrets.token_hex(16)
        self._is_marked = False

    def read(self, size: int = -1) -> bytes:
        while not self._ready or size < 0:
            data = self._file.read(size if size < 0 else max(size, len(self._held), READ_BYTES))
            self._read_bytes += len(data)
            out = self._taken(self._held + data, is_last=not data)
            self._count_references(out)
            self._line += out.count(b"\n")
            if len(self._held) > TOKEN_BYTES_MAX:
                raise DataError(too_long(kind="a tag or a document type"), self._name, self._line)
            self._ready += out
            if not data:
                break
        end = len(self._ready) if size < 0 else size
        found = bytes(self._ready[:end])
        del self._ready[:end]
        return found

    @property
    def has_stand_ins(self) -> bool:
        """Whether the text read so far holds something that `restored` puts back."""
        return self._is_marked

    def restored(self, nquads: bytes) -> bytes:
        """Return lines of N-Quads with the terms that the file has. Raises ValueError: a literal of rdf:langString
        outside of any language."""
        if not self._is_marked:
            return nquads
        nquads = nquads.replace(b"@" + self._no_language.encode(), b"")
        if (mark := self._of_language.encode()) in nquads:
            lines = nquads.splitlines(keepends=True)
            for place, line in enumerate(lines):
                if mark in line:
                    if not _HAS_LANGUAGE.search(line):
                        raise ValueError(f"a literal of rdf:langString without xml:lang: {line.replace(mark, b'')!r}")
                    lines[place] = line.replace(mark, b"")
            nquads = b"".join(lines)
        return nquads

    def _taken(self, text: bytes, *, is_last: bool) -> bytes:
        """Return what can be handed on of the text, rewritten; hold the rest."""
        out = bytearray()
        place = 0
        while place < len(text):
            if self._aside is not None:
                end = text.find(self._aside.end, place)
                is_whole = end >= 0
                stop = end if is_whole else len(text) if is_last else max(place, len(text) - len(self._aside.end) + 1)
                out += self._inside(text[place:stop])
                place = stop
                if not is_whole:
                    break
                out += self._aside.end if self._is_kept else b""
                place += len(self._aside.end)
                self._aside = None
                continue
            found = self._next(text, place)
            if found < 0:
                stop = self._end_of_tags(text, place) if not is_last else len(text)
                out += text[place:stop]
                place = stop
                break
            out += text[place:found]
            place = found
            aside = next((one for one in _ASIDE if text.startswith(one.begin, place)), None)
            if aside is not None:
                self._aside = aside
                self._is_kept = not self._is_root_open or (bool(self._scopes) and self._scopes[-1].is_literal)
                out += aside.begin if self._is_kept else b""
                place += len(aside.begin)
                continue
            if text.startswith(b"<!", place):
                stop = self._end_of_type(text, place, is_last=is_last)
                if stop < 0:
                    break
                out += self._declared(text[place:stop])
                place = stop
                continue
            tag = _TAG.match(text, place)
            if tag is None:
                if not is_last:
                    break
                out += text[place:]
                place = len(text)
                break
            rewritten = self._tag(tag)
            if self._lines_owed:
                name_end = rewritten.index(tag["name"]) + len(tag["name"])
                rewritten = rewritten[:name_end] + self._lines_owed + rewritten[name_end:]
                self._lines_owed = b""
            out += rewritten
            place = tag.end()
        self._held = text[place:]
        return bytes(out)

    def _inside(self, text: bytes) -> bytes:
        """Return a piece of a part without tags: as it is, as plain text, or left out."""
        assert self._aside is not None, "a part has begun"
        if self._is_kept:
            return text
        if self._aside.is_text:
            return text.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
        self._lines_owed += b"\n" * text.count(b"\n")
        return b""

    def _next(self, text: bytes, place: int) -> int:
        """Return where the next part of the text begins that has to be looked at; -1: none does."""
        if self._scopes or self._lines_owed or not self._is_root_open:
            return text.find(b"<", place)
        behind = place
        while (mark := _MARKS.search(text, behind)) is not None:
            if text.startswith(b"<", mark.start()):
                return mark.start()
            begin = text.rfind(b"<", place, mark.start())
            if begin >= 0:
                tag = _TAG.match(text, begin)
                if tag is None or tag.end() > mark.start():
                    return begin
            behind = text.find(b"<", mark.end())  # all that comes before it is the text of an element
            if behind < 0:
                break
        return -1

    def _end_of_tags(self, text: bytes, place: int) -> int:
        """Return where the last tag begins that is not whole; the end if all are."""
        begin = text.rfind(b"<", place)
        return len(text) if begin < 0 or _TAG.match(text, begin) else begin

    def _end_of_type(self, text: bytes, place: int, *, is_last: bool) -> int:
        """Return where a document type ends; -1 if its end is not there. Raises DataError: it is none, or has none."""
        if len(text) - place < len(b"<![CDATA[") and not is_last:
            return -1  # it may still become another part
        found = _DOCTYPE.match(text, place)
        if found is not None:
            return found.end()
        if is_last or not text.startswith(b"<!DOCTYPE", place):
            self._refuse("found a declaration that does not end, or is no document type")
        return -1

    def _declared(self, declaration: bytes) -> bytes:
        """Return a document type that declares the entities of another one, their texts written out.

        Raises DataError: it is not in front of the root, or its entities make too much text."""
        if self._is_root_open or self._has_type:
            self._refuse("found a document type that is not the only one in front of the root element")
        self._has_type = True
        given: dict[str, str] = {}
        for name, value in _ENTITY.findall(_NO_DECLARATION.sub(rb"\1", declaration)):
            if (key := _text(name)) not in _KNOWN_ENTITIES:
                given.setdefault(key, _text(value[1:-1]))  # the first one counts (XML 1.0, 4.2)
        for name in given:
            self._entity(name, given, ())
        written = "".join(
            f'<!ENTITY {name} "{escape(text, {chr(34): "&quot;", chr(10): "&#10;"})}">'
            for name, text in self._entities.items()
        )
        lines = b"\n" * declaration.count(b"\n")
        return b"<!DOCTYPE RDF [" + _bytes(written) + lines + b"]>" if written else lines

    def _entity(self, name: str, given: dict[str, str], chain: tuple[str, ...]) -> str:
        """Return the text of an entity, that of others in it written out. given: the texts as they are declared; chain:
        the entities that lead to it. Raises DataError: they lead to each other, or make too much text."""
        found = self._entities.get(name)
        if found is not None:
            return found
        if name in chain or len(chain) >= _ENTITY_CHAIN_MAX:
            self._refuse(f"found the entity {name!r}, which leads to itself or to too many others")

        def replaced(match: re.Match[str]) -> str:
            text = self._entity(match[1], given, (*chain, name)) if match[1] in given else _plain(match)
            if text == match[0]:
                self._refuse(f"found the entity {match[1]!r}, which the document does not declare")
            self._count(len(text))
            return text

        text = self._entities[name] = _REFERENCE.sub(replaced, given[name])
        return text

    def _count(self, size: int) -> None:
        """Note that references are replaced by as many bytes. Raises DataError: it is too much."""
        self._entity_bytes += size
        if self._entity_bytes > max(ENTITY_BYTES, ENTITY_FACTOR * self._read_bytes):
            self._refuse(
                f"found entities that make more than {ENTITY_FACTOR} times as much text as the document has "
                f"({self._entity_bytes:,} bytes of {self._read_bytes:,}): write their texts out"
            )

    def _count_references(self, text: bytes) -> None:
        """Count the texts of the references in the next piece that is handed on. Raises DataError."""
        if not self._entities:
            return
        text = self._cut + text
        for name in _NAMED.findall(text):
            if (found := self._entities.get(_text(name))) is not None:
                self._count(len(found))
        last = text.rfind(b"&", -1 - max(map(len, map(_bytes, self._entities))))
        self._cut = text[last:] if last >= 0 and b";" not in text[last:] else b""

    def _refuse(self, reason: str) -> NoReturn:
        raise DataError(f"expected RDF/XML: {reason}", self._name, self._line)

    def _tag(self, tag: re.Match[bytes]) -> bytes:
        """Return a tag as pyoxigraph may read it, and keep count of scopes."""
        text = tag[0]
        if tag["end"]:
            if self._scopes:
                self._scopes[-1].depth -= 1
                if not self._scopes[-1].depth:
                    self._base = self._scopes.pop().base
            return text
        is_root, self._is_root_open = not self._is_root_open, True
        is_open = not text.endswith(b"/>")
        base = self._base
        is_literal = bool(self._scopes) and self._scopes[-1].is_literal
        if not is_literal:
            text, is_literal = self._rewritten(text, tag["name"])
            if text.endswith(b"</" + tag["name"] + b">"):
                is_open = False
        was_literal = bool(self._scopes) and self._scopes[-1].is_literal
        if is_open and not is_root and (self._base != base or is_literal != was_literal):
            if len(self._scopes) >= ELEMENTS_MAX:
                self._refuse(f"found more than {ELEMENTS_MAX:,} elements with bases of their own in each other")
            self._scopes.append(_Scope(1, base, is_literal))
        elif is_open and self._scopes:
            self._scopes[-1].depth += 1
        elif not is_open:
            self._base = base
        return text

    def _rewritten(self, text: bytes, name: bytes) -> tuple[bytes, bool]:
        """Return a start tag without the forms that pyoxigraph lacks, and whether an XML literal begins with it."""
        out, last = bytearray(), 0
        is_literal, has_tag = False, False
        for found in _ATTRIBUTE.finditer(text):
            attribute, raw = found["name"], found["value"]
            quote = raw[:1]
            new: bytes | None = None
            if attribute == b"xml:lang" and not self._expanded(raw):
                new = b"xml:lang=" + quote + self._no_language.encode() + quote
                self._is_marked = True
            elif attribute == b"xml:base":
                new = self._rebased(raw)
            elif attribute.endswith(b":datatype") and self._expanded(raw) == RDF + "langString":
                new, has_tag, self._is_marked = b"", True, True
            elif attribute.endswith(b":parseType"):
                is_literal = raw[1:-1] == b"Literal"
            if new is not None:
                out += text[last : found.start()] + new
                last = found.end()
        out += text[last:]
        if has_tag:  # the mark at the head of its text shows afterwards that a language is needed
            mark = self._of_language.encode()
            out = out[:-2] + b">" + mark + b"</" + name + b">" if out.endswith(b"/>") else out + mark
        return bytes(out), is_literal

    def _rebased(self, raw: bytes) -> bytes | None:
        """Return the attribute with an absolute base, None where it stays; and note the base."""
        value = self._expanded(raw)
        absolute = value if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", value) else None
        if absolute is not None:
            self._base = absolute
            return None
        if self._base is None or (resolved := self._resolve(self._base, value)) is None:
            return None
        self._base = resolved
        return b'xml:base="' + escape(resolved, {'"': "&quot;"}).encode() + b'"'

    def _expanded(self, raw: bytes) -> str:
        """Return the value of an attribute, its entities replaced."""

        def replaced(match: re.Match[str]) -> str:
            found = self._entities.get(match[1])
            if found is None:
                return _plain(match)
            self._count(len(found))
            return found

        return _REFERENCE.sub(replaced, _text(raw[1:-1]))


def _plain(reference: re.Match[str]) -> str:
    """Return what a reference stands for that no document declares: a character; itself for others."""
    name = reference[1]
    if not name.startswith("#"):
        return _KNOWN_ENTITIES.get(name, reference[0])
    digits, radix = (name[2:], 16) if name[1] == "x" else (name[1:], 10)
    code = int(digits, radix) if len(digits) <= 8 else -1
    return chr(code) if 0 <= code < 0x110000 else reference[0]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

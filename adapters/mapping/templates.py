"""Templates make terms of cells: `http://e/trip/{id}`, `_:b{id}`, `{fare} EUR`.

`{name}` stands for a cell, `{{` and `}}` for braces. In an IRI a cell is percent-encoded, so that no cell can change
the shape of the IRI; `{+name}` leaves it as it is, and so does a template that is one cell and nothing else. In a blank
node's label each byte that a label may not hold, and `_`, becomes `_` and two digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from wukongs.errors import DataError

Kind = Literal["iri", "blank", "literal"]

_PART = re.compile(r"\{\{|\}\}|\{(?P<raw>\+?)(?P<name>[^{}]+)\}|(?P<text>[^{}]+)|(?P<brace>[{}])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
NOT_OF_IRIS = re.compile(r'[\x00-\x20<>"{}|\\^`]')
_UNRESERVED = r"A-Za-z0-9._~\-\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd\U00020000-\U000efffd"
ENCODED = re.compile(f"[^{_UNRESERVED}]")
"""The characters of a cell that are percent-encoded in an IRI: all but RFC 3987's iunreserved."""
ENCODED_IN_URIS = re.compile(r"[^A-Za-z0-9._~\-]")
"""The characters of a cell that are percent-encoded in a URI: all but RFC 3986's unreserved."""
NOT_OF_LABELS = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell inside of a template. is_raw: an IRI takes it as it is."""

    name: str
    is_raw: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """Constant texts and cells, in order. text: how it was written."""

    text: str
    parts: tuple[str | Cell, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its cells, each once."""
        return tuple(dict.fromkeys(part.name for part in self.parts if isinstance(part, Cell)))


def parse_template(text: str) -> Template:
    """Raises: DataError (a brace that stands alone)."""
    parts: list[str | Cell] = []
    for match in _PART.finditer(text):
        if match["brace"]:
            raise DataError(f"expected a template, found a single {match['brace']!r} in {text!r}: write it twice")
        if match["name"]:
            parts.append(Cell(match["name"].strip(), bool(match["raw"])))
            continue
        constant = match["text"] or match[0][0]
        if parts and isinstance(parts[-1], str):
            parts[-1] += constant
        else:
            parts.append(constant)
    return Template(text, tuple(parts))


@dataclass(frozen=True, slots=True)
class TermMap:
    """Makes one term of a row.

    template: its text, as constants and cells.
    datatype: makes the datatype's IRI, of literals.
    language: the language tag, of literals.
    is_natural: whether a literal has the datatype of its only cell, as the source has it.
    base: stands before an IRI that is relative. None: no cell may begin with a relative one.
    is_uri: whether an IRI may hold ASCII characters only."""

    kind: Kind
    template: Template
    datatype: TermMap | None = None
    language: Template | None = None
    is_natural: bool = False
    base: str | None = None
    is_uri: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all cells that it reads."""
        return (
            *self.template.names,
            *(self.datatype.names if self.datatype else ()),
            *(self.language.names if self.language else ()),
        )


def constant_iri(iri: str) -> TermMap:
    """Return the map that always makes the same IRI."""
    return TermMap("iri", Template(iri, (iri,)))


def resource(text: str, prefixes: Mapping[str, str]) -> TermMap:
    """Return the map of an IRI or a blank node: an absolute IRI, a prefixed name, `a`, or `_:` and a label.

    Raises: DataError (neither of these)."""
    if text == "a":
        text = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    if text.startswith("_:"):
        template = parse_template(text[2:])
        constants = [part for part in template.parts if isinstance(part, str)]
        if not template.parts or any(not re.fullmatch(r"\w[\w.-]*", part, re.ASCII) for part in constants):
            raise DataError(f"expected `_:` and a label of letters, digits and cells, found {text!r}")
        return TermMap("blank", template)
    template = parse_template(expanded(text, prefixes))
    first = template.parts[0]
    if len(template.parts) == 1 and isinstance(first, Cell):
        template = Template(template.text, (Cell(first.name, True),))
    elif isinstance(first, Cell):
        if not first.is_raw:
            raise DataError(f"expected an absolute IRI, found {text!r}: write {{+{first.name}}} if the cell begins it")
    elif not _SCHEME.match(first):
        raise DataError(
            f"expected an absolute IRI or a prefixed name, found {text!r}. "
            f"Prefixes: {', '.join(sorted(prefixes)) or 'none'}"
        )
    for part in template.parts:
        if isinstance(part, str) and (bad := NOT_OF_IRIS.search(part)):
            raise DataError(f"expected an IRI, found {bad[0]!r} in {text!r}")
    return TermMap("iri", template)


def expanded(text: str, prefixes: Mapping[str, str]) -> str:
    """Return the IRI of a prefixed name, any other text as it is."""
    prefix, colon, name = text.partition(":")
    return prefixes[prefix] + name if colon and prefix in prefixes and not name.startswith("//") else text


def encoded_cell(kind: Kind, is_uri: bool = False) -> tuple[re.Pattern[str], Callable[[str], str]]:
    """Return the pattern of texts that are changed inside of a template of a kind, and what changes them."""
    if kind == "iri":
        encoded = ENCODED_IN_URIS if is_uri else ENCODED
        return encoded, lambda text: encoded.sub(_percent, text)
    return NOT_OF_LABELS, lambda text: NOT_OF_LABELS.sub(_underscored, text)


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _underscored(match: re.Match[str]) -> str:
    return "".join(f"_{byte:02X}" for byte in match[0].encode())

"""RDF terms in their dresses: canonical text, N-Triples, rdflib terms; Python values on their way in.

Canonical text is what ids are hashed from (csparql/terms.py). It keeps lexical forms to the letter, so rdflib literals
are made with normalize=False: `"01"^^xsd:integer` stays `01` on every way through this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING

from wukongs.csparql.terms import XSD
from wukongs.errors import DataError
from wukongs.query.terms.python_terms import EXPECTED, from_library, from_value, is_of_rdflib
from wukongs.store.canonical import shown_tag, split_literal, to_ntriples

__all__ = [
    "canonical_of",
    "from_ntriples",
    "from_python",
    "iris_of",
    "split_literal",
    "terms_of",
    "to_ntriples",
    "to_rdflib",
]

if TYPE_CHECKING:
    from rdflib.term import IdentifiedNode, Literal

_HEX = r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}"
_IRI = rf'<(?:[^\x00-\x20<>"{{}}|^`\\]|{_HEX})*>'
_TEXT = rf'"(?:[^"\\\n\r]|\\[tbnrf"\'\\]|{_HEX})*"'
_LANGUAGE = r"@[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*(?:--(?:ltr|rtl))?"
_LABEL_START = (
    "A-Za-z_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff0-9"
)
_LABEL_INNER = _LABEL_START + "\u00b7\u0300-\u036f\u203f-\u2040\\-"
_BLANK = f"_:[{_LABEL_START}](?:[{_LABEL_INNER}.]*[{_LABEL_INNER}])?"

_SPACE = r"[ \t]*"
_NTRIPLES_TERM = re.compile(f"{_IRI}|{_BLANK}|({_TEXT})(?:{_SPACE}(\\^\\^){_SPACE}({_IRI})|{_SPACE}({_LANGUAGE}))?")
_NEEDS_A_TAG = {f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}>" for name in ("langString", "dirLangString")}
_ESCAPE = re.compile(rf"{_HEX}|\\.")
_ESCAPED_CHARACTERS = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


# --- canonical text <-> N-Triples -------------------------------------------------------------------------------------


def _unescape(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[1] not in "uU":
        return _ESCAPED_CHARACTERS[escape[1]]
    number = int(escape[2:], 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise DataError(f"expected an escape that stands for a Unicode character, found {escape}")
    return chr(number)


def from_ntriples(text: str) -> str:
    """Return the canonical form of one N-Triples term.

    Raises: DataError (not an N-Triples term, or an escape that stands for no character).
    """
    text = _checked_ntriples(text)
    plain = _ESCAPE.sub(_unescape, text) if "\\" in text else text
    if not text.startswith('"'):
        return plain
    if text.endswith(">"):
        return plain.removesuffix(f"^^<{XSD}string>")
    if text.endswith('"'):
        return plain
    head, _, language = plain.rpartition('"@')
    return f'{head}"@{language.lower()}'


def _checked_ntriples(text: str) -> str:
    """Return a term without the white space that may stand before its tag or datatype. Raises DataError."""
    match = _NTRIPLES_TERM.fullmatch(text)
    if match is None or not _is_encodable(text) or _ESCAPE.sub(_unescape, match[3] or "") in _NEEDS_A_TAG:
        raise DataError(
            f'expected a term as N-Triples writes it, such as <http://ex/a>, "text", "text"@en or _:b, '
            f"found the string {_shown(text)}"
        )
    return "".join(filter(None, match.groups())) or text


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    text = ascii(value) if isinstance(value, str) and not _is_encodable(value) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# --- terms as users hand them in --------------------------------------------------------------------------------------


def canonical_of(term: object) -> str:
    """Return the canonical form of what stands for a term: an N-Triples string, a Python value or a term of rdflib or
    pyoxigraph (python_terms.py). Blank nodes keep their label, without a scope.

    Raises: DataError (anything else, or text that UTF-8 or N-Triples cannot hold).
    """
    if isinstance(term, str) and not is_of_rdflib(term):
        return from_ntriples(str(term))
    canonical = from_value(term) or from_library(term)
    if canonical is None:
        raise DataError(f"expected {EXPECTED}, found {_shown(term)} of type {type(term).__name__}")
    if canonical.startswith("_:") and re.fullmatch(_BLANK, canonical) is None:
        raise DataError(f"expected a blank node label that N-Triples can write, found {_shown(canonical[2:])}")
    if not _is_encodable(canonical):
        raise DataError(f"expected text that UTF-8 can hold, found a lone surrogate in {_shown(canonical)}")
    return canonical


def from_python(term: object) -> str:
    """Return what stands for a term as an N-Triples string; an N-Triples string is checked and returned as it is.

    Raises: DataError, as canonical_of.
    """
    if type(term) is str:
        _checked_ntriples(term)
        return term
    return to_ntriples(canonical_of(term))


# --- terms as users get them back -------------------------------------------------------------------------------------


def to_rdflib(canonical: str) -> IdentifiedNode | Literal:
    """Return the rdflib term: URIRef, BNode with the label of the text, or Literal as it was written.

    Raises: DataError (a term of RDF 1.2 that rdflib does not have).
    """
    return terms_of((canonical,))[0]


def terms_of(texts: Iterable[str]) -> list[IdentifiedNode | Literal]:
    """Return the rdflib term of each canonical form. Raises as to_rdflib.

    IRIs, blank nodes and strings equal those of rdflib's constructors. The constructors' checks are skipped, since
    canonical forms have been checked. Literals of other datatypes, whose Python value rdflib works out, are kept for
    the next time.
    """
    from rdflib.term import BNode, Literal, URIRef

    new = str.__new__
    made: list[IdentifiedNode | Literal] = []
    for text in texts:
        first = text[0]
        if first == "<":
            made.append(new(URIRef, text[1:-1]))
        elif first == "_":
            made.append(new(BNode, text[2:]))
        elif text[-1] == '"':
            lexical = text[1:-1]
            literal = new(Literal, lexical)
            literal._value = lexical
            literal._language = literal._datatype = literal._ill_typed = None
            made.append(literal)
        else:
            made.append(_marked_literal(text))
    return made


def iris_of(text: bytes, count: int) -> list[IdentifiedNode | Literal] | None:
    """Return the terms of IRIs that stand one after the other as UTF-8, `<http://a><http://b>`; None if brackets inside
    of them make that ambiguous. count: how many there are."""
    from rdflib.term import URIRef

    values = text.decode()[1:-1].split("><") if count else []
    return list(map(str.__new__, repeat(URIRef), values)) if len(values) == count else None


@lru_cache(maxsize=1 << 16)
def _marked_literal(canonical: str) -> Literal:
    """Return the literal of a canonical form with a datatype or language."""
    from rdflib.term import Literal, URIRef

    if canonical.startswith("("):
        raise _not_rdf11(canonical, "a triple term")
    lexical, datatype, language = split_literal(canonical)
    if language is not None and "--" in language:
        raise _not_rdf11(canonical, "a literal with a base direction")
    shown = None if language is None else shown_tag(language)
    return Literal(lexical, shown, None if datatype is None else URIRef(datatype), normalize=False)


def _not_rdf11(canonical: str, kind: str) -> DataError:
    return DataError(
        f"{to_ntriples(canonical)} is {kind}, for which rdflib has no term: take the result by serialize() or arrow(), "
        f"or the graph by dump()"
    )

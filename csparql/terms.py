"""The terms of a query: variables, and RDF terms in canonical form.

Canonical form is N-Triples with escapes decoded, xsd:string dropped, the language tag in lower case, IRIs untouched and
lexical forms kept to the letter: `<http://x>`, `"a"`, `"a"@en`, `"a"@en--ltr`, `"1"^^<...#integer>`. It is unambiguous
read from its right end, even though quotes inside a lexical form are not escaped. A triple term (RDF 1.2) is `(subject
predicate object)` with single blanks: the first two have none inside, so the object is the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
ARGUMENT_PREFIX = ".argument"
GRAPH_PREFIX = ".graph"
_STORED_BLANK = re.compile(r"_:s[0-9a-f]{16}x[^\x00-\x20<>\"{}|^`\\]+")


@dataclass(frozen=True, slots=True)
class Variable:
    """A query variable; the blank nodes of a pattern are variables whose names start with a dot."""

    name: str

    @property
    def is_blank(self) -> bool:
        return self.name.startswith(".")

    @property
    def is_argument(self) -> bool:
        """Whether it stands for a term of the query that each row of a table gives, and so is no variable of it."""
        return self.name.startswith(ARGUMENT_PREFIX)

    @property
    def is_graph(self) -> bool:
        """Whether it stands for the graph of a GRAPH block while the block does not know that as its own variable."""
        return self.name.startswith(GRAPH_PREFIX)

    def __str__(self) -> str:
        return f"?{self.name}"


@dataclass(frozen=True, slots=True)
class Term:
    """An RDF term in canonical form."""

    text: str

    @property
    def is_iri(self) -> bool:
        return self.text.startswith("<")

    @property
    def name(self) -> str:
        """The name of a graph: an IRI without brackets, or the label of a blank node. The inverse of `iri`."""
        return self.text[1:-1] if self.is_iri else self.text

    @property
    def is_literal(self) -> bool:
        return self.text.startswith('"')

    @property
    def is_triple(self) -> bool:
        return self.text.startswith("(")

    def __str__(self) -> str:
        return self.text


def iri(value: str) -> Term:
    """Return the term of an IRI; of a graph that has a blank node for its name, the label in answers is the IRI."""
    return Term(value if is_reported(value) else f"<{value}>")


def is_reported(label: str) -> bool:
    """Tell whether a text is the label under which answers report a stored blank node."""
    return label.startswith("_:s") and _STORED_BLANK.fullmatch(label) is not None


def literal(lexical: str, datatype: str | None = None, language: str | None = None) -> Term:
    """Make a literal term. datatype is an IRI without brackets; xsd:string is dropped, language goes to lower case."""
    if language is not None:
        return Term(f'"{lexical}"@{language.lower()}')
    if datatype is None or datatype == XSD + "string":
        return Term(f'"{lexical}"')
    return Term(f'"{lexical}"^^<{datatype}>')


def triple_term(subject: str, predicate: str, object_: str) -> Term:
    """Make a triple term of canonical forms."""
    return Term(f"({subject} {predicate} {object_})")


RDF_TYPE = iri(RDF + "type")
RDF_FIRST = iri(RDF + "first")
RDF_REST = iri(RDF + "rest")
RDF_NIL = iri(RDF + "nil")
RDF_REIFIES = iri(RDF + "reifies")

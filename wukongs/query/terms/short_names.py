"""Terms with their IRIs shortened by prefixes, as Turtle and tables show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from wukongs.query.terms.rdf_terms import split_literal, to_ntriples

_LOCAL_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")


def shortener(prefixes: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function from a canonical text to Turtle, with a prefix where that leaves a plain local name."""
    longest_first = sorted(prefixes.items(), key=lambda item: -len(item[1]))

    def short_iri(iri: str) -> str | None:
        for prefix, start in longest_first:
            if start and iri.startswith(start) and _LOCAL_NAME.fullmatch(iri, len(start)):
                return f"{prefix}:{iri[len(start) :]}"
        return None

    def short(text: str) -> str:
        if text.startswith("<"):
            return short_iri(text[1:-1]) or to_ntriples(text)
        written = to_ntriples(text)
        datatype = split_literal(text)[1] if text.startswith('"') else None
        name = short_iri(datatype) if datatype is not None else None
        return written if name is None else written[: written.rindex('"^^<') + 3] + name

    return short

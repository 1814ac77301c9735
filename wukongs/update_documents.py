"""The documents of LOAD: where they may come from, and their quads.

A document is a file: a `file:` IRI or a path, relative to the folder of this process where neither the IRI nor the base
says otherwise. Anything else is fetched only from where the setting load_from allows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from csparql.terms import Term
from store.dtypes import UNBOUND
from store.quads import Quads, joined
from store.rdf_files import read_rdf
from wukongs.core import Core
from wukongs.errors import DataError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def read_document(core: Core, document: str, into: Term | None, scope: str, check: Callable[[], None]) -> Quads:
    """Read a document; return its quads, their terms known. into: the graph of triples without one of their own; scope:
    of its blank nodes; check: called now and then, may raise.

    Raises DataError: not allowed, not there, not RDF (file and line)."""
    path = path_of(document)
    base = document if _SCHEME.match(document) else None
    registry = core.registry
    graph = core.graph_id(into)
    parts: list[Quads] = []
    for chunk in read_rdf(
        path, None, base, scope.encode(), on_malformed=None, strict=True, hash_bits=registry.hash_bits
    ):
        check()
        encoded, _ = registry.confirm(chunk)
        graphs = np.where(encoded.graphs == UNBOUND, graph, encoded.graphs)
        parts.append((graphs, encoded.subjects, encoded.predicates, encoded.objects))
    return joined(parts)


def path_of(document: str) -> Path:
    """Return the file that an IRI of LOAD names. Raises DataError for what is no file on this machine."""
    scheme = _SCHEME.match(document)
    if scheme is None:
        return Path(unquote(document))
    if scheme[1].lower() != "file":
        raise DataError(
            f"LOAD reads files only, and nothing is fetched from {scheme[1]}: save the document, and load file:///...",
            document,
        )
    parts = urlsplit(document)
    if parts.netloc not in ("", "localhost"):
        raise DataError(f"LOAD of a file on the host {parts.netloc!r}: only files of this machine are read", document)
    return Path(unquote(parts.path))

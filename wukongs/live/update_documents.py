"""The documents of LOAD: where they may come from, and their quads.

A document is a file: a `file:` IRI or a path, relative to the folder of this process where neither the IRI nor the base
says otherwise. Anything else is fetched only from where the setting load_from allows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.terms import Term
from wukongs.csparql.updates import Load
from wukongs.errors import AccessError, DataError
from wukongs.live.core import Core
from wukongs.live.reading import ids_of
from wukongs.query.limits import current
from wukongs.settings import Settings
from wukongs.store.dtypes import UNBOUND
from wukongs.store.json_ld_text import Contexts
from wukongs.store.quads import Quads, joined
from wukongs.store.rdf_files import RdfReader, read_in_order

_MAY_LOAD = re.compile(r"LOAD|\\u", re.IGNORECASE)
"""The word may be written with escapes: what a text means is known once it is parsed."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def check_loads(text: str, base: str | None, settings: Settings) -> None:
    """Raise AccessError if an update loads a file of this machine, which is not for clients that are not trusted with
    all of it."""
    if _MAY_LOAD.search(text) is None:
        return
    from wukongs.live.fetch import is_allowed

    for operation in parse_update(text, base).operations:
        if isinstance(operation, Load) and not is_allowed(operation.document, settings.load_from):
            raise AccessError(
                f"LOAD <{operation.document}>: for this client only what the setting load_from allows is loaded; "
                "send the document to /store, or load it as a client"
            )


def read_document(core: Core, document: str, into: Term | None, scope: str, check: Callable[[], None]) -> Quads:
    """Read a document; return its quads, their terms known. into: the graph of triples without one of their own; scope:
    of its blank nodes; check: called now and then, may raise.

    Raises DataError: not allowed, not there, not RDF (file and line)."""
    terms = ids_of(core)
    graph = core.default_graph if into is None else terms.keep(into.text)
    parts: list[Quads] = []
    with _reader(core.settings, document, scope.encode()) as reader:
        for chunk in read_in_order(reader, None, strict=True):
            check()
            current().hold(2 * 4 * 8 * len(chunk), "LOAD")  # in parts, and joined
            encoded, _ = terms.confirm(chunk)
            graphs = np.where(encoded.graphs == UNBOUND, graph, encoded.graphs)
            parts.append((graphs, encoded.subjects, encoded.predicates, encoded.objects))
    return joined(parts)


@contextmanager
def _reader(settings: Settings, document: str, scope: bytes) -> Iterator[RdfReader]:
    contexts = Contexts(settings.contexts)
    from wukongs.live.fetch import fetched, is_allowed, too_large  # its imports take longer than a small update

    if not is_allowed(document, settings.load_from):
        path = path_of(document, settings.load_from)
        base = document if _SCHEME.match(document) else None
        yield RdfReader(path, None, base, scope, hash_bits=settings.hash_bits, contexts=contexts)
        return
    limit = settings.fetch_bytes_max, too_large(settings)
    with fetched(document, settings) as (source, found):
        yield RdfReader(
            source,
            found.format,
            found.base,
            scope,
            name=document,
            text_limit=limit,
            hash_bits=settings.hash_bits,
            contexts=contexts,
        )


def path_of(document: str, places: tuple[str, ...] = ()) -> Path:
    """Return the file that an IRI of LOAD names. places: from where other documents may come.

    Raises DataError for what is no file on this machine."""
    scheme = _SCHEME.match(document)
    if scheme is None:
        return Path(unquote(document))
    if scheme[1].lower() != "file":
        also = f"what begins with {' or '.join(places)}" if places else "nothing else"
        raise DataError(
            f"LOAD reads files of this machine, and the setting load_from allows {also}. Allow it there "
            "(WUKONGS_LOAD_FROM, or --load-from of `wukongs update`), or save the document and load file:///...",
            document,
        )
    parts = urlsplit(document)
    if parts.netloc not in ("", "localhost"):
        raise DataError(f"LOAD of a file on the host {parts.netloc!r}: only files of this machine are read", document)
    return Path(unquote(parts.path))

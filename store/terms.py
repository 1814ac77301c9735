"""RDF term <-> term id, term by term, and the ways into and out of the canonical form.

Canonical form is N-Triples with escapes decoded to UTF-8, xsd:string dropped, the language tag in lower case, IRIs
untouched, lexical forms to the letter, and blank nodes labelled by their scope. Quotes inside a lexical form are not
escaped: the form is read from its right end. A triple term (RDF 1.2) is `(subject predicate object)`.

* An id is even (a hash) or odd (an inlined literal), never negative, never 0.
* Two terms have the same canonical form if and only if they are the same RDF term.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from wukongs.store.canonical import split_literal, to_ntriples
from wukongs.store.dtypes import UInt8Array
from wukongs.store.term_ids import (
    HASH_BITS,
    decimal_parts,
    hash_id,
    is_inlined,
    numeric_values,
    term_id,
    unpack,
    xxh64,
)
from wukongs.store.value_kernels import (
    KIND_BOOLEAN,
    KIND_DATE,
    KIND_DATE_LOCAL,
    KIND_DATE_TIME,
    KIND_DATE_TIME_LOCAL,
    KIND_DECIMAL,
    KIND_DOUBLE,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_NONE,
)

__all__ = [
    "HASH_BITS",
    "KIND_BOOLEAN",
    "KIND_DATE",
    "KIND_DATE_LOCAL",
    "KIND_DATE_TIME",
    "KIND_DATE_TIME_LOCAL",
    "KIND_DECIMAL",
    "KIND_DOUBLE",
    "KIND_FLOAT",
    "KIND_INTEGER",
    "KIND_NONE",
    "blank_node",
    "blank_node_prefix",
    "decimal_parts",
    "hash_id",
    "is_inlined",
    "numeric_values",
    "split_literal",
    "term_id",
    "to_ntriples",
    "unpack",
    "xxh64",
]


@lru_cache(maxsize=1024)
def _scope_text(scope: bytes) -> str:
    return f"_:s{xxh64(scope):016x}x"


def blank_node(scope: bytes, label: str) -> str:
    """Return the canonical form of the blank node that `label` (without `_:`) names in a scope."""
    return _scope_text(scope) + label


def blank_node_prefix(scope: bytes) -> UInt8Array:
    """Return the prefix that the canonical form puts in place of `_:`, as uint8[20]."""
    return np.frombuffer(_scope_text(scope).encode(), np.uint8)

"""Every dtype, id range and reserved value of the store, once.

A term id is 63 bits in an int64, so it is never negative. Its low bit tells two kinds apart:

* 0: the top 62 bits of XXH64 (seed 42) of the term's canonical form, shifted left by one;
* 1: an inlined literal: 62 bits of datatype and lexical form, mixed by a bijection so that ids stay uniform.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
UInt16Array = npt.NDArray[np.uint16]
UInt8Array = npt.NDArray[np.uint8]
UInt64Array = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

ID_BITS = 63
HASH_SEED = 42
INLINE_MARK = 1

UNBOUND = -1
"""In a binding table: no term. In an encoded graph column: no graph term of its own."""
WINDOW_GRAPH = 0
"""The graph id under which a slice files its triples; no term has it (a zero hash is re-hashed)."""
NO_MATCH = -2
"""A constant that no stored term can equal."""
CLASH_FIRST = -3
"""In the columns of an Encoded that is not confirmed yet: CLASH_FIRST - k stands for term k of its clashes."""

DEFAULT_GRAPH_IRI = "urn:x-wukongs:default"
INFERRED_IRI = "urn:x-wukongs:inferred"
"""Names all that rules have inferred in the default graph; with `:IRI` behind it, in that one (hidden_graphs.py)."""
EXPLICIT_IRI = "urn:x-wukongs:explicit"
"""Names all else of the default graph; with `:IRI` behind it, of that graph."""
OUT = 0
"""Direction: from subject to object."""
IN = 1
"""Direction: from object to subject."""

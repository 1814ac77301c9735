"""AnswerCache: answers of registered queries, by the versions of all that they depend on.

The answer of a query is a function of its algebra and of its inputs: what its windows hold, what it reads of stored
graphs, and its arguments. So it is found once for all firings with equal versions of these (input_versions.py): for
other queries at the same time, for the same query while nothing changes, and for windows that are empty.

An answer is kept until one of the same algebra has other versions, and in all at most KEPT_BYTES.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from hashlib import blake2b

from wukongs.csparql.algebra import Query, Service
from wukongs.csparql.functions import depends_on_moment
from wukongs.csparql.walk import parts_of
from wukongs.live.slice_filter import Predicate
from wukongs.query.execution.answer import Answer
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.trace import Trace

KEPT_BYTES = 64 << 20
"""The bytes of answers, at most; beyond it all are forgotten."""
SETS_MAX = 1000
"""The sets of predicates whose versions are known, at most; beyond it all are forgotten."""


@dataclass(slots=True, eq=False)
class CachedAnswer:
    """The answer to versions of the inputs of an algebra.

    by: the query whose firing is to find it, or has; None: none yet.
    answered: the answer, and what reads its terms; None: it is not found yet.
    is_direct: later firings of the query may be direct (joint_firings.py)."""

    versions: Hashable
    by: str | None = None
    answered: tuple[Answer, Utf8Reader] | None = None
    is_direct: bool = True


class StoredVersions:
    """The versions of what the stored graphs of an engine have with some predicates."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[frozenset[Predicate], tuple[int, int]] = {}
        """Predicates -> an SN, and the last one up to which nothing with them has changed since."""

    def at(self, predicates: frozenset[Predicate], sn: int) -> int:
        """Return an SN at which everything with these predicates is as at another one."""
        known = self._known.get(predicates)
        if known is not None:
            version, same_to = known
            if sn <= same_to:
                return version if sn == same_to else sn
            if any(self._trace.touches(same_to, predicate, None) for predicate in predicates):
                known = None
        if len(self._known) >= SETS_MAX:
            self._known.clear()
        version = sn if known is None else known[0]
        self._known[predicates] = version, sn
        return version


class AnswerCache:
    """The answers of one engine. Called by the thread that fires, but for `forget`."""

    def __init__(self, trace: Trace) -> None:
        self.stored = StoredVersions(trace)
        self._kept: dict[object, CachedAnswer] = {}
        """By algebra, or what stands for it."""
        self._kept_bytes = 0

    def get(self, algebra: object, versions: Hashable) -> CachedAnswer:
        """Return what is known of some versions, which takes the place of what is known of others."""
        found = self._kept.get(algebra)
        if found is None or found.versions != versions:
            found = self._kept[algebra] = CachedAnswer(versions)
        return found

    def keep(self, cached: CachedAnswer, found: Answer, terms: Utf8Reader) -> None:
        """Note an answer that was found. terms: reads it."""
        for column in found.columns:
            self._kept_bytes += column.nbytes
        if self._kept_bytes > KEPT_BYTES:
            self._kept, self._kept_bytes = {}, 0
        cached.answered = found, terms

    def forget(self, algebra: object) -> None:
        """Forget an answer: a query with this algebra fires no more. From any thread."""
        self._kept.pop(algebra, None)


def algebra_of(query: Query) -> Hashable:
    """Return what is equal for queries that have the same answer when they read the same: a digest, which is compared
    faster than the parts of a query. None: another firing may have another answer, whatever it reads."""
    if depends_on_moment(query.pattern) or any(isinstance(part, Service) for part in parts_of(query.pattern)):
        return None
    windows = tuple(replace(window, line=0, column=0) for window in query.dataset.windows)
    parts = query.form, query.variables, query.pattern, query.template, replace(query.dataset, windows=windows)
    return digest(parts)


def digest(part: object) -> bytes:
    """Return what is equal for equal parts of queries."""
    return blake2b(repr(part).encode("utf-8", "surrogatepass"), digest_size=16).digest()

"""Names in a query that nothing has: predicates and graphs without a triple, each with the nearest that is there.

They are looked for only when somebody asks for warnings. A name that was found once is not looked for again, so asking
for the warnings of the same text costs nothing then. On a node of a cluster the stored graph is that of all nodes; the
slices of the streams, and the names that may have been meant, are those of this node.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property

import numpy as np

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Term, iri
from wukongs.csparql.warnings import UnseenNames
from wukongs.errors import WukongsError
from wukongs.live.core import Core
from wukongs.live.reading import ids_of
from wukongs.query.limits import limits_of
from wukongs.query.terms.query_terms import ConstantIds
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.hidden_graphs import view_of
from wukongs.store.slice_ring import SliceRing

ASK_S = 5.0
"""So long other nodes may take to tell whether they have a name, or query_timeout_s if that is less."""
NEAR_MAX = 2000
"""The nearest name is looked for among so many: it takes a tenth of a second."""
_SIMILAR = 0.7


def unknown_names(core: Core, query: Query, unseen: UnseenNames) -> tuple[str, ...]:
    """Return a sentence for each name that nothing has. unseen: the names of the query; those that are found leave it.

    Nothing is told to a query that may read some graphs only: what was meant may be in another one. Where there is no
    data at all, nothing is said of predicates; neither is it while a stream that the query reads has
    brought nothing. On a node of a cluster, not with the core's lock held: it may ask others. If these cannot tell,
    nothing is said, either."""
    if query.dataset.only is not None or not (unseen.predicates or unseen.graphs):
        return ()
    held, told = _Held(core, query), list[str]()
    with (
        suppress(WukongsError),
        limits_of(core.settings, min(ASK_S, core.settings.query_timeout_s or ASK_S)),
    ):
        if held.may_tell:
            for name in [name for name in unseen.predicates if held.has_predicate(name)]:
                unseen.predicates.pop(name, None)
            for name in list(unseen.predicates):
                near = _hint(name, held.predicates, unseen, held)
                told.append(f"nothing has predicate {name} so far, neither the stored graph nor a stream{near}")
        for name in [name for name in unseen.graphs if held.has_graph(name)]:
            unseen.graphs.pop(name, None)
        told += [
            f"there is no graph {name} so far{_hint(name, held.graphs, unseen, held)}" for name in list(unseen.graphs)
        ]
    return tuple(told)


class _Held:
    """The data at one moment, as far as they have names."""

    def __init__(self, core: Core, query: Query) -> None:
        with core.lock:
            core.check_is_open()
            core.finish_tick()
            self._stored = core.arrangement.trace.read(core.sn)
            states = list(core.declared.values())
            self._slices = [_slices(state.ring) for state in states]
            self._into = {iri(state.into_iri).text for state in states if state.into_iri is not None}
            reader = core.registry.snapshot_reader()
            self._whole = None if core.reach is None else core.reach.graph(self._stored, core.sn)
            read = [core.streams[window.stream].ring for window in query.dataset.windows]
        self._default = core.default_graph
        self._constants = ConstantIds(ids_of(core), core.reserved)
        self.reader = reader if core.reach is None else core.reach.reader(reader)
        self._has_come = all(ring.slice_count for ring in read)

    @cached_property
    def may_tell(self) -> bool:
        """Whether there are data, also of all streams that the query reads."""
        has_here = any(map(len, (self._stored, *self._slices)))
        return self._has_come and (has_here or (self._whole is not None and len(self._whole.graph_names()) > 0))

    def has_predicate(self, name: Term) -> bool:
        wanted = self._constants(name)
        return any(_has(batches, wanted) for batches in (self._stored, *self._slices)) or (
            self._whole is not None and wanted >= 0 and self._whole.holds_elsewhere(wanted, self._default)
        )

    def has_graph(self, name: Term) -> bool:
        wanted = self._constants(name)
        is_view = view_of(name.name) is not None
        return is_view or name.text in self._into or bool((self.graphs == wanted).any())

    @cached_property
    def predicates(self) -> Int64Array:
        """The distinct predicates that are here. int64[n]"""
        batches = [batch for one in (self._stored, *self._slices) for batch in one.batches]
        return np.unique(np.concatenate([batch.predicates for batch in batches] or [np.empty(0, np.int64)]))

    @cached_property
    def graphs(self) -> Int64Array:
        """The graphs with a stored triple. int64[n]"""
        found: Int64Array = self._stored.graphs if self._whole is None else self._whole.graph_names()
        named: Int64Array = found[found != self._default]
        return named


def _slices(ring: SliceRing) -> BatchSet:
    oldest, closed_to = ring.oldest, ring.closed_to
    return EMPTY if oldest is None or closed_to is None else ring.window(oldest - 1, closed_to)


def _has(batches: BatchSet, predicate: int) -> bool:
    """Tell whether a predicate is in a directory, which is sorted by predicates."""
    for batch in batches.batches:
        place = int(np.searchsorted(batch.predicates, predicate))
        if place < len(batch.predicates) and batch.predicates[place] == predicate:
            return True
    return False


def _hint(name: Term, ids: Int64Array, unseen: UnseenNames, held: _Held) -> str:
    key = name.text, len(ids)
    if key not in unseen.near:
        unseen.near[key] = nearest_name(name.text, held.reader.texts(ids[:NEAR_MAX]))
    near = unseen.near[key]
    return f": did you mean {near}?" if near else ""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known IRI that another one was perhaps meant to be, both in angle brackets; or nothing. Local names
    are compared, whatever their case; of IRIs with the same one, namespaces."""
    by_local: dict[str, list[str]] = {}
    for one in known:
        by_local.setdefault(_local(one).lower(), []).append(one)
    found = get_close_matches(_local(name).lower(), by_local, 1, _SIMILAR)
    if not found:
        return ""
    return max(by_local[found[0]], key=lambda one: SequenceMatcher(None, one, name).ratio())


def _local(name: str) -> str:
    """Return what an IRI has behind its last # or /."""
    text = name[1:-1].rstrip("/#")
    return text[max(text.rfind("#"), text.rfind("/")) + 1 :]

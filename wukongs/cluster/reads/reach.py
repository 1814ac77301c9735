"""A node's Reach: what it does not hold, it asks of the owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wukongs.cluster.reads.asking import Asking
from wukongs.cluster.reads.distant_terms import DistantIds, DistantReader
from wukongs.cluster.reads.divided_graph import DividedGraph
from wukongs.cluster.reads.owner import changed_in
from wukongs.cluster.reads.traffic import Owners
from wukongs.query.terms.query_terms import DataTexts
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.quads import Quads, joined
from wukongs.store.term_registry import TermReader, TermRegistry
from wukongs.store.trace import TraceEntry


class OwnersReach:
    """A `wukongs.query.reach.Reach`. The other side is `owner.handlers(core, wait_for_sn)`, which the network serves.

    keep: how updates make new terms known for ever in the whole cluster (canonical forms -> ids); by default this node
    alone learns them, which is right only where no two texts have one hash."""

    def __init__(
        self, registry: TermRegistry, owners: Owners, keep: Callable[[Sequence[str]], Int64Array] | None = None
    ) -> None:
        self._owners = owners
        self.traffic = owners.traffic
        self.ids = DistantIds(registry, owners, keep or registry.keep_all)

    def graph(self, own: BatchSet, sn: int, texts: DataTexts | None = None) -> DividedGraph | None:
        assignment = self._owners.assignment()
        if assignment.is_local:
            return None
        kept = texts if isinstance(texts, DistantReader) else None
        return DividedGraph(Asking(self._owners, assignment, sn, kept), own)

    def changed(self, entries: Iterable[TraceEntry], after_sn: int, sn: int) -> tuple[Quads, Quads] | None:
        assignment = self._owners.assignment()
        others = Asking(self._owners, assignment, sn).changed(after_sn)
        if others is None:
            return None
        own = changed_in(entries, assignment.shards(assignment.me))
        inserted, deleted = (joined([here, there]) for here, there in zip(own, others, strict=True))
        return inserted, deleted

    def reader(self, own: TermReader) -> DistantReader:
        return DistantReader(own, self._owners)

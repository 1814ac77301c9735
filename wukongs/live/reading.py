"""What an execution reads: the stored graph and its terms, of this core or of the cluster that it is a node of."""

from __future__ import annotations

from collections.abc import Mapping

from wukongs.csparql.algebra import DatasetClause, StreamWindow
from wukongs.live.core import Core
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.terms.moment import Moment
from wukongs.query.terms.query_terms import ConstantIds, QueryTerms, TermKeeper
from wukongs.store.batch_set import BatchSet
from wukongs.store.term_registry import TermReader


def dataset_of(
    core: Core,
    clause: DatasetClause,
    stored: BatchSet,
    sn: int,
    windows: Mapping[StreamWindow, BatchSet] | None = None,
    constants: Resolve | None = None,
) -> Dataset:
    """Return the dataset of an execution. stored: what this core holds of the stored graph at the SN; windows: of the
    clause; constants: their ids (default: as the data knows them).

    Never asks another node: it may be called with the core's lock held."""
    constants = constants or ConstantIds(ids_of(core), core.reserved)
    graph = None if core.reach is None else core.reach.graph(stored, sn)
    return Dataset(clause, stored, windows or {}, constants, completion=graph)


def terms_of(core: Core, reader: TermReader | None = None, moment: Moment | None = None) -> QueryTerms:
    """Return the terms of an execution. reader: the texts as they are to be read, by default as they are now."""
    reader = reader or core.registry.snapshot_reader()
    return QueryTerms(ids_of(core), reader if core.reach is None else core.reach.reader(reader), moment)


def ids_of(core: Core) -> TermKeeper:
    """Return what knows the ids of terms. May ask other nodes, so not with the core's lock held."""
    return core.registry if core.reach is None else core.reach.ids

"""Reading the stored graph: the dataset and the terms of an execution, one-shot answers, and EXPLAIN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from wukongs.csparql.algebra import DatasetClause, Query, StreamWindow
from wukongs.csparql.explain import Figures, explain
from wukongs.errors import CompactedError
from wukongs.live.core import Core
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import answer
from wukongs.query.execution.prepared import hold_parsed
from wukongs.query.execution.profile import Profile
from wukongs.query.limits import Limits
from wukongs.query.output.results import Result
from wukongs.query.plans.cardinalities import DatasetCardinalities
from wukongs.query.plans.dataset import Dataset, Resolve, name_graphs
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.spill_files import bytes_in_memory
from wukongs.query.terms.moment import Moment
from wukongs.query.terms.query_terms import ConstantIds, QueryTerms, TermKeeper
from wukongs.store.batch_set import BatchSet
from wukongs.store.term_registry import TermReader
from wukongs.store.trace import Handle


def dataset_of(
    core: Core,
    clause: DatasetClause,
    stored: BatchSet,
    sn: int,
    windows: Mapping[StreamWindow, BatchSet] | None = None,
    constants: Resolve | None = None,
    terms: QueryTerms | None = None,
) -> Dataset:
    """Return the dataset of an execution. stored: what this core holds of the stored graph at the SN; windows: of the
    clause; constants: their ids (default: as the data knows them); terms: of the execution, if they will be read.

    Never asks another node: it may be called with the core's lock held."""
    constants = constants or ConstantIds(ids_of(core), core.reserved)
    graph = None if core.reach is None else core.reach.graph(stored, sn, None if terms is None else terms.reader)
    return Dataset(clause, stored, windows or {}, constants, completion=graph)


def terms_of(core: Core, reader: TermReader | None = None, moment: Moment | None = None) -> QueryTerms:
    """Return the terms of an execution. reader: the texts as they are to be read, by default as they are now."""
    reader = reader or core.registry.snapshot_reader()
    return QueryTerms(ids_of(core), reader if core.reach is None else core.reach.reader(reader), moment)


def ids_of(core: Core) -> TermKeeper:
    """Return what knows the ids of terms. May ask other nodes, so not with the core's lock held."""
    return core.registry if core.reach is None else core.reach.ids


def explain_over(query: Query, dataset: Dataset, figures: Figures | None = None) -> str:
    """Return the text of a query's plan over a dataset. figures: what an execution over it did."""
    completion = dataset.completion
    ways = None if completion is None else partial(completion.way, dataset)
    return explain(query, DatasetCardinalities(dataset), figures, ways)


def profiled(query: Query, dataset: Dataset, terms: QueryTerms, limits: Limits, memo: PlanMemo, scope: str) -> Profile:
    """Run a registered query as a firing would, for nothing but what its plan does. Raises BudgetExceeded."""
    profile = Profile()
    answer(query, dataset, terms, limits, memo, scope, in_order=True, profile=profile)
    return profile


def open_snapshot(core: Core, at: int | None, owner: str, age_max_s: float = math.inf) -> Handle:
    """Open a handle on the newest stable snapshot, or on that of SN `at`. With the core's lock held.

    age_max_s: after so many seconds it may be taken away. Raises CompactedError (at)."""
    core.check_is_open()
    core.finish_tick()
    if at is not None and not (isinstance(at, int) and 0 <= at <= core.sn):
        raise CompactedError(f"at = {at!r}: expected a snapshot number from 0 to {core.sn}, the newest stable one")
    return core.arrangement.open(core.sn if at is None else at, owner, age_max_s=age_max_s)


@dataclass(frozen=True, slots=True)
class Read:
    """The things that one execution reads. scope: names the blank nodes that it makes."""

    dataset: Dataset
    terms: QueryTerms
    sn: int
    scope: str


@contextmanager
def reading(core: Core, clause: DatasetClause, limits: Limits, owner: str, at: int | None = None) -> Iterator[Read]:
    """Hold the newest stable snapshot, or that of SN `at`, until the block ends.

    owner: the holder of the snapshot meanwhile, for stats(). Raises CompactedError (at)."""
    with core.lock:
        handle = open_snapshot(core, at, owner)
        stored = handle.read()
        terms = terms_of(core)
        core.query_count += 1
        number = core.query_count
        core.running.begin(number, owner, limits)
    try:
        dataset = dataset_of(core, clause, stored, handle.sn, terms=terms)
        with limits:
            name_graphs(clause, terms)
        yield Read(dataset, terms, handle.sn, f"query {number}")
    finally:
        core.running.end(number)
        with core.lock:
            handle.close()


def ask(
    core: Core,
    query: Query,
    memo: PlanMemo,
    limits: Limits,
    owner: str,
    at: int | None = None,
    profile: Profile | None = None,
    given: Callable[[QueryTerms], BindingTable] | None = None,
    text: str = "",
) -> tuple[Result, Dataset]:
    """Answer a query over the newest stable snapshot, or that of SN `at`; return also what it read.

    owner, at: as for reading; profile: notes rows and times of the plan; given: makes the row of arguments, if the
    query is that of a BoundQuery; text: of the query, for the result. Raises QueryTimeout,
    BudgetExceeded, CompactedError (at).
    """
    with reading(core, query.dataset, limits, owner, at) as read, limits:
        hold_parsed(text, limits)
        row = None if given is None else given(read.terms)
        found = answer(query, read.dataset, read.terms, limits, memo, read.scope, profile=profile, given=row)
        result = Result(
            query.form,
            query.variables,
            found.columns,
            read.terms,
            read.sn,
            found.boolean,
            found.length,
            text=text,
        )
        result.reservation = limits.hand_over(lambda: bytes_in_memory(found.columns))
    return result, read.dataset

"""One update request while it runs: its operations, one after the other, over the snapshot that it reads.

Nothing is stored here: each operation changes a GraphChange, and the next one reads the snapshot with that on top. A
graph is there while it has a triple, or was made by CREATE before in the request: empty graphs are not recorded
(docs/decisions/0012-updates.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from wukongs.csparql.rules import rewrite
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.updates import Clear, Create, DeleteData, InsertData, Load, Modify, Transfer
from wukongs.errors import DataError, UpdateError
from wukongs.live.core import Core
from wukongs.live.reading import ids_of, terms_of
from wukongs.live.seen_graphs import check_seen
from wukongs.live.table_change import Change, TableChange, deleted, inserted
from wukongs.live.update_documents import read_document
from wukongs.live.update_templates import Solutions, data_quads, to_delete, to_insert
from wukongs.query.execution.answer import answer
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset, is_seen, restricted
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.reach import ReachedGraph
from wukongs.query.terms.query_terms import ConstantIds
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, NO_MATCH, UNBOUND, Int64Array
from wukongs.store.graph_change import GraphChange
from wukongs.store.hidden_graphs import View, check_written, view_of
from wukongs.store.quads import Quads, graph_quads
from wukongs.store.trace import Handle

STAGED_BYTES = 6 * 32
"""The bytes that a changed quad takes until it is stored: as it was made, folded, as a batch and as a difference."""
COPIED_BYTES = 2 * 32
"""The bytes that a quad takes while a graph is read whole."""


class _View:
    """The graph that an operation reads: the stored batches, or the part of a divided graph that is here by now."""

    def __init__(self, stored: BatchSet | None, divided: ReachedGraph | None) -> None:
        self._stored = stored
        self.divided = divided

    @property
    def stored(self) -> BatchSet:
        if self.divided is not None:
            return self.divided.stored
        assert self._stored is not None
        return self._stored

    @cached_property
    def graphs(self) -> list[int]:
        """The ids of the graphs with a triple, sorted."""
        found: list[int] = (self.stored.graphs if self.divided is None else self.divided.graph_names()).tolist()
        return found

    def quads(self, graph: int, name: int, view: View | None = None) -> Quads:
        """Return all triples of a graph, each once, under another graph's name. view: the part of it that is asked
        for."""
        if self.divided is not None and graph != NO_MATCH:
            self.divided.fetch_all(None, (graph,))
        stored, graph = (self.stored, graph) if view is None else view.of(self.stored, graph)
        return graph_quads(stored, graph, name)


def _written(operation: Change) -> Iterator[Term]:
    """Yield the graphs that an operation names to write them."""
    graphs: Iterable[object] = ()
    match operation:
        case InsertData() | DeleteData():
            graphs = [quad.graph for quad in operation.quads]
            for columns in operation.columns:
                yield from (Term(str(columns.terms[place])) for place in set(columns.graphs) if place >= 0)
        case Modify():
            graphs = *(quad.graph for quad in (*operation.delete, *operation.insert)), operation.default_graph
        case Clear():
            graphs = (operation.target,)
        case Create():
            graphs = (operation.graph,)
        case Transfer():
            graphs = operation.destination, operation.source if operation.kind == "MOVE" else None
        case Load():
            graphs = (operation.into,)
        case TableChange():
            for table in (operation.deletes, operation.inserts):
                if table is not None and "graph" in table.column_names:
                    names = table.column("graph").unique().to_pylist()
                    graphs = [*graphs, *(Term(name) for name in names if name and name.startswith("<"))]
    yield from (graph for graph in set(graphs) if isinstance(graph, Term))


class UpdateRequest:
    """handle: of the snapshot that is read; number: of the request, which names its blank nodes; only: the graphs that
    it may read and write (None: all). Made with the core's lock held.

    A graph that is not among these is not there for a request, and an error where it is named or meant to be written,
    whether it is there or not."""

    def __init__(
        self, core: Core, handle: Handle, number: int, limits: Limits, only: tuple[str, ...] | None = None
    ) -> None:
        self._core, self._only = core, only
        self._handle = handle
        self._limits = limits
        self.staged_bytes = 0
        """The memory that the changes so far take until they are stored; the limits hold it."""
        self._scope = f"update:{number}"
        self._created: set[int] = set()
        self._ids = ids_of(core)
        stored = handle.read()
        self._divided = None if core.reach is None else core.reach.graph(stored, handle.sn)
        """The snapshot, where this node holds only a share of it."""
        self._change = GraphChange(stored, core.arrangement.filter_reader())

    def run(self, place: int, operation: Change) -> None:
        """Do the operation at a place of the request (from 1).

        Raises UpdateError, DataError (both not with SILENT), DataError (a graph that is only read), AccessError (a
        graph that it may not write), QueryTimeout, BudgetExceeded."""
        self._limits.check()
        for name in _written(operation):
            check_written(name.name)
            self._check_seen(name.name)
        scope = f"{self._scope}:{place}"
        core = self._core
        try:
            match operation:
                case InsertData():
                    self._insert(data_quads(operation, self._ids, core.default_graph, scope))
                case DeleteData():
                    self._delete(data_quads(operation, self._ids, core.default_graph, None))
                case Modify():
                    self._modify(operation, scope)
                case Clear():
                    self._clear(operation)
                case Create(graph=graph):
                    self._create(graph)
                case Transfer():
                    self._transfer(operation)
                case TableChange():
                    self._apply(operation, scope)
                case Load(document=document, into=into):
                    self._insert(read_document(core, document, into, scope, self._limits.check))
        except (UpdateError, DataError):
            if not getattr(operation, "silent", False):
                raise

    # --- what may be written ------------------------------------------------------------------------------------------

    @cached_property
    def _seen_ids(self) -> set[int] | None:
        """The ids of the graphs that may be read and written, which they have from now on; None: all may."""
        if self._only is None:
            return None
        names = {iri(name).text for name in self._only if name != DEFAULT_GRAPH_IRI}
        default = {self._core.default_graph} if DEFAULT_GRAPH_IRI in self._only else set[int]()
        return default.union(map(self._ids.keep, sorted(names)))

    def _check_seen(self, name: str) -> None:
        check_seen(name, self._only, "write")

    def _check_ids(self, graphs: Iterable[int]) -> None:
        """Raise AccessError if some graphs may not be written. All changes of a request are checked here, whatever has
        named their graphs: a text, a variable, a document, a column."""
        if self._seen_ids is None:
            return
        unseen = set(graphs) - self._seen_ids - {NO_MATCH}  # a name that nobody knows: what names it was checked
        if self._core.default_graph in unseen:
            self._check_seen(DEFAULT_GRAPH_IRI)
        if unseen:
            texts = terms_of(self._core).texts(np.array(sorted(unseen), np.int64)[:1])
            self._check_seen(Term(texts[0]).name)

    def _insert(self, quads: Quads) -> None:
        self._stage(len(quads[0]))
        self._check_ids(np.unique(quads[0]).tolist())
        self._change.insert(quads)

    def _delete(self, quads: Quads) -> None:
        self._stage(len(quads[0]))
        self._check_ids(np.unique(quads[0]).tolist())
        self._change.delete(quads)

    def _empty(self, graphs: Iterable[int]) -> None:
        graphs = list(graphs)
        self._check_ids(graphs)
        if self._divided is None:
            stored = self._handle.read()
            self._stage(sum(map(stored.count_at_most, graphs)))
        self._change.clear(graphs)

    def _stage(self, count: int) -> None:
        """Hold the bytes of so many changed quads. Raises BudgetExceeded."""
        self._limits.keep(STAGED_BYTES * count)
        self.staged_bytes += STAGED_BYTES * count

    @property
    def change(self) -> GraphChange:
        """The changes of the operations so far, with all parts of the snapshot that they rest on."""
        if self._divided is not None:
            self._change.see(self._divided.snapshot_for(self._change))
        return self._change

    # --- what is there ------------------------------------------------------------------------------------------------

    def _view(self) -> _View:
        """Return the snapshot with what the operations before have changed."""
        come, gone = difference = self.change.difference()
        if self._divided is not None:
            return _View(None, self._divided.with_change(difference))
        with self._core.lock:
            is_changed = len(come) or gone is not None
            return _View(self._handle.read_with(difference) if is_changed else self._handle.read(), None)

    def _graph(self, name: Term | None) -> int:
        """Return the id of a graph that is read (None: the default graph)."""
        return self._core.default_graph if name is None else self._ids.known(name.text)

    def _is_there(self, view: _View, graph: int) -> bool:
        is_seen = self._seen_ids is None or graph in self._seen_ids
        return is_seen and (graph == self._core.default_graph or graph in self._created or graph in view.graphs)

    def _check_is_there(self, view: _View, name: Term | None, verb: str) -> None:
        if not self._is_there(view, self._graph(name)):
            raise UpdateError(f"cannot {verb} graph {name}: there is no such graph. With SILENT that is no error")

    # --- operations ---------------------------------------------------------------------------------------------------

    def _modify(self, operation: Modify, scope: str) -> None:
        core, where = self._core, rewrite(operation.where)
        view = self._view()
        terms = terms_of(core)
        terms.ids([iri(name).text for name in where.dataset.named_graphs])
        constants = ConstantIds(self._ids, core.reserved)
        clause = restricted(where.dataset, self._only)
        dataset = Dataset(clause, view.stored, {}, constants, operation.default_graph, view.divided)
        found = answer(where, dataset, terms, self._limits, PlanMemo(), scope)
        columns: dict[Variable, Int64Array] = dict(zip(map(Variable, where.variables), found.columns, strict=True))
        for name in {quad.graph for quad in (*operation.delete, *operation.insert) if isinstance(quad.graph, Variable)}:
            for text in terms.texts(np.setdiff1d(columns[name], [UNBOUND])):
                check_written(text[1:-1])
                self._check_seen(Term(text).name)
        solutions = Solutions(columns, found.length, terms)
        deletes = to_delete(operation.delete, solutions, self._ids, core.default_graph)
        inserts = to_insert(operation.insert, solutions, self._ids, core.default_graph, scope)
        self._delete(deletes)
        self._insert(inserts)

    def _apply(self, operation: TableChange, scope: str) -> None:
        default, hash_bits = self._core.default_graph, self._core.registry.hash_bits
        rows = sum(table.num_rows for table in (operation.deletes, operation.inserts) if table is not None)
        self._limits.hold(COPIED_BYTES * rows, "the table")
        if operation.deletes is not None:
            self._delete(deleted(operation.deletes, terms_of(self._core), default, scope, hash_bits))
        if operation.inserts is not None:
            self._insert(inserted(operation.inserts, self._ids, default, scope, hash_bits))

    def _clear(self, operation: Clear) -> None:
        target, view = operation.target, self._view()
        if isinstance(target, Term):
            if operation.is_drop:
                self._check_is_there(view, target, "DROP")
            wanted = {self._graph(target)}
        else:
            default = {self._core.default_graph}
            named = {*view.graphs, *self._created} - default
            wanted = {"DEFAULT": default, "NAMED": named, "ALL": named | default}[target]
            if self._seen_ids is not None and target != "DEFAULT":  # of the dataset that the request has
                wanted &= self._seen_ids
        self._empty(wanted.intersection(view.graphs))
        if operation.is_drop:
            self._created -= wanted

    def _create(self, name: Term) -> None:
        graph = self._ids.keep(name.text)
        if self._is_there(self._view(), graph):
            raise UpdateError(f"cannot CREATE graph {name}: it is there already. With SILENT that is no error")
        self._created.add(graph)

    def _transfer(self, operation: Transfer) -> None:
        if operation.source == operation.destination:
            return
        view = self._view()
        into, part = operation.destination, None
        if operation.source is not None:
            part = view_of(operation.source.name)
        if part is None:
            source = self._graph(operation.source)
            self._check_is_there(view, operation.source, operation.kind)
        else:
            source = self._graph(None if part.graph == DEFAULT_GRAPH_IRI else iri(part.graph))
            if not is_seen(part.graph, self._only):
                raise UpdateError(f"cannot {operation.kind} graph {operation.source}: there is no such graph")
        destination = self._core.default_graph if into is None else self._ids.keep(into.text)
        self._limits.hold(COPIED_BYTES * view.stored.count_at_most(source), operation.kind)
        quads = view.quads(source, destination, part)
        if operation.kind != "ADD":
            self._empty([destination])
        self._insert(quads)
        if operation.kind == "MOVE":
            self._empty([source])
            self._created.discard(source)

"""The leaves of a view: basic graph patterns, constants, and parts without a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import (
    DEFAULT,
    Bgp,
    DatasetClause,
    Filter,
    GraphNames,
    GraphRef,
    Node,
    PathPattern,
    PerGraph,
    Service,
    StreamWindow,
    TripleParts,
    TriplePattern,
)
from wukongs.csparql.scope import exists_patterns, possible_variables
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import parts_of
from wukongs.incremental.lifted import ARGUMENTS
from wukongs.incremental.lookups import Operator, Side, noted, stored_at
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.query.operators import operators as tables
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI
from wukongs.store.hidden_graphs import view_of


@dataclass(slots=True)
class DeltaJoin:
    """A basic graph pattern, each pattern in one stored graph, with filters. Keeps nothing."""

    node: Node
    evaluation: Evaluation
    _plans: list[tuple[TriplePattern, Term, Node, PlanMemo]] = field(default_factory=list)
    _clause: DatasetClause = field(default_factory=DatasetClause)
    _before: dict[StreamWindow, Term] = field(default_factory=dict)
    _changed: dict[StreamWindow, Term] = field(default_factory=dict)
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    kind = "delta join"
    keeps = False
    kept_bytes = 0

    @staticmethod
    def of(node: Node, evaluation: Evaluation) -> DeltaJoin | None:
        """Return the operator of patterns with the filters right above them; None if it is another part, or a pattern
        is matched in several graphs."""
        inner = node
        while isinstance(inner, Filter):
            if exists_patterns(inner.condition):
                return None
            inner = inner.pattern
        if not isinstance(inner, Bgp) or not inner.patterns:
            return None
        graphs = [_graph_of(pattern.graph, evaluation.clause) for pattern in inner.patterns]
        if None in graphs:
            return None
        return DeltaJoin(node, evaluation)._laid_out(inner, [graph for graph in graphs if graph is not None])

    def _laid_out(self, bgp: Bgp, graphs: Sequence[Term]) -> DeltaJoin:
        """Write down, for each pattern, the part with this one over what has changed, those before it over the graph
        after the change, those behind it over the graph before."""
        names = {graph: at for at, graph in enumerate(dict.fromkeys(graphs))}
        self._before = {_window(f"before {at}"): graph for graph, at in names.items()}
        self._changed = {_window(f"changed {at}"): graph for graph, at in names.items()}
        self._clause = DatasetClause(
            named_graphs=tuple(graph.name for graph in names), windows=(*self._before, *self._changed)
        )
        for number, graph in enumerate(graphs):
            patterns = [
                replace(
                    pattern,
                    graph=own if at < number else iri(f"{'changed' if at == number else 'before'} {names[own]}"),
                )
                for at, (pattern, own) in enumerate(zip(bgp.patterns, graphs, strict=True))
            ]
            changed = _with_patterns(self.node, Bgp(tuple(patterns)))
            self._plans.append((bgp.patterns[number], graph, changed, PlanMemo()))
        return self

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.evaluation.run(self.node, stored))

    @noted
    def change(self, change: Change) -> ZSet:
        resolve, found = self.evaluation.resolve, ZSet.empty()
        graph_ids = {window: resolve(graph) for window, graph in (*self._before.items(), *self._changed.items())}
        for sign, changed in ((1, change.inserted), (-1, change.deleted)):
            if not len(changed):
                continue
            windows = dict.fromkeys(self._before, change.before) | dict.fromkeys(self._changed, changed)
            for pattern, graph, part, memo in self._plans:
                predicate = resolve(pattern.predicate) if isinstance(pattern.predicate, Term) else None
                if not any(batch.has_row(predicate, resolve(graph)) for batch in changed.batches):
                    continue
                rows = self.evaluation.run_among(part, self._clause, change.after, windows, graph_ids, memo)
                found = found.plus(ZSet.of(rows, sign))
        return found.project(sorted(found.variables, key=str)).consolidated()


def _window(name: str) -> StreamWindow:
    return StreamWindow(name, 1, 1, True, own_name=name)  # no IRI has a space


def _with_patterns(node: Node, bgp: Bgp) -> Node:
    return replace(node, pattern=_with_patterns(node.pattern, bgp)) if isinstance(node, Filter) else bgp


def _graph_of(graph: GraphRef, clause: DatasetClause) -> Term | None:
    """Return the one stored graph in which a pattern is matched; None if there are others, or it is a view of one."""
    found: Term | None = None
    if graph == ARGUMENTS:
        return ARGUMENTS
    if graph == DEFAULT:
        if clause.is_empty:
            found = iri(DEFAULT_GRAPH_IRI)
        elif len(clause.default_graphs) == 1:
            found = iri(clause.default_graphs[0])
    elif isinstance(graph, Term) and (clause.is_empty or graph.name in clause.named_graphs):
        found = graph
    return None if found is None or view_of(found.name) is not None else found


@dataclass(slots=True)
class Constant:
    """VALUES, or the one empty solution: it never changes."""

    node: Node
    evaluation: Evaluation
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    kind = "constant"
    keeps = False
    kept_bytes = 0

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.evaluation.run(self.node, stored))

    @noted
    def change(self, change: Change) -> ZSet:
        return ZSet.empty(names_of(self.node))

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        return rows.joined(self.begin(stored_at(change, side)))

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        return self.begin(stored_at(change, side)).compatible_with(keys)


@dataclass(slots=True)
class Refresh:
    """A part without a rule: evaluated anew when a triple that it may read was inserted or deleted, and compared.

    original: the part that it evaluates: for each argument, if it has children.
    children: nothing, or the arguments.
    before, after: the content at both ends of the change that was taken last."""

    node: Node
    evaluation: Evaluation
    reads: Callable[[Change], bool]
    original: Node
    children: tuple[Operator, ...] = ()
    before: ZSet = field(default_factory=ZSet.empty)
    after: ZSet = field(default_factory=ZSet.empty)
    touched: int = field(default=0, init=False)
    kind = "refresh"
    keeps = True

    @property
    def kept_bytes(self) -> int:
        return self.after.size_bytes

    @staticmethod
    def of(node: Node, evaluation: Evaluation) -> Refresh:
        lifted = evaluation.lifted
        original = None if lifted is None else lifted.original(node)
        if lifted is None or original is None:
            return Refresh(node, evaluation, reads_of(node, evaluation), node)
        arguments = DeltaJoin.of(lifted.arguments, evaluation)
        assert arguments is not None, lifted.arguments
        return Refresh(node, evaluation, reads_of(original, evaluation), original, (arguments,))

    def begin(self, stored: BatchSet) -> ZSet:
        self.before = self.after = self._evaluated(stored)
        return self.after

    def _evaluated(self, stored: BatchSet, given: BindingTable | None = None) -> ZSet:
        """Return the content. given: of these arguments; None: of all that are bound."""
        if self.children and given is None:
            given = self.children[0].begin(stored).table
        if given is None:
            rows = self.evaluation.run(self.node, stored)
        else:
            rows = self.evaluation.run_given(self.original, stored, given, NUMBER)
        return ZSet.of(tables.project(rows, names_of(self.node))).consolidated()

    @noted
    def change(self, change: Change) -> ZSet:
        self.before = self.after
        bound = [child.change(change) for child in self.children]
        if self.reads(change):
            self.after = self._evaluated(change.after)
            return self.after.plus(self.before.negated()).consolidated()
        found = ZSet.empty(names_of(self.node))
        for arguments in bound:
            if len(arguments):
                found = self._of_bound(arguments, change)
                self.after = self.before.plus(found).project(names_of(self.node)).consolidated()
        return found

    def _of_bound(self, arguments: ZSet, change: Change) -> ZSet:
        """Return the change that follows from arguments that were bound (+1) and unbound (-1)."""
        is_new = arguments.weights > 0
        new, gone = (arguments.table.take(np.flatnonzero(chosen)) for chosen in (is_new, ~is_new))
        return self._evaluated(change.after, new).plus(self.before.with_keys(gone, (NUMBER,)).negated()).consolidated()

    def at(self, side: Side) -> ZSet:
        return self.before if side is Side.BEFORE else self.after

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        return rows.joined(self.at(side))

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        return self.at(side).compatible_with(keys)


def names_of(node: Node) -> tuple[Variable, ...]:
    """Return the variables of a part's solutions, in a fixed order."""
    return tuple(sorted(possible_variables(node), key=str))


def reads_of(part: object, evaluation: Evaluation) -> Callable[[Change], bool]:
    """Return what tells whether a change may concern a part of a query."""
    wanted = list[tuple[Term | None, Term | None]]()
    is_any = False
    for one in parts_of(part):
        if isinstance(one, TriplePattern):
            predicate = one.predicate if isinstance(one.predicate, Term) else None
            wanted.append((predicate, _graph_of(one.graph, evaluation.clause)))
        elif isinstance(one, PathPattern | GraphNames | PerGraph | Service | TripleParts):
            is_any = True

    def reads(change: Change) -> bool:
        if is_any and change.touches(None, None):
            return True
        resolve = evaluation.resolve
        return any(
            change.touches(None if predicate is None else resolve(predicate), None if graph is None else resolve(graph))
            for predicate, graph in wanted
        )

    return reads

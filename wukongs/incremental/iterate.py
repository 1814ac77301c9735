"""Paths of any length by rule: their pairs follow the edges that a change inserts and deletes (reach.py).

Walks are kept from the origins that matter: a constant end; the nodes that the part which a path is joined to binds;
else all nodes at which a walk may begin. Rows are looked up by searching the stored graph from the ends that are
given, at either end of a change, so that nothing else is kept. A path of no length leads from each node of the graph to
itself: the nodes of the changed triples are looked up in the graph, before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.algebra import GraphVersion, Join, Node, PathPattern, TripleParts
from wukongs.csparql.automaton import Link, written_out
from wukongs.csparql.paths import Inverse, is_nullable
from wukongs.csparql.scope import certain_variables
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import join_all
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import LookUp, Operator, Side, noted
from wukongs.incremental.sources import StoredGraphs
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.walkable import is_walkable, walked
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators as tables
from wukongs.query.paths.forest import Triples
from wukongs.query.paths.path_machine import ANY_LINKS, PathPlan, source_of
from wukongs.query.paths.path_search import Search, keys_of
from wukongs.query.paths.reach import At, PathIndex, PathUser
from wukongs.query.plans.dataset import Source
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import NO_MATCH, BoolArray, Int64Array
from wukongs.store.tombstone_kernels import visible_pairs

_NO_NODES = np.empty(0, np.int64)


@dataclass(slots=True)
class Reached:
    """The solutions of a path pattern.

    graphs: in which it is matched.
    way: 0: walks are kept from its subject on; 1: from its object.
    index: of the walks.
    user: the origins of this pattern."""

    node: PathPattern
    evaluation: Evaluation
    graphs: StoredGraphs
    way: int
    index: PathIndex
    user: PathUser
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    keeps = True
    _links: tuple[Link, ...] = field(init=False)
    _is_nullable: bool = field(init=False)
    _reaches_outside: bool = field(init=False)
    _given: ZSet | None = field(default=None, init=False)
    """How often each origin is asked for more, or less, than before the change under way."""
    _content: ZSet | None = field(default=None, init=False)
    """The content, if it was evaluated anew."""

    def __post_init__(self) -> None:
        self._is_nullable = is_nullable(self.node.path)
        self._links = written_out(walked(self.node.path) or self.node.path).links()
        self._reaches_outside = PathPlan(self.node).reaches_outside(())

    @staticmethod
    def of(node: Node, evaluation: Evaluation, bound: frozenset[Variable] = frozenset()) -> Reached | None:
        """Return the operator of a path; None if it has no rule. bound: variables that the part which it is joined to
        binds in each row: that has to be Asking."""
        if not has_rule(node, evaluation):
            return None
        assert isinstance(node, PathPattern), node
        assert not isinstance(node.graph, GraphVersion), node
        graphs, path = StoredGraphs.of(node.graph, evaluation.clause), walked(node.path)
        assert path is not None, node
        assert graphs.names is not None, node
        way = _way(node, bound)
        found = written_out(Inverse(path) if way else path)
        index = evaluation.paths.of(found, graphs.names, node.graph)
        origin = (node.subject, node.object)[way]
        return Reached(
            node, evaluation, graphs, way, index, PathUser(isinstance(origin, Variable) and origin not in bound)
        )

    @property
    def kind(self) -> str:
        return "iterate" if self.user.sn is not None or not self.user.reason else "iterate (anew)"

    @property
    def kept_bytes(self) -> int:
        content = 0 if self._content is None else self._content.size_bytes
        return self.index.share_bytes() + 100 * len(self.user.origins) + content

    @property
    def origin(self) -> Term | Variable:
        """The end from which walks are kept."""
        return self.node.object if self.way else self.node.subject

    # --- contents -----------------------------------------------------------------------------------------------------

    def begin(self, stored: BatchSet) -> ZSet:
        self._content = self._given = None
        self._find_constant()
        if not self.user.is_refused():
            self.index.join(self.user, self._at(self.evaluation.span[1], stored))
        ends = None if isinstance(self.origin, Term) else self.index.ends(self.user, self.evaluation.limits)
        if ends is None:
            return self._evaluated(stored)
        found = self._rows(*ends, np.ones(len(ends[0]), np.int64))
        if not self._is_nullable:
            return found
        if self.user.is_everywhere:
            nodes = self._all_nodes(stored)
        else:
            nodes = np.array([*self.user.origins], np.int64)
            nodes = nodes[self._is_node(nodes, stored)]
        return found.plus(self._to_themselves(nodes, np.ones(len(nodes), np.int64)))

    def _evaluated(self, stored: BatchSet) -> ZSet:
        """Return the content, evaluated anew."""
        evaluation, names = self.evaluation, names_of(self.node)
        if isinstance(self.origin, Term) or self.user.is_everywhere:
            return ZSet.of(tables.project(evaluation.run(self.node, stored), names))
        if not self.user.origins:
            return ZSet.empty(names)
        nodes = np.array([*self.user.origins], np.int64)
        asked = BindingTable((self.origin,), (nodes,), len(nodes))
        return ZSet.of(tables.project(evaluation.explored(self.node, asked, stored), names))

    # --- changes ------------------------------------------------------------------------------------------------------

    @noted
    def change(self, change: Change) -> ZSet:
        found = self._followed(change)
        if found is None:
            before = self._evaluated(change.before) if self._content is None else self._content
            after = self._evaluated(change.after)
            is_asked = isinstance(self.origin, Variable) and not self.user.is_everywhere
            self._content = None if is_asked else after
            found = after.plus(before.negated())
        else:
            self._content = None
        if self._given is not None:
            self._ask(self._given, change.after)
            self._given = None
        to = self.evaluation.span[1]
        if self.user.may_join and self.index.is_at(to):
            self.index.join(self.user, self._at(to, change.after))
        return found.consolidated()

    def skip(self, to: int) -> None:
        """Note that nothing that it reads has changed up to an SN."""
        self.index.skip(self.user, to)

    def _followed(self, change: Change) -> ZSet | None:
        """Return the change by rule; None if that cannot be had."""
        user, evaluation = self.user, self.evaluation
        after, to = evaluation.span
        self._find_constant()
        if user.sn is None and not user.is_refused():
            self.index.join(user, self._at(after, change.before))
        if user.sn is None:
            return None
        inserted, deleted = self.graphs.changed(change, evaluation)
        wanted = self._wanted()
        come, gone = _triples(inserted, wanted), _triples(deleted, wanted)
        pairs = self.index.change(user, after, self._at(to, change.after), gone, come)
        if pairs is None:
            return None
        found = self._rows(*pairs)
        if self._is_nullable and not self._reaches_outside:
            found = found.plus(self._nodes_changed(inserted, deleted, change))
        return found

    def _nodes_changed(self, inserted: Source, deleted: Source, change: Change) -> ZSet:
        """Return the change of the paths of no length."""
        ends = [one[at] for one in (_triples(inserted, None), _triples(deleted, None)) for at in (0, 2)]
        nodes = np.unique(np.concatenate(ends))
        nodes = nodes[self.user.asks_from(nodes)]
        was, now = (self._is_node(nodes, stored).astype(np.int64) for stored in (change.before, change.after))
        rows = np.flatnonzero(now != was)
        return self._to_themselves(nodes[rows], (now - was)[rows])

    def _find_constant(self) -> None:
        """Find the node of a constant origin, which the graph may not have known before."""
        if isinstance(self.origin, Term):
            node = self.evaluation.resolve(self.origin)
            origins = {} if node == NO_MATCH else {node: 1}
            if origins != self.user.origins:
                self.user.origins, self.user.sn, self._content = origins, None, None

    def begin_asking(self, nodes: Int64Array, weights: Int64Array) -> None:
        """Note how often each origin is asked for, before `begin`."""
        self.user.origins, self.user.sn = {}, None
        self._count(nodes, weights)

    def ask(self, nodes: Int64Array, weights: Int64Array) -> None:
        """Note how often each origin is asked for more, or less, before `change`."""
        self._given = ZSet(BindingTable((), (nodes,), len(nodes)), weights)

    def _ask(self, given: ZSet, stored: BatchSet) -> None:
        new = self._count(given.table.columns[0], given.weights)
        self.index.ask(self.user, new, self._at(self.evaluation.span[1], stored))

    def _count(self, nodes: Int64Array, weights: Int64Array) -> Int64Array:
        """Count the rows that ask from some nodes; return the nodes that were no origins."""
        origins, new = self.user.origins, list[int]()
        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            count = origins.get(node, 0)
            origins[node] = count + weight
            if not count:
                new.append(node)
            if not count + weight:
                del origins[node]
        return np.array([node for node in dict.fromkeys(new) if node in origins], np.int64)

    # --- rows and nodes -----------------------------------------------------------------------------------------------

    def _at(self, sn: int, stored: BatchSet) -> At:
        return At(sn, self.evaluation.dataset(stored), self.evaluation.limits)

    def _rows(self, origins: Int64Array, nodes: Int64Array, weights: Int64Array) -> ZSet:
        """Return the solutions of pairs. A path that may have no length has those of a node and itself by that."""
        kept = origins != nodes if self._is_nullable else np.ones(len(origins), np.bool_)
        ends = ((self.node.subject, self.node.object), (origins, nodes) if self.way == 0 else (nodes, origins))
        for end, column in zip(*ends, strict=True):
            if isinstance(end, Term):
                kept &= column == self.evaluation.resolve(end)
        rows = np.flatnonzero(kept)
        bound = {end: column[rows] for end, column in zip(*ends, strict=True) if isinstance(end, Variable)}
        names = names_of(self.node)
        return ZSet(BindingTable(names, tuple(bound[name] for name in names), len(rows)), weights[rows])

    def _to_themselves(self, nodes: Int64Array, weights: Int64Array) -> ZSet:
        """Return the solutions of paths of no length."""
        for end in (self.node.subject, self.node.object):
            if isinstance(end, Term):
                rows = np.flatnonzero(nodes == self.evaluation.resolve(end))
                nodes, weights = nodes[rows], weights[rows]
        names = names_of(self.node)
        return ZSet(BindingTable(names, tuple(nodes for _ in names), len(nodes)), weights)

    def _wanted(self) -> list[int] | None:
        """Return the predicates of the path's links, None: any."""
        if any(link.predicate is None for link in self._links):
            return None
        return [self.evaluation.resolve(link.predicate) for link in self._links if link.predicate is not None]

    def _is_node(self, nodes: Int64Array, stored: BatchSet) -> BoolArray:
        """Return which nodes the graph has a triple of. bool[n]"""
        found = np.zeros(len(nodes), np.bool_)
        if len(nodes):
            source = source_of(ANY_LINKS, self.node.graph, self.evaluation.dataset(stored))
            graphs = np.full(len(nodes), -1, np.int64)
            found[Search(source, self.evaluation.limits).graphs(nodes, graphs, True)[:, 0]] = True
        return found

    def _all_nodes(self, stored: BatchSet) -> Int64Array:
        source, limits = source_of(ANY_LINKS, self.node.graph, self.evaluation.dataset(stored)), self.evaluation.limits
        return np.unique(np.concatenate([keys_of(source, step, _NO_NODES, -1, limits)[:, 1] for step in (0, 1)]))


@dataclass(slots=True)
class Asking:
    """A part that a path is joined to: it binds an end of the path, which is followed from the nodes bound there."""

    below: LookUp
    reached: Reached
    touched: int = field(default=0, init=False)
    kind = "origins"
    keeps = True
    kept_bytes = 0

    @property
    def children(self) -> tuple[Operator, ...]:
        return (self.below,)

    def begin(self, stored: BatchSet) -> ZSet:
        found = self.below.begin(stored)
        self.reached.begin_asking(self._origins(found), found.weights)
        return found

    @noted
    def change(self, change: Change) -> ZSet:
        found = self.below.change(change)
        self.reached.ask(self._origins(found), found.weights)
        return found

    def _origins(self, rows: ZSet) -> Int64Array:
        end = self.reached.origin
        assert isinstance(end, Variable), end
        return rows.table.column(end)

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        return self.below.matching(rows, change, side)

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        return self.below.compatible_with(keys, change, side)


def asked_by(below: LookUp, path: Operator) -> LookUp:
    """Return the operators of a part that rows of a path are joined to: the path's origins are bound there, if it has
    other origins than a constant or all nodes. path: the operators of the other side."""
    if isinstance(path, Reached) and isinstance(path.origin, Variable) and not path.user.is_everywhere:
        return Asking(below, path)
    return below


def has_rule(node: Node, evaluation: Evaluation) -> bool:
    """Return whether a part is a path whose change is found by rule. The indexes of paths are of whole graphs."""
    if evaluation.graph_of is not None or not isinstance(node, PathPattern):
        return False
    if isinstance(node.graph, GraphVersion) or not is_walkable(node):
        return False
    return bool(StoredGraphs.of(node.graph, evaluation.clause).names)


def paths_last(node: Join, evaluation: Evaluation, is_whole: Callable[[Node], bool]) -> Join:
    """Return a join whose right side is a path with a rule, if some operand is one: those whose ends others bind come
    after these. is_whole: tells that a join is no chain of operands."""
    parts = _operands(node, is_whole)
    paths = [part for part in parts if has_rule(part, evaluation)]
    ordered = [part for part in parts if not any(part is path for path in paths)]
    if not paths or len(parts) < 2:
        return node
    bound = frozenset[Variable]().union(*map(certain_variables, ordered))
    while paths:
        at = min(range(len(paths)), key=lambda place: _rank(paths[place], bound))
        bound |= certain_variables(paths[at])
        ordered.append(paths.pop(at))
    return _joined(ordered)


def with_ties(node: Join, is_whole: Callable[[Node], bool]) -> Join:
    """Return a join in which the parts of a triple term are tied to an operand that binds the term, or all of its
    parts; where no single one does, to all of them. is_whole: as paths_last has it."""
    parts = _operands(node, is_whole)
    ties = [part for part in parts if isinstance(part, TripleParts)]
    if not ties:
        return node
    ordered: list[Node] = [part for part in parts if not isinstance(part, TripleParts)]
    while ties:
        ready = (
            (tie, place)
            for tie in ties
            for place, bound in enumerate(map(certain_variables, ordered))
            if tie.variable in bound or bound.issuperset(tie.variables()[1:])
        )
        found = next(ready, None)
        if found is None:
            assert len(ordered) > 1, node
            ordered = [join_all(ordered)]
        else:
            tie, place = found
            ordered[place] = Join(ordered[place], tie)
            ties.remove(tie)
    return _joined(ordered)


def _operands(node: Node, is_whole: Callable[[Node], bool]) -> list[Node]:
    if isinstance(node, Join) and not is_whole(node):
        return [*_operands(node.left, is_whole), *_operands(node.right, is_whole)]
    return [node]


def _joined(ordered: list[Node]) -> Join:
    found = join_all(ordered)
    assert isinstance(found, Join), ordered
    return found


def _rank(node: Node, bound: frozenset[Variable]) -> int:
    assert isinstance(node, PathPattern), node
    ends = (node.subject, node.object)
    if any(isinstance(end, Term) for end in ends):
        return 0
    return 1 if any(end in bound for end in ends) else 2


def _way(node: PathPattern, bound: frozenset[Variable]) -> int:
    """Return from which end its walks are kept: a constant, else one that is bound, else its subject."""
    ends = (node.subject, node.object)
    given = [way for way, end in enumerate(ends) if isinstance(end, Term)]
    given += [way for way, end in enumerate(ends) if end in bound]
    return given[0] if given else 0


def _triples(source: Source, wanted: list[int] | None) -> Triples:
    """Return the triples of a source whose predicate is wanted, None: all."""
    found: list[Triples] = [(_NO_NODES, _NO_NODES, _NO_NODES)]
    for part in source.parts:
        for batch in part.batches.batches:
            rows = batch.graphs == part.graph
            if wanted is not None:
                rows &= np.isin(batch.predicates, wanted)
            for row in np.flatnonzero(rows).tolist():
                subjects, objects = visible_pairs(batch.descriptor, row)
                found.append((subjects, np.full(len(subjects), batch.predicates[row], np.int64), objects))
    subjects, predicates, objects = (np.concatenate(column) for column in zip(*found, strict=True))
    return subjects, predicates, objects

"""The parser of SPARQL 1.1 Update: a request is operations with ';' between them, each with a prologue of its own.

The rules that the grammar alone does not say (grammar notes 7 to 10): DATA has no variables; what is deleted has no
blank nodes; a blank node label stands in one INSERT DATA, and in one WHERE clause, of a request only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Literal as Choice

from wukongs.csparql.algebra import DEFAULT, Bgp, DatasetClause, GraphRef, Node, Project, Query, TriplePattern
from wukongs.csparql.joining import UNIT
from wukongs.csparql.parser_data import DataParser
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.timestamps import resolve_timestamps
from wukongs.csparql.tokens import Token
from wukongs.csparql.updates import (
    Clear,
    Create,
    DeleteData,
    GraphTarget,
    InsertData,
    Load,
    Modify,
    Operation,
    Transfer,
    Update,
)

QUERY_FORMS = frozenset(("SELECT", "ASK", "CONSTRUCT", "DESCRIBE", "REGISTER"))
_AN_OPERATION = "INSERT, DELETE, WITH, LOAD, CLEAR, DROP, CREATE, COPY, MOVE or ADD"


def parse_update(text: str, base: str | None = None, source: str = "update", runs: bool | None = None) -> Update:
    """Parse an update request. base, source: as in parse_query. runs: whether plain quads of DATA are read as columns
    (None: if the text is long).

    Raises QuerySyntaxError (place, expected, found), also for a query; UnsupportedFeatureError (place, feature);
    DataError (base).
    """
    parser = _UpdateParser(text, base, source, runs)
    try:
        update = parser.update()
    except RecursionError:
        raise parser.error("an update that is nested less deeply") from None
    parser.check_depth(update)
    return update


class _UpdateParser(DataParser):
    def __init__(self, text: str, base: str | None, source: str, runs: bool | None) -> None:
        super().__init__(text, base, source, runs)
        self._readers: dict[str, Callable[[], Operation]] = {
            "INSERT": self._insert,
            "DELETE": self._delete,
            "WITH": self._with,
            "LOAD": self._load,
            "CLEAR": self._clear,
            "DROP": self._clear,
            "CREATE": self._create,
            "COPY": partial(self._transfer, "COPY"),
            "MOVE": partial(self._transfer, "MOVE"),
            "ADD": partial(self._transfer, "ADD"),
        }

    def update(self) -> Update:
        operations = []
        self.prologue()
        while self.token.kind != "end":
            operations.append(self._operation())
            if self.token.kind == "end":
                break
            self.expect(";", "';' before the next operation, or the end of the update")
            self.prologue()
        return Update(tuple(operations))

    def _operation(self) -> Operation:
        kind = self.token.kind
        if kind in QUERY_FORMS:
            raise self.error(f"an update ({_AN_OPERATION}); {_who_takes(kind)}")
        reader = self._readers.get(kind)
        if reader is None:
            raise self.error(f"{_AN_OPERATION} (or PREFIX or BASE before it)")
        self.in_scope.clear()
        self.triple_terms = []
        return reader()

    # --- DATA, templates and WHERE ------------------------------------------------------------------------------------

    def _insert(self) -> Operation:
        self.advance()
        if not self.accept("DATA"):
            return self._modify("INSERT", None)
        self.begin_data(may_have_blanks=True)
        quads, tokens, labels = self._quads("the quads { ... } after INSERT DATA", variables=False)
        for token in tokens:
            if token.kind == "blank" and token.text in self.old_labels:
                expected = "a blank node label that no INSERT DATA before has"
                raise self.error(expected, token, f"'{token.text}', which would not be the same node")
        self.old_labels.update(labels)
        if self.triple_terms:  # with blank nodes inside, which have to be made
            quads = (*quads, *(quad for columns in self.columns for quad in columns.quads()))
            pattern, quads = self.put_together(UNIT, quads, self.triple_terms)
            return Modify((), quads, self._where_of(pattern, quads, DatasetClause()))
        return InsertData(quads, tuple(self.columns))

    def _delete(self) -> Operation:
        self.advance()
        if self.accept("DATA"):
            self.begin_data(may_have_blanks=False)
            quads, *_ = self._quads("the quads { ... } after DELETE DATA", variables=False, blanks=False)
            return DeleteData(quads, tuple(self.columns))
        if not self.accept("WHERE"):
            return self._modify("DELETE", None)
        quads, *_ = self._quads("the quads { ... } after DELETE WHERE", blanks=False)
        pattern = self.with_triple_terms(quads, []) if self.triple_terms else Bgp(quads)
        return Modify(quads, (), self._where_of(pattern, quads, DatasetClause()))

    def _with(self) -> Operation:
        self.advance()
        graph = self.iri("the IRI of a graph after WITH")
        kind = self.token.kind
        if kind not in ("DELETE", "INSERT"):
            raise self.error("DELETE or INSERT after WITH and its graph")
        self.advance()
        return self._modify(kind, graph)

    def _modify(self, kind: str, graph: Term | None) -> Modify:
        """Read from the first template to the end of WHERE. graph: that of WITH."""
        delete: tuple[TriplePattern, ...] = ()
        insert: tuple[TriplePattern, ...] = ()
        if kind == "DELETE":
            delete, *_ = self._quads("the template { ... }, DATA or WHERE after DELETE", blanks=False)
            if self.accept("INSERT"):
                kind = "INSERT"
                insert, *_ = self._quads("the template { ... } after INSERT")
        else:
            insert, *_ = self._quads("the template { ... } or DATA after INSERT")
        dataset = self._using()
        after = "USING or WHERE" if dataset.is_empty else "USING or WHERE after USING"
        self.expect("WHERE", f"INSERT, {after}" if kind == "DELETE" else after)
        self.in_scope.clear()
        self.new_scope()
        triple_terms, self.triple_terms = self.triple_terms, []
        pattern, insert = self.put_together(self.group(), insert, triple_terms)
        if graph is not None:
            delete, insert = (
                tuple(replace(quad, graph=graph) if quad.graph == DEFAULT else quad for quad in template)
                for template in (delete, insert)
            )
        where = self._where_of(pattern, (*delete, *insert), dataset)
        return Modify(delete, insert, where, graph if dataset.is_empty else None)

    def _using(self) -> DatasetClause:
        default_graphs: dict[str, None] = {}
        named_graphs: dict[str, None] = {}
        while self.accept("USING"):
            graphs = named_graphs if self.accept("NAMED") else default_graphs
            graphs[self.iri_value("the IRI of a graph after USING")] = None
        return DatasetClause(tuple(default_graphs), tuple(named_graphs))

    def _where_of(self, pattern: Node, quads: tuple[TriplePattern, ...], dataset: DatasetClause) -> Query:
        needed = [variable for quad in quads for variable in quad.variables() if not variable.is_blank]
        variables = tuple(dict.fromkeys(needed))
        names = tuple(variable.name for variable in variables)
        where = Query("select", Project(pattern, variables), names, (), dataset, refused=self.refused)
        return resolve_timestamps(where, self.refuse_timestamp)

    def _quads(
        self, expected: str, *, variables: bool = True, blanks: bool = True
    ) -> tuple[tuple[TriplePattern, ...], Sequence[Token], Iterable[str]]:
        """Read `{ triples GRAPH g { triples } ... }`; return the quads, all tokens, and the blank node labels.
        variables, blanks: whether these may stand there."""
        outer, self.patterns = self.patterns, []
        outer_labels, self.labels = self.labels, {}
        self.in_data = not variables
        start = self.index
        self.expect("{", expected)
        self._triples_template()
        while self.accept("GRAPH"):
            self.graph = self._graph_name()
            self.expect("{", "'{' after the graph")
            self._triples_template()
            if self.token.kind != "}":
                raise self.error("triples only, then '}': a GRAPH block cannot stand in another one")
            self.advance()
            self.graph = DEFAULT
            self.accept(".")
            self._triples_template()
        if self.token.kind != "}":
            raise self.error("triples, GRAPH or '}'")
        self.advance()
        self.in_data = False
        quads, self.patterns = tuple(self.patterns), outer
        labels, self.labels = self.labels, outer_labels
        tokens = self.tokens[start : self.index]
        if not variables:
            self._refuse(tokens, ("var",), "terms only in DATA (DELETE or INSERT ... WHERE takes variables)")
        inner = (part for found in self.triple_terms for part in found.parts if isinstance(part, Variable))
        if not blanks and any(part.is_blank for part in chain(inner, *(quad.variables() for quad in quads))):
            expected = "no blank node in what is deleted, as it would be a new one (in WHERE, a variable finds them)"
            self._refuse(tokens, ("blank", "[", "("), expected, self.unnamed_reifiers)
        return quads, tokens, labels

    def _refuse(
        self, tokens: Sequence[Token], kinds: tuple[str, ...], expected: str, unnamed: AbstractSet[Token] = frozenset()
    ) -> None:
        for token in tokens:
            if token.kind in kinds or token in unnamed:
                raise self.error(expected, token)

    def _triples_template(self) -> None:
        while True:
            if self.token.kind == "data":
                self.data_run()
            elif self.at_triples():
                self.triples_block()
            else:
                return

    def _graph_name(self) -> GraphRef:
        if self.token.kind == "var":
            return Variable(self.advance().text[1:])
        return self.iri("an IRI or a variable after GRAPH")

    # --- whole graphs -------------------------------------------------------------------------------------------------

    def _load(self) -> Operation:
        self.advance()
        silent = self.accept("SILENT")
        document = self.iri_value("the IRI of a document after LOAD")
        into = None
        if self.accept("INTO"):
            self.expect("GRAPH", "GRAPH and an IRI after INTO")
            into = self.iri("the IRI of a graph after INTO GRAPH")
        return Load(document, into, silent)

    def _clear(self) -> Operation:
        kind = self.advance().kind
        silent = self.accept("SILENT")
        target: GraphTarget
        match self.token.kind:
            case "DEFAULT" | "NAMED" | "ALL" as whole:
                self.advance()
                target = whole
            case "GRAPH":
                self.advance()
                target = self.iri("the IRI of a graph after GRAPH")
            case _:
                raise self.error(f"GRAPH and an IRI, DEFAULT, NAMED or ALL after {kind}")
        return Clear(target, silent, is_drop=kind == "DROP")

    def _create(self) -> Operation:
        self.advance()
        silent = self.accept("SILENT")
        self.expect("GRAPH", "GRAPH and an IRI after CREATE")
        return Create(self.iri("the IRI of a graph after CREATE GRAPH"), silent)

    def _transfer(self, kind: Choice["COPY", "MOVE", "ADD"]) -> Operation:
        self.advance()
        silent = self.accept("SILENT")
        source = self._graph_or_default(kind)
        self.expect("TO", "TO and a graph")
        destination = self._graph_or_default("TO")
        return Transfer(kind, source, destination, silent)

    def _graph_or_default(self, after: str) -> Term | None:
        if self.accept("DEFAULT"):
            return None
        self.accept("GRAPH")
        return self.iri(f"the IRI of a graph, or DEFAULT, after {after}")


def _who_takes(kind: str) -> str:
    """Say what takes a query that was given as an update."""
    method = "register" if kind == "REGISTER" else "query"
    return f"a query is given to Engine.{method} or parse_query"

"""The parser: C-SPARQL and SPARQL text to the algebra, by recursive descent, in one pass.

The parts stand on each other: tokens and terms (parser_base), expressions, triples, groups, streams, select; the query
forms are here. What the language knows and we do not support is refused by name and place.
"""

from __future__ import annotations

from csparql.algebra import DEFAULT, Bgp, Distinct, Node, Project, Query, Registration, TriplePattern
from csparql.parser_select import Modifiers, SelectClause, SelectParser
from csparql.terms import Variable

_FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_UPDATES = frozenset(("INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH"))


def parse_query(text: str, base: str | None = None, source: str = "query") -> Query:
    """Parse a query and translate it into the algebra.

    base : what relative IRIs are resolved against, unless the query has BASE; without either they stay relative.
    source : what error messages call the text, such as its file.

    Raises QuerySyntaxError (place, expected, found); UnsupportedFeatureError (place, feature).
    """
    parser = _QueryParser(text, base, source)
    try:
        query = parser.query()
    except RecursionError:
        raise parser.error("a query that is nested less deeply") from None
    parser.check_depth(query.pattern)
    return query


class _QueryParser(SelectParser):
    def query(self) -> Query:
        self.prologue()
        registration = self.registration()
        if registration is not None:
            self.prologue()
        kind = self.token.kind
        if kind in _FORMS:
            self.check_stream(registration, kind.lower())
        if kind == "SELECT":
            query = self._select(registration)
        elif kind == "ASK":
            query = self._ask(registration)
        elif kind == "CONSTRUCT":
            query = self._construct(registration)
        elif kind == "DESCRIBE":
            raise self.unsupported("DESCRIBE")
        elif kind in _UPDATES:
            raise self.error("a query (SELECT, ASK ...); an update is given to Engine.update or parse_update")
        else:
            either = "SELECT, ASK or CONSTRUCT"
            raise self.error(either if registration else f"{either} (or PREFIX, BASE or REGISTER QUERY before it)")
        if self.token.kind == "AGGREGATE":
            raise self.unsupported(
                "the AGGREGATE clause of C-SPARQL",
                advice="write it in SPARQL 1.1: SELECT ?key (COUNT(?x) AS ?count) ... GROUP BY ?key",
            )
        if self.token.kind in ("VALUES", "BINDINGS"):
            raise self.unsupported(self.token.kind)
        self.expect("end", "the end of the query")
        return query

    def _select(self, registration: Registration | None) -> Query:
        self.advance()
        registration = self.output_operator(registration)
        clause = self.select_clause()
        dataset = self.dataset()
        pattern = self._where()
        found = self.modifiers()
        node = self._solutions(pattern, clause, found)
        if clause.star is not None:
            variables = tuple(variable for variable in self.in_scope if not variable.is_blank)
        else:
            variables = tuple(dict.fromkeys(item.variable for item in clause.items))
        node = Project(self.ordered(node, found), variables)
        if clause.distinct:
            node = Distinct(node)
        names = tuple(variable.name for variable in variables)
        return Query("select", self.sliced(node, found), names, (), dataset, registration)

    def _ask(self, registration: Registration | None) -> Query:
        self.advance()
        dataset = self.dataset()
        return Query("ask", self._where_modified(), (), (), dataset, registration)

    def _construct(self, registration: Registration | None) -> Query:
        self.advance()
        registration = self.output_operator(registration)
        if self.token.kind in ("FROM", "WHERE"):
            return self._construct_where(registration)
        template = self._template("the template { ... } or WHERE after CONSTRUCT")
        self.in_scope.clear()
        self.labels.clear()
        dataset = self.dataset()
        return Query("construct", self._where_modified(), (), template, dataset, registration)

    def _construct_where(self, registration: Registration | None) -> Query:
        """Read the short form, whose pattern is also its template."""
        dataset = self.dataset()
        self.expect("WHERE", "WHERE")
        template = self._template("'{' and triple patterns")
        found = self.modifiers()
        node = self._solutions(Bgp(template), SelectClause(), found)
        node = self.sliced(self.ordered(node, found), found)
        return Query("construct", node, (), template, dataset, registration)

    def _template(self, expected: str) -> tuple[TriplePattern, ...]:
        """Read `{ triples }`."""
        assert self.graph is DEFAULT
        self.expect("{", expected)
        if self.at_triples():
            self.triples_block()
        if self.token.kind != "}":
            raise self.unexpected("triples only, then '}'")
        self.advance()
        template, self.patterns = tuple(self.patterns), []
        return template

    def _where(self) -> Node:
        self.accept("WHERE")
        if self.token.kind != "{":
            raise self.error("FROM, WHERE or '{'")
        return self.group()

    def _where_modified(self) -> Node:
        pattern = self._where()
        found = self.modifiers()
        node = self._solutions(pattern, SelectClause(), found)
        return self.sliced(self.ordered(node, found), found)

    def _solutions(self, pattern: Node, clause: SelectClause, found: Modifiers) -> Node:
        node = self.grouped(pattern, clause, found)
        keys: set[Variable] | None = None if node is pattern else {variable for variable, _ in found.keys}
        return self.extended(node, clause, keys)

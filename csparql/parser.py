"""The parser: C-SPARQL and SPARQL text to the algebra, by recursive descent, in one pass.

The parts stand on each other: tokens and terms (parser_base), expressions, triples, groups, streams, select; the query
forms are here. What the language knows and we do not support is refused by name and place.
"""

from __future__ import annotations

from dataclasses import replace

from wukongs.csparql.algebra import DEFAULT, Bgp, Node, Query, Registration, TermOrVariable, TriplePattern
from wukongs.csparql.joining import UNIT
from wukongs.csparql.nesting import TOKENS_MAX
from wukongs.csparql.parser_select import SelectClause
from wukongs.csparql.parser_subqueries import SubqueryParser
from wukongs.csparql.terms import Variable
from wukongs.csparql.timestamps import resolve_timestamps

_FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_UPDATES = frozenset(("INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH"))


def parse_query(text: str, base: str | None = None, source: str = "query") -> Query:
    """Parse a query and translate it into the algebra.

    base : what relative IRIs are resolved against, unless the query has BASE; without either they stay relative.
    source : what error messages call the text, such as its file.

    Raises QuerySyntaxError (place, expected, found); UnsupportedFeatureError (place, feature); DataError (base).
    SERVICE is parsed, and refused by `wukongs.csparql.rules.rewrite`.
    """
    parser = _QueryParser(text, base, source)
    if len(parser.tokens) > TOKENS_MAX:
        expected = f"at most {TOKENS_MAX} tokens in a query (load a list of data, and match it)"
        raise parser.error(expected, parser.tokens[TOKENS_MAX], f"{len(parser.tokens)}")
    try:
        query = resolve_timestamps(parser.query(), parser.refuse_timestamp)
    except RecursionError:
        raise parser.error("a query that is nested less deeply") from None
    parser.check_depth(query.pattern)
    places = ((name, *parser.place_of(token)) for name, token in parser.graph_places.items())
    aliases = ((alias.token.text, alias.text, *parser.place_of(token)) for alias, token in parser.having_aliases)
    return replace(query, graph_places=tuple(places), having_aliases=tuple(aliases), refused=parser.refused)


class _QueryParser(SubqueryParser):
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
            query = self._describe(registration)
        elif kind in _UPDATES:
            raise self.error("a query (SELECT, ASK ...); an update is given to Engine.update or parse_update")
        else:
            either = "SELECT, ASK, CONSTRUCT or DESCRIBE"
            raise self.error(either if registration else f"{either} (or PREFIX, BASE or REGISTER QUERY before it)")
        if self.token.kind == "AGGREGATE":
            raise self.unsupported(
                "the AGGREGATE clause of C-SPARQL",
                advice="write it in SPARQL 1.1: SELECT ?key (COUNT(?x) AS ?count) ... GROUP BY ?key",
            )
        self.expect("end", "the end of the query")
        return query

    def _select(self, registration: Registration | None) -> Query:
        self.advance()
        registration = self.output_operator(registration)
        clause = self.select_clause()
        dataset = self.dataset()
        node, variables = self.selected(clause, self.where())
        names = tuple(variable.name for variable in variables)
        return Query("select", node, names, (), dataset, registration)

    def _ask(self, registration: Registration | None) -> Query:
        self.advance()
        dataset = self.dataset()
        return Query("ask", self._modified(self.where()), (), (), dataset, registration)

    def _describe(self, registration: Registration | None) -> Query:
        self.advance()
        described: list[TermOrVariable] = []
        is_star = self.accept("*")
        while not is_star and (self.token.kind == "var" or self.at_iri()):
            is_variable = self.token.kind == "var"
            described.append(self.named(self.advance()) if is_variable else self.iri("an IRI"))
        if not is_star and not described:
            raise self.error("'*', an IRI or a variable after DESCRIBE")
        dataset = self.dataset()
        if self.token.kind in ("WHERE", "{"):
            pattern = self.where()
        elif is_star:
            raise self.error("WHERE or '{' after DESCRIBE *")
        else:
            pattern = UNIT
        node = self._modified(pattern)
        if is_star:
            described = [variable for variable in self.in_scope if not variable.is_blank]
        return Query("describe", node, (), (), dataset, registration, tuple(dict.fromkeys(described)))

    def _construct(self, registration: Registration | None) -> Query:
        self.advance()
        registration = self.output_operator(registration)
        if self.token.kind in ("FROM", "WHERE"):
            return self._construct_where(registration)
        template = self._template("the template { ... } or WHERE after CONSTRUCT")
        triple_terms, self.triple_terms = self.triple_terms, []
        self.in_scope.clear()
        self.labels.clear()
        dataset = self.dataset()
        node, template = self.put_together(self._modified(self.where()), template, triple_terms)
        return Query("construct", node, (), template, dataset, registration)

    def _construct_where(self, registration: Registration | None) -> Query:
        """Read the short form, whose pattern is also its template."""
        dataset = self.dataset()
        self.expect("WHERE", "WHERE")
        template = self._template("'{' and triple patterns")
        for found in self.triple_terms:
            if any(isinstance(part, Variable) and part.is_blank for part in found.parts):
                raise self.unsupported(
                    "a blank node inside of a triple term in the short form of CONSTRUCT",
                    found.token,
                    "write CONSTRUCT { template } WHERE { pattern }",
                )
        pattern = self.with_triple_terms(template, []) if self.triple_terms else Bgp(template)
        return Query("construct", self._modified(pattern), (), template, dataset, registration)

    def _template(self, expected: str) -> tuple[TriplePattern, ...]:
        """Read `{ triples }`."""
        assert self.graph is DEFAULT
        self.expect("{", expected)
        if self.at_triples():
            self.triples_block()
        if self.token.kind != "}":
            raise self.error("triples only, then '}'")
        self.advance()
        template, self.patterns = tuple(self.patterns), []
        return template

    def _modified(self, pattern: Node) -> Node:
        """Read the modifiers and VALUES of a form that has no SELECT clause."""
        node, found = self.solutions(SelectClause(), pattern)
        return self.sliced(self.ordered(node, found), found)

"""The parser of queries: C-SPARQL and SPARQL text to the algebra, by recursive descent, in one pass.

The query forms are here. parser_patterns.py reads the patterns in them, parser_streams.py the head that C-SPARQL adds.
A feature of the language that we do not support is refused by name and place.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from wukongs.csparql.algebra import (
    DEFAULT,
    UNIT,
    Bgp,
    Node,
    Query,
    Registration,
    TermOrVariable,
    TriplePattern,
)
from wukongs.csparql.joined_words import split_words
from wukongs.csparql.nesting import TOKENS_MAX
from wukongs.csparql.parser_patterns import PatternParser, SelectClause, put_together
from wukongs.csparql.parser_streams import check_stream, read_dataset, read_output_operator, read_registration
from wukongs.csparql.terms import Variable
from wukongs.csparql.timestamps import resolve_timestamps
from wukongs.csparql.tokens import Token, check_text, tokenize_decoded
from wukongs.csparql.warnings import STORED, reads_default_graph
from wukongs.errors import QuerySyntaxError

_UPDATES = frozenset(("INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH"))


def parse_query(text: str, base: str | None = None, source: str = "query") -> Query:
    """Parse a query and translate it into the algebra.

    base : relative IRIs are resolved against it, unless the query has BASE; without either they stay relative. source :
    the name of the text in error messages, such as its file.

    Raises QuerySyntaxError (place, expected, found); UnsupportedFeatureError (place, feature); DataError (base).
    SERVICE where it cannot be answered is parsed, and refused by `wukongs.csparql.rules.rewrite`.
    """
    check_text(text, base, source)
    text, tokens = tokenize_decoded(text, source)
    try:
        return _parsed(text, tokens, base, source)
    except QuerySyntaxError:
        with suppress(QuerySyntaxError):
            parts = split_words(text, tokens, {}, source)
            if parts is not None:
                return _parsed(text, parts, base, source)
        raise


def _parsed(text: str, tokens: list[Token], base: str | None, source: str) -> Query:
    """Parse the tokens of a query. Raises as parse_query."""
    parser = PatternParser(text, tokens, base, source)
    if len(parser.tokens) > TOKENS_MAX:
        expected = f"at most {TOKENS_MAX} tokens in a query (load a list of data, and match it)"
        raise parser.error(expected, parser.tokens[TOKENS_MAX], f"{len(parser.tokens)}")
    try:
        query = _with_stored_default(resolve_timestamps(_query(parser), parser.refuse_timestamp))
    except RecursionError:
        raise parser.error("a query that is nested less deeply") from None
    parser.check_depth(query.pattern)
    places = ((name, *parser.place_of(token)) for name, token in parser.graph_places.items())
    aliases = ((alias.token.text, alias.text, *parser.place_of(token)) for alias, token in parser.having_aliases)
    is_live = query.registration is not None or bool(query.dataset.windows)
    refused = parser.refused_live if is_live else None
    return replace(query, graph_places=tuple(places), having_aliases=tuple(aliases), refused=refused)


def _with_stored_default(query: Query) -> Query:
    """Let a query whose clause declares NAMED windows and nothing else keep the stored default graph (decision 0033),
    if a pattern reads it."""
    clause = query.dataset
    has_only_windows = clause.windows and not clause.default_graphs and not clause.named_graphs
    if has_only_windows and all(window.named for window in clause.windows) and reads_default_graph(query):
        return replace(query, dataset=replace(clause, default_graphs=(STORED[1:-1],)))
    return query


def _query(parser: PatternParser) -> Query:
    parser.prologue()
    registration = read_registration(parser)
    if registration is not None:
        parser.prologue()
    kind = parser.token.kind
    form = _FORMS.get(kind)
    if form is None:
        if kind in _UPDATES:
            raise parser.error("a query (SELECT, ASK ...); an update is given to Engine.update or parse_update")
        either = "SELECT, ASK, CONSTRUCT or DESCRIBE"
        raise parser.error(either if registration else f"{either} (or PREFIX, BASE or REGISTER QUERY before it)")
    check_stream(parser, registration)
    parser.advance()
    query = form(parser, registration)
    if parser.token.kind == "AGGREGATE":
        raise parser.unsupported(
            "the AGGREGATE clause of C-SPARQL",
            advice="write it in SPARQL 1.1: SELECT ?key (COUNT(?x) AS ?count) ... GROUP BY ?key",
        )
    parser.expect("end", "the end of the query")
    return query


def _select(parser: PatternParser, registration: Registration | None) -> Query:
    registration = read_output_operator(parser, registration)
    clause = parser.select_clause()
    dataset = read_dataset(parser)
    node, variables = parser.selected(clause, parser.where())
    names = tuple(variable.name for variable in variables)
    return Query("select", node, names, (), dataset, registration)


def _ask(parser: PatternParser, registration: Registration | None) -> Query:
    dataset = read_dataset(parser)
    return Query("ask", _modified(parser, parser.where()), (), (), dataset, registration)


def _describe(parser: PatternParser, registration: Registration | None) -> Query:
    described: list[TermOrVariable] = []
    is_star = parser.accept("*")
    while not is_star and (parser.token.kind == "var" or parser.at_iri()):
        is_variable = parser.token.kind == "var"
        described.append(parser.named(parser.advance()) if is_variable else parser.iri("an IRI"))
    if not is_star and not described:
        raise parser.error("'*', an IRI or a variable after DESCRIBE")
    dataset = read_dataset(parser)
    if parser.token.kind in ("WHERE", "{"):
        pattern = parser.where()
    else:
        pattern = UNIT
    node = _modified(parser, pattern)
    if is_star:
        described = [variable for variable in parser.in_scope if not variable.is_blank]
    return Query("describe", node, (), (), dataset, registration, tuple(dict.fromkeys(described)))


def read_construct(parser: PatternParser, registration: Registration | None) -> Query:
    """Read from after CONSTRUCT to the end of the query."""
    registration = read_output_operator(parser, registration)
    if parser.token.kind in ("FROM", "WHERE"):
        return _construct_where(parser, registration)
    template = _template(parser, "the template { ... } or WHERE after CONSTRUCT")
    triple_terms, parser.triple_terms = parser.triple_terms, []
    parser.in_scope.clear()
    parser.labels.clear()
    dataset = read_dataset(parser)
    node, template = put_together(_modified(parser, parser.where()), template, triple_terms)
    return Query("construct", node, (), template, dataset, registration)


def _construct_where(parser: PatternParser, registration: Registration | None) -> Query:
    """Read the short form, whose pattern is also its template."""
    dataset = read_dataset(parser)
    parser.expect("WHERE", "WHERE")
    template = _template(parser, "'{' and triple patterns")
    for found in parser.triple_terms:
        if any(isinstance(part, Variable) and part.is_blank for part in found.parts):
            raise parser.unsupported(
                "a blank node inside of a triple term in the short form of CONSTRUCT",
                found.token,
                "write CONSTRUCT { template } WHERE { pattern }",
            )
    pattern = parser.with_triple_terms(template, []) if parser.triple_terms else Bgp(template)
    return Query("construct", _modified(parser, pattern), (), template, dataset, registration)


def _template(parser: PatternParser, expected: str) -> tuple[TriplePattern, ...]:
    """Read `{ triples }`."""
    assert parser.graph is DEFAULT
    parser.expect("{", expected)
    if parser.at_triples():
        parser.triples_block()
    if parser.token.kind != "}":
        raise parser.error("triples only, then '}'")
    parser.advance()
    template, parser.patterns = tuple(parser.patterns), []
    return template


def _modified(parser: PatternParser, pattern: Node) -> Node:
    """Read the modifiers and VALUES of a form that has no SELECT clause."""
    node, found = parser.solutions(SelectClause(), pattern)
    return parser.sliced(parser.ordered(node, found), found)


_FORMS = {"SELECT": _select, "ASK": _ask, "CONSTRUCT": read_construct, "DESCRIBE": _describe}

"""The parser of SPARQL 1.1 Update: a request is operations with ';' between them, each with a prologue of its own.

Rules that the grammar alone does not say (grammar notes 7 to 10): DATA has no variables; deleted quads have no blank
nodes; a blank node label stands in only one INSERT DATA, and in only one WHERE clause, of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Literal as Choice

from wukongs.csparql.algebra import DEFAULT, UNIT, Bgp, DatasetClause, Node, Project, Query, TriplePattern, WrittenGraph
from wukongs.csparql.data_runs import CHARACTERS_MIN, DataReader
from wukongs.csparql.joined_words import split_words
from wukongs.csparql.nesting import UPDATE_CHARACTERS_MAX
from wukongs.csparql.parser_data import DataBlocks
from wukongs.csparql.parser_patterns import PatternParser, put_together
from wukongs.csparql.places import excerpt, place
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.timestamps import resolve_timestamps
from wukongs.csparql.tokens import Token, check_text, tokenize, tokenize_decoded
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
from wukongs.errors import QuerySyntaxError

QUERY_FORMS = frozenset(("SELECT", "ASK", "CONSTRUCT", "DESCRIBE", "REGISTER"))
_OPERATIONS = frozenset(("INSERT", "DELETE", "WITH", "LOAD", "CLEAR", "DROP", "CREATE", "COPY", "MOVE", "ADD"))
_AN_OPERATION = "INSERT, DELETE, WITH, LOAD, CLEAR, DROP, CREATE, COPY, MOVE or ADD"


def parse_update(text: str, base: str | None = None, source: str = "update", runs: bool | None = None) -> Update:
    """Parse an update request. base, source: as in parse_query. runs: whether plain quads of DATA are read as columns
    (None: if the text is long).

    Raises QuerySyntaxError (place, expected, found), also for a query; UnsupportedFeatureError (place, feature);
    DataError (base).
    """
    check_text(text, base, source)
    if len(text) > UPDATE_CHARACTERS_MAX:
        expected = f"at most {UPDATE_CHARACTERS_MAX} characters in an update (load a file of data)"
        where = place(text, UPDATE_CHARACTERS_MAX)
        shown = excerpt(text, UPDATE_CHARACTERS_MAX, 1)
        raise QuerySyntaxError(expected, f"{len(text)}", *where, source, shown)
    reader = DataReader() if runs or (runs is None and len(text) >= CHARACTERS_MIN) else None
    text, tokens = tokenize_decoded(text, source, tokenize if reader is None else reader.tokenize)
    try:
        return _parsed(text, tokens, reader, base, source)
    except QuerySyntaxError:
        run_ends = {} if reader is None else {start: run.stop for start, run in reader.runs.items()}
        with suppress(QuerySyntaxError):
            parts = split_words(text, tokens, run_ends, source)
            if parts is not None:
                return _parsed(text, parts, reader, base, source)
        raise


def _parsed(text: str, tokens: list[Token], reader: DataReader | None, base: str | None, source: str) -> Update:
    """Parse the tokens of an update. Raises as parse_update."""
    parser = PatternParser(text, tokens, base, source)
    try:
        update = _update(parser, DataBlocks(parser, reader))
    except RecursionError:
        raise parser.error("an update that is nested less deeply") from None
    parser.check_depth(update)
    return update


def _update(parser: PatternParser, data: DataBlocks) -> Update:
    operations = []
    parser.prologue()
    while parser.token.kind != "end":
        operations.append(_operation(parser, data))
        if parser.token.kind == "end":
            break
        parser.expect(";", "';' before the next operation, or the end of the update")
        parser.prologue()
    return Update(tuple(operations))


def _operation(parser: PatternParser, data: DataBlocks) -> Operation:
    kind = parser.token.kind
    if kind in QUERY_FORMS:
        raise parser.error(f"an update ({_AN_OPERATION}); {_who_takes(kind)}")
    if kind not in _OPERATIONS:
        raise parser.error(f"{_AN_OPERATION} (or PREFIX or BASE before it)")
    parser.advance()
    parser.in_scope.clear()
    parser.triple_terms = []
    match kind:
        case "INSERT":
            return _insert_data(parser, data) if parser.accept("DATA") else _modify(parser, kind, None)
        case "DELETE" if parser.accept("DATA"):
            return _delete_data(parser, data)
        case "DELETE":
            return _delete_where(parser) if parser.accept("WHERE") else _modify(parser, kind, None)
        case "WITH":
            return _with(parser)
        case "LOAD":
            return _load(parser)
        case "CLEAR" | "DROP":
            return _clear(parser, kind)
        case "CREATE":
            return _create(parser)
        case "COPY" | "MOVE" | "ADD":
            return _transfer(parser, kind)
    raise AssertionError(kind)


# --- DATA, templates and WHERE ----------------------------------------------------------------------------------------


def _insert_data(parser: PatternParser, data: DataBlocks) -> Operation:
    data.begin(may_have_blanks=True)
    quads, tokens, labels = _quads(parser, "the quads { ... } after INSERT DATA", data)
    for token in tokens:
        if token.kind == "blank" and token.text in data.old_labels:
            expected = "a blank node label that no INSERT DATA before has"
            raise parser.error(expected, token, f"'{token.text}', which would not be the same node")
    data.old_labels.update(labels)
    if parser.triple_terms:  # with blank nodes inside, which have to be made
        quads = (*quads, *(quad for columns in data.columns for quad in columns.quads()))
        pattern, quads = put_together(UNIT, quads, parser.triple_terms)
        return Modify((), quads, _where_of(parser, pattern, quads, DatasetClause()))
    return InsertData(quads, tuple(data.columns))


def _delete_data(parser: PatternParser, data: DataBlocks) -> Operation:
    data.begin(may_have_blanks=False)
    quads, *_ = _quads(parser, "the quads { ... } after DELETE DATA", data, blanks=False)
    return DeleteData(quads, tuple(data.columns))


def _delete_where(parser: PatternParser) -> Operation:
    quads, *_ = _quads(parser, "the quads { ... } after DELETE WHERE", blanks=False)
    pattern = parser.with_triple_terms(quads, []) if parser.triple_terms else Bgp(quads)
    return Modify(quads, (), _where_of(parser, pattern, quads, DatasetClause()))


def _with(parser: PatternParser) -> Operation:
    graph = parser.graph_name("the IRI of a graph after WITH")
    kind = parser.token.kind
    if kind not in ("DELETE", "INSERT"):
        raise parser.error("DELETE or INSERT after WITH and its graph")
    parser.advance()
    return _modify(parser, kind, graph)


def _modify(parser: PatternParser, kind: str, graph: Term | None) -> Modify:
    """Read from the first template to the end of WHERE. graph: that of WITH."""
    delete: tuple[TriplePattern, ...] = ()
    insert: tuple[TriplePattern, ...] = ()
    if kind == "DELETE":
        delete, *_ = _quads(parser, "the template { ... }, DATA or WHERE after DELETE", blanks=False)
        if parser.accept("INSERT"):
            kind = "INSERT"
            insert, *_ = _quads(parser, "the template { ... } after INSERT")
    else:
        insert, *_ = _quads(parser, "the template { ... } or DATA after INSERT")
    dataset = _using(parser)
    after = "USING or WHERE" if dataset.is_empty else "USING or WHERE after USING"
    parser.expect("WHERE", f"INSERT, {after}" if kind == "DELETE" else after)
    parser.in_scope.clear()
    parser.new_scope()
    triple_terms, parser.triple_terms = parser.triple_terms, []
    pattern, insert = put_together(parser.group(), insert, triple_terms)
    if graph is not None:
        delete, insert = (
            tuple(replace(quad, graph=graph) if quad.graph == DEFAULT else quad for quad in template)
            for template in (delete, insert)
        )
    where = _where_of(parser, pattern, (*delete, *insert), dataset)
    return Modify(delete, insert, where, graph if dataset.is_empty else None)


def _using(parser: PatternParser) -> DatasetClause:
    default_graphs: dict[str, None] = {}
    named_graphs: dict[str, None] = {}
    while parser.accept("USING"):
        graphs = named_graphs if parser.accept("NAMED") else default_graphs
        graphs[parser.iri_value("the IRI of a graph after USING")] = None
    return DatasetClause(tuple(default_graphs), tuple(named_graphs))


def _where_of(parser: PatternParser, pattern: Node, quads: tuple[TriplePattern, ...], dataset: DatasetClause) -> Query:
    needed = [variable for quad in quads for variable in quad.variables() if not variable.is_blank]
    variables = tuple(dict.fromkeys(needed))
    names = tuple(variable.name for variable in variables)
    where = Query("select", Project(pattern, variables), names, (), dataset, refused=parser.refused_live)
    return resolve_timestamps(where, parser.refuse_timestamp)


def _quads(
    parser: PatternParser, expected: str, data: DataBlocks | None = None, *, blanks: bool = True
) -> tuple[tuple[TriplePattern, ...], Sequence[Token], Iterable[str]]:
    """Read `{ triples GRAPH g { triples } ... }`; return the quads, all tokens, and the blank node labels.
    data: those of the DATA block that this is, None for a template; blanks: whether blank nodes may stand there."""
    outer, parser.patterns = parser.patterns, []
    outer_labels, parser.labels = parser.labels, {}
    parser.in_data = data is not None
    start = parser.index
    parser.expect("{", expected)
    _triples_template(parser, data)
    while parser.accept("GRAPH"):
        parser.graph = _graph_name(parser)
        parser.expect("{", "'{' after the graph")
        _triples_template(parser, data)
        if parser.token.kind != "}":
            raise parser.error("triples only, then '}': a GRAPH block cannot stand in another one")
        parser.advance()
        parser.graph = DEFAULT
        parser.accept(".")
        _triples_template(parser, data)
    if parser.token.kind != "}":
        raise parser.error("triples, GRAPH or '}'")
    parser.advance()
    parser.in_data = False
    quads, parser.patterns = tuple(parser.patterns), outer
    labels, parser.labels = parser.labels, outer_labels
    tokens = parser.tokens[start : parser.index]
    if data is not None:
        _refuse(parser, tokens, ("var",), "terms only in DATA (DELETE or INSERT ... WHERE takes variables)")
    inner = (part for found in parser.triple_terms for part in found.parts if isinstance(part, Variable))
    if not blanks and any(part.is_blank for part in chain(inner, *(quad.variables() for quad in quads))):
        expected = "no blank node in what is deleted, as it would be a new one (in WHERE, a variable finds them)"
        _refuse(parser, tokens, ("blank", "[", "("), expected, parser.unnamed_reifiers)
    return quads, tokens, labels


def _refuse(
    parser: PatternParser,
    tokens: Sequence[Token],
    kinds: tuple[str, ...],
    expected: str,
    unnamed: AbstractSet[Token] = frozenset(),
) -> None:
    for token in tokens:
        if token.kind in kinds or token in unnamed:
            raise parser.error(expected, token)


def _triples_template(parser: PatternParser, data: DataBlocks | None) -> None:
    while True:
        if data is not None and parser.token.kind == "data":
            data.read_run()
        elif parser.at_triples():
            parser.triples_block()
        else:
            return


def _graph_name(parser: PatternParser) -> WrittenGraph:
    if parser.token.kind == "var":
        return Variable(parser.advance().text[1:])
    return parser.graph_name("an IRI or a variable after GRAPH")


# --- whole graphs -----------------------------------------------------------------------------------------------------


def _load(parser: PatternParser) -> Operation:
    silent = parser.accept("SILENT")
    document = parser.iri_value("the IRI of a document after LOAD")
    into = None
    if parser.accept("INTO"):
        parser.expect("GRAPH", "GRAPH and an IRI after INTO")
        into = parser.graph_name("the IRI of a graph after INTO GRAPH")
    return Load(document, into, silent)


def _clear(parser: PatternParser, kind: str) -> Operation:
    silent = parser.accept("SILENT")
    target: GraphTarget
    match parser.token.kind:
        case "DEFAULT" | "NAMED" | "ALL" as whole:
            parser.advance()
            target = whole
        case "GRAPH":
            parser.advance()
            target = parser.graph_name("the IRI of a graph after GRAPH")
        case _:
            raise parser.error(f"GRAPH and an IRI, DEFAULT, NAMED or ALL after {kind}")
    return Clear(target, silent, is_drop=kind == "DROP")


def _create(parser: PatternParser) -> Operation:
    silent = parser.accept("SILENT")
    parser.expect("GRAPH", "GRAPH and an IRI after CREATE")
    return Create(parser.graph_name("the IRI of a graph after CREATE GRAPH"), silent)


def _transfer(parser: PatternParser, kind: Choice["COPY", "MOVE", "ADD"]) -> Operation:
    silent = parser.accept("SILENT")
    source = _graph_or_default(parser, kind)
    parser.expect("TO", "TO and a graph")
    destination = _graph_or_default(parser, "TO")
    return Transfer(kind, source, destination, silent)


def _graph_or_default(parser: PatternParser, after: str) -> Term | None:
    if parser.accept("DEFAULT"):
        return None
    parser.accept("GRAPH")
    return parser.iri(f"the IRI of a graph, or DEFAULT, after {after}")


def _who_takes(kind: str) -> str:
    """Say which call takes a query that was given as an update."""
    method = "register" if kind == "REGISTER" else "query"
    return f"a query is given to Engine.{method} or parse_query"

"""Runs of DATA blocks (csparql/data_runs.py) to columns of terms: each distinct term is read once, and no token made.

A statement that the parser would refuse is not refused here. The statement becomes tokens, and the parser says the
error and its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from wukongs.csparql.data_runs import DataReader, DataRun
from wukongs.csparql.escapes import unescape_local
from wukongs.csparql.parser_patterns import PatternParser
from wukongs.csparql.terms import RDF_TYPE, XSD, Term, Variable, literal
from wukongs.csparql.tokens import Token, tokenize
from wukongs.csparql.updates import DataColumns
from wukongs.errors import QuerySyntaxError

_ABSOLUTE = r"<[A-Za-z][A-Za-z0-9+.-]*:[^\\>]*>"
_is_plain_iri = re.compile(_ABSOLUTE).fullmatch
_is_plain_literal = re.compile(
    rf'"(?!"")[^"\\]*"(?:\^\^(?!<{re.escape(XSD)}string>){_ABSOLUTE}|@[a-z]+(?:-[a-z0-9]+)*)?'
).fullmatch
_is_number = re.compile(r"[+-]?[0-9]*(\.?)[0-9]*([eE]?)[0-9+-]*").fullmatch
_Read = Callable[[str], str | Variable | None]


class DataBlocks:
    """Reads the "data" tokens in the DATA blocks of one update."""

    def __init__(self, parser: PatternParser, reader: DataReader | None) -> None:
        self._parser = parser
        self._reader = reader
        """None: the tokens have no runs."""
        self.columns: list[DataColumns] = []
        """Those of the block that is being read."""
        self.old_labels: set[str] = set()
        """The blank node labels of the INSERT DATA operations before."""
        self._may_have_blanks = True
        self._is_refused = False
        """Whether a part of the block has become tokens that are refused when all of the block has been read."""

    def begin(self, *, may_have_blanks: bool) -> None:
        """Begin with the columns of another block."""
        self.columns = []
        self._may_have_blanks = may_have_blanks
        self._is_refused = False

    def read_run(self) -> None:
        """Read a run, or replace it by its parts."""
        assert self._reader is not None
        parser = self._parser
        run = self._reader.runs[parser.token.start]
        row = self._refused_blank(run)
        if row is None:
            terms = _all_read(run.terms, self._term)
            verbs = _all_read(run.verbs, self._verb_term)
            if isinstance(terms, list) and isinstance(verbs, list):
                row = _literal_subject(run, terms)
                if row is None:
                    parser.advance()
                    self._add(run, terms, verbs)
                    return
            else:
                row = run.first_row(*(wrong if isinstance(wrong, str) else None for wrong in (terms, verbs)))
        parser.tokens[parser.index : parser.index + 1] = self._reader.opened(parser.text, run, row, parser.source)
        parser.rewind(parser.index)

    def _refused_blank(self, run: DataRun) -> int | None:
        """Return the first row with a blank node that may not be there, if no error was raised for it yet."""
        if self._is_refused:
            return None
        for written in run.terms:
            if written.startswith("_:") and (not self._may_have_blanks or written in self.old_labels):
                row = run.first_row(written, None)
                self._is_refused = run.graphs[row] < 0  # the rest of a GRAPH block is a run again
                return row
        return None

    def _add(self, run: DataRun, terms: list[str | Variable], verbs: list[str | Variable]) -> None:
        graphs = run.graphs
        graph = self._parser.graph
        if isinstance(graph, Term):  # in a GRAPH block; nothing comes of the data if that names a variable
            graphs = [len(terms) + len(verbs)] * len(graphs)
            verbs.append(graph.text)
        first_verb = len(terms)
        predicates = [first_verb + place for place in run.predicates]
        self.columns.append(DataColumns((*terms, *verbs), graphs, run.subjects, predicates, run.objects))

    # --- terms, as they are written, to canonical form; None: not allowed there ---------------------------------------

    def _term(self, written: str) -> str | Variable | None:
        first = written[0]
        if first == "<":
            return written if _is_plain_iri(written) else self._parsed(written)
        if first == '"':
            return written if _is_plain_literal(written) else self._parsed(written)
        if first == "_":
            return self._parser.labelled(Token("blank", written, 0))
        if first in "0123456789+-." and (number := _is_number(written)):
            kind = "double" if number[2] else "decimal" if number[1] else "integer"
            return literal(written, XSD + kind).text
        if first != "'" and ":" in written:
            return self._prefixed(written)
        return self._parsed(written)

    def _verb_term(self, written: str) -> str | None:
        if written == "a":
            return RDF_TYPE.text
        if written[0] == "<":
            return written if _is_plain_iri(written) else self._parsed(written)
        return self._prefixed(written) if ":" in written and written[0] not in "\"'_" else None

    def _prefixed(self, written: str) -> str | None:
        prefix, _, local = written.partition(":")
        namespace = self._parser.prefixes.get(prefix)
        return None if namespace is None else f"<{namespace}{unescape_local(local)}>"

    def _parsed(self, written: str) -> str | None:
        """Read a term as in any other place of an update."""
        parser = self._parser
        outer, index = parser.tokens, parser.index
        parser.tokens = tokenize(written)
        parser.rewind(0)
        try:
            term = parser.iri("an IRI") if parser.at_iri() else parser.literal() if parser.at_literal() else None
        except QuerySyntaxError:
            term = None
        parser.tokens = outer
        parser.rewind(index)
        return None if term is None else term.text


def _literal_subject(run: DataRun, terms: list[str | Variable]) -> int | None:
    """Return the first row with a literal as its subject."""
    literals = {place for place in set(run.subjects) if str(terms[place]).startswith('"')}
    return next((row for row, place in enumerate(run.subjects) if place in literals), None) if literals else None


def _all_read(written: list[str], read: _Read) -> list[str | Variable] | str:
    """Return the meanings of terms, or the first term without one."""
    terms: list[str | Variable] = []
    for text in written:
        term = read(text)
        if term is None:
            return text
        terms.append(term)
    return terms

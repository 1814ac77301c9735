"""Runs of plain quads in INSERT DATA and DELETE DATA, cut out of the text by one regular expression per triple.

A run is a part of a DATA block in which only this stands: triples of IRIs, prefixed names, `a`, literals, numbers,
booleans and blank node labels, with `;` and `,`, and GRAPH blocks of such. It becomes one token of the kind "data",
and its columns are kept beside the tokens. Everything else (`[ ]`, collections, triple terms, variables, mistakes) is
cut into tokens as usual, and a run may begin again behind the next full stop or brace.

* A run is a piece of the text that the tokenizer could have read as well, cut at the same places: it uses the same
  expressions for tokens, and never gives back a character of one.
* It begins and ends where a statement or a GRAPH block does, all in one graph of the text or outside of all.
* csparql/parser_data.py looks at the meaning of its terms: prefixes, escapes, whether they may stand there.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import NamedTuple

from wukongs.csparql.tokens import REGEXES, SKIPPED, Token, read_tokens

CHARACTERS_MIN = 4096
"""A shorter request is cut into tokens: that costs little, and most tests of the parser read such requests."""

_NAME = rf"(?:{REGEXES['iri']}|{REGEXES['pname']})"
_LITERAL = rf"(?:{REGEXES['string']})(?:{REGEXES['lang']}|\^\^{_NAME})?+"
_NUMBER = rf"[+-]?(?:{REGEXES['double']}|{REGEXES['decimal']}|{REGEXES['integer']})"
_WORD = r"(?:a|(?i:true|false))(?![A-Za-z0-9_])"
_TERM = rf"(?>{_NAME}|{_LITERAL}|{_NUMBER}|{REGEXES['blank']}|{_WORD})"
_DOT = r"\.(?![0-9])"
_END = rf"{_DOT}|,|;(?:{SKIPPED};)*+|(?=\}})"
_PIECE = (
    rf"{SKIPPED}(?:({_TERM})(?:{SKIPPED}({_TERM})(?:{SKIPPED}({_TERM}))?+)?+{SKIPPED}({_END})"
    rf"|(?i:GRAPH)(?=[\s#<]){SKIPPED}((?>{_NAME})){SKIPPED}\{{|(\}})(?:{SKIPPED}{_DOT})?+|{_DOT})"
)
_STATEMENT, _PROPERTY, _OBJECT = 3, 2, 1  # the next part of the text, by the number of its terms
_ENDS = {".": _STATEMENT, "": _STATEMENT, ",": _OBJECT}
_TO_DATA = frozenset(("end", "DATA"))
_TO_STATEMENT = frozenset(("end", ".", "{", "}"))


@cache
def _piece() -> re.Pattern[str]:
    """Compile the pattern when it is first needed: that takes longer than most queries."""
    return re.compile(_PIECE, re.DOTALL)


class DataRun(NamedTuple):
    """text[start:stop], in a GRAPH block of the text or not, as columns of quads.

    terms, verbs: the distinct subjects, objects and graphs, and the distinct predicates, as they are written, in the
    order of their first appearance; subjects, predicates, objects, graphs: places in these, a row for each quad; a
    graph is -1 where the text around the run names it."""

    start: int
    stop: int
    in_graph: bool
    terms: list[str]
    verbs: list[str]
    subjects: list[int]
    predicates: list[int]
    objects: list[int]
    graphs: list[int]

    def first_row(self, term: str | None, verb: str | None) -> int:
        """Return the first row that has this term outside of, or this verb as, its predicate."""
        rows = []
        if term is not None:
            place = self.terms.index(term)
            rows = [column.index(place) for column in (self.subjects, self.objects, self.graphs) if place in column]
        if verb is not None:
            rows.append(self.predicates.index(self.verbs.index(verb)))
        return min(rows)


def scan(text: str, start: int, in_graph: bool, rows_max: int = sys.maxsize) -> DataRun | None:
    """Read a run of at most rows_max quads from text[start:], where a statement may begin; None if there is none."""
    terms: dict[str, int] = {}
    verbs: dict[str, int] = {}
    subjects: list[int] = []
    predicates: list[int] = []
    objects: list[int] = []
    graphs: list[int] = []
    subject = verb = graph = -1
    opened = -1  # the number of rows before the GRAPH block that we are in
    expected = _STATEMENT
    stop, rows = start, 0
    for match in iter(_piece().scanner(text, start).match, None):  # type: ignore[attr-defined]
        first, second, third, end, name, closing = match.groups()
        if end is not None:
            if third is not None:
                count = _STATEMENT
                subject = terms.setdefault(first, len(terms))
                verb = verbs.setdefault(second, len(verbs))
                term = third
            elif second is not None:
                count = _PROPERTY
                verb = verbs.setdefault(first, len(verbs))
                term = second
            else:
                count = _OBJECT
                term = first
            if count != expected:
                break
            subjects.append(subject)
            predicates.append(verb)
            objects.append(terms.setdefault(term, len(terms)))
            graphs.append(graph)
            expected = _ENDS.get(end, _PROPERTY)
        elif name is not None:
            if expected != _STATEMENT or in_graph or opened >= 0:
                break
            graph = terms.setdefault(name, len(terms))
            opened = len(objects)
        elif closing is not None:
            if expected == _OBJECT or opened < 0 or opened == len(objects):
                break
            graph = opened = -1
            expected = _STATEMENT
        elif expected == _PROPERTY:  # `; .`
            expected = _STATEMENT
        else:
            break
        if expected == _STATEMENT and opened < 0:
            if len(objects) > rows_max:
                break
            stop, rows = match.end(), len(objects)
    if rows == 0:
        return None
    for column in (subjects, predicates, objects, graphs):
        del column[rows:]
    known = list(terms)[: max(max(subjects), max(objects), max(graphs)) + 1]
    return DataRun(
        start, stop, in_graph, known, list(verbs)[: max(predicates) + 1], subjects, predicates, objects, graphs
    )


class DataReader:
    """Cuts the text of an update into tokens; `runs` are those that it met, by their start."""

    def __init__(self) -> None:
        self.runs: dict[int, DataRun] = {}

    def tokenize(self, text: str, source: str) -> list[Token]:
        """Cut a text into tokens as csparql.tokens.tokenize does; each run is one token."""
        self.runs.clear()
        tokens: list[Token] = []
        at = read_tokens(text, 0, tokens, _TO_DATA, source)
        while tokens[-1].kind != "end":
            if len(tokens) > 1 and tokens[-2].kind in ("INSERT", "DELETE"):
                at = read_tokens(text, at, tokens, None, source)
                if tokens[-1].kind == "{":
                    at = self._block(text, at, tokens, 1, source)
            if tokens[-1].kind != "end":
                at = read_tokens(text, at, tokens, _TO_DATA, source)
        return tokens

    def opened(self, text: str, run: DataRun, row: int, source: str) -> list[Token]:
        """Cut a run into runs, but the text around one row into tokens, since the parser may have to refuse that
        row."""
        tokens: list[Token] = []
        before = scan(text, run.start, run.in_graph, row)
        if before is not None:
            self._keep(before, tokens)
        at = run.start if before is None else before.stop
        self._block(text, at, tokens, 1 + run.in_graph, source, run.stop, may_begin=False)
        return tokens

    def _keep(self, run: DataRun, tokens: list[Token]) -> None:
        self.runs[run.start] = run
        tokens.append(Token("data", "", run.start))

    def _block(
        self,
        text: str,
        at: int,
        tokens: list[Token],
        depth: int,
        source: str,
        stop: int = sys.maxsize,
        may_begin: bool = True,
    ) -> int:
        """Read a DATA block from a place that is `depth` braces deep in it, to the brace that closes it or to `stop`.

        may_begin: whether a run may begin right there. Returns where the last token or run ends."""
        while depth and at < stop:
            run = scan(text, at, depth > 1) if may_begin else None
            may_begin = True
            if run is not None:
                self._keep(run, tokens)
                at = run.stop
                if at >= stop:
                    break
            at = read_tokens(text, at, tokens, _TO_STATEMENT, source)
            kind = tokens[-1].kind
            if kind == "end":
                break
            depth += {"{": 1, "}": -1}.get(kind, 0)
        if tokens[-1].start >= stop:
            tokens.pop()
        return at

"""VALUES: solutions written out in the text."""

from __future__ import annotations

from wukongs.csparql.algebra import Values
from wukongs.csparql.parser_triples import TriplesParser
from wukongs.csparql.terms import Term, Variable

_A_CELL = "an IRI, a literal or UNDEF"


class ValuesParser(TriplesParser):
    """Reads data blocks."""

    def data_block(self) -> Values:
        """Read what follows VALUES: `?x { 1 2 }` or `(?x ?y) { (1 2) (UNDEF 3) }`."""
        if self.token.kind == "var":
            variables = [self._column([])]
            rows = self._rows_of_one()
        else:
            variables = self._columns()
            rows = self._rows(len(variables))
        return Values(tuple(variables), tuple(rows))

    def _columns(self) -> list[Variable]:
        self.expect("(", "a variable, or variables in parentheses, after VALUES")
        variables: list[Variable] = []
        while self.token.kind == "var":
            variables.append(self._column(variables))
        self.expect(")", "a variable or ')'")
        return variables

    def _column(self, others: list[Variable]) -> Variable:
        token = self.advance()
        variable = self.named(token)
        if variable in others:
            raise self.error("a variable that VALUES does not have yet", token)
        self.in_scope[variable] = None
        return variable

    def _rows_of_one(self) -> list[tuple[Term | None, ...]]:
        self.expect("{", "'{' and the values")
        rows: list[tuple[Term | None, ...]] = []
        while not self.accept("}"):
            rows.append((self._cell(f"{_A_CELL}, or '}}'"),))
        return rows

    def _rows(self, width: int) -> list[tuple[Term | None, ...]]:
        self.expect("{", "'{' and rows of values")
        rows: list[tuple[Term | None, ...]] = []
        while not self.accept("}"):
            opening = self.expect("(", "'(' and a row of values, or '}'")
            row: list[Term | None] = []
            while not self.accept(")"):
                row.append(self._cell(f"{_A_CELL}, or ')'"))
            if len(row) != width:
                wanted = "1 value" if width == 1 else f"{width} values"
                raise self.error(f"{wanted}, one for each variable of VALUES", opening, f"{len(row)}")
            rows.append(tuple(row))
        return rows

    def _cell(self, expected: str) -> Term | None:
        if self.accept("UNDEF"):
            return None
        if self.at_iri():
            return self.iri(expected)
        if self.at_literal():
            return self.literal()
        if self.token.kind == "<<(":
            return self.triple_term_data()
        raise self.error(expected)

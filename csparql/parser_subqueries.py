"""SELECT as a whole, at the top of a query and as a subquery inside of a group.

A subquery is evaluated by itself and lets out only what it projects (SPARQL 1.1, section 12). So that no rule and no
operator has to know about scopes, its other variables get names of their own while it is read: `?x` becomes `?x.1` in
the first subquery that does not let `?x` out. What it lets out is known beforehand, by a look at its SELECT clause.
"""

from __future__ import annotations

from wukongs.csparql.algebra import Distinct, Node, Project
from wukongs.csparql.joining import join
from wukongs.csparql.parser_select import Modifiers, SelectClause, SelectParser
from wukongs.csparql.terms import Variable


class SubqueryParser(SelectParser):
    """Reads SELECT ... WHERE ... with modifiers and VALUES."""

    subquery_count = 0

    def subselect(self) -> Node:
        """Read a subquery, from SELECT to what ends its group."""
        self.advance()
        outer_scope, self.in_scope = self.in_scope, {}
        outer_aggregates, self.aggregates = self.aggregates, {}
        mention_count = len(self.mentions)
        visible = self._let_out()
        if visible is not None:
            self.subquery_count += 1
            self.subqueries.append((visible, self.subquery_count))
        clause = self.select_clause()
        pattern = self.where()
        node, variables = self.selected(clause, pattern)
        if visible is not None:
            self.subqueries.pop()
        self.aggregates = outer_aggregates
        self.in_scope = outer_scope | dict.fromkeys(variables)
        del self.mentions[mention_count:]
        return node

    def where(self) -> Node:
        """Read the WHERE clause, whose keyword may be left out."""
        self.accept("WHERE")
        if self.token.kind != "{":
            raise self.error("WHERE or '{'" if self.subqueries else "FROM, WHERE or '{'")
        return self.group()

    def selected(self, clause: SelectClause, pattern: Node) -> tuple[Node, tuple[Variable, ...]]:
        """Read the modifiers and VALUES; return the whole algebra and the variables that SELECT reports."""
        node, found = self.solutions(clause, pattern)
        if clause.star is not None:
            variables = tuple(variable for variable in self.in_scope if not variable.is_blank)
        else:
            variables = tuple(dict.fromkeys(item.variable for item in clause.items))
        node = Project(self.ordered(node, found), (*variables, *self.graph_key(by_rows=True)))
        if clause.distinct:
            node = Distinct(node)
        return self.sliced(node, found), variables

    def solutions(self, clause: SelectClause, pattern: Node) -> tuple[Node, Modifiers]:
        """Read the modifiers and VALUES; put groups, VALUES and the expressions of SELECT around a pattern."""
        found = self.modifiers()
        values = self.data_block() if self.accept("VALUES") else None
        node = self.grouped(pattern, clause, found)
        keys: set[Variable] | None = None if node is pattern else {variable for variable, _ in found.keys}
        if values is not None:
            node = join(node, values)
            keys = None if keys is None else keys.union(values.variables)
        return self.extended(node, clause, keys), found

    def _let_out(self) -> frozenset[str] | None:
        """Look ahead at a SELECT clause for the names that it projects; None is `*`."""
        names = set()
        at = self.index
        if self.tokens[at].kind in ("DISTINCT", "REDUCED"):
            at += 1
        if self.tokens[at].kind == "*":
            return None
        while True:
            token = self.tokens[at]
            at += 1
            if token.kind == "var":
                names.add(token.text[1:])
            elif token.kind == "(":
                at = self._closing(at)
                names.add(self.tokens[at - 2].text[1:])
            else:
                return frozenset(names)

    def _closing(self, at: int) -> int:
        """Return the place behind the parenthesis that closes the one just before `at`."""
        depth = 1
        while depth and self.tokens[at].kind != "end":
            depth += {"(": 1, ")": -1}.get(self.tokens[at].kind, 0)
            at += 1
        return at

"""SELECT clause and solution modifiers: what is projected, grouped, ordered and cut (SPARQL 1.1, section 18.2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field

from wukongs.csparql.algebra import Aggregate, Expression, Extend, Filter, Group, Node, OrderBy, Slice
from wukongs.csparql.parser_expressions import Mention
from wukongs.csparql.parser_streams import StreamClauseParser
from wukongs.csparql.scope import expression_variables, substitute
from wukongs.csparql.terms import Variable
from wukongs.csparql.tokens import Token


@dataclass(frozen=True, slots=True)
class SelectItem:
    """`?variable`, or `(expression AS ?variable)`; mentions are the variables outside of aggregates; text: the
    expression as it is written."""

    token: Token
    variable: Variable
    expression: Expression | None
    mentions: tuple[Mention, ...]
    text: str = ""


@dataclass(slots=True)
class SelectClause:
    distinct: bool = False
    star: Token | None = None
    items: list[SelectItem] = field(default_factory=list)


@dataclass(slots=True)
class Modifiers:
    """keys: (variable, the expression that it stands for or None); group_by: whether the clause is there at all;
    asked: the variables that HAVING mentions outside of aggregates."""

    group_by: bool = False
    keys: list[tuple[Variable, Expression | None]] = field(default_factory=list)
    having: list[Expression] = field(default_factory=list)
    asked: list[Mention] = field(default_factory=list)
    order: list[tuple[Expression, bool]] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0


class SelectParser(StreamClauseParser):
    """Reads SELECT clauses and solution modifiers and puts them around a pattern."""

    key_count = 0

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, base, source)
        self.having_aliases: list[tuple[SelectItem, Token]] = []
        """The aliases of SELECT that HAVING mentions, where they are unbound, and where it does."""

    def select_clause(self) -> SelectClause:
        """Read from after SELECT to the last projected variable."""
        clause = SelectClause(distinct=self.accept("DISTINCT"))
        if not clause.distinct:
            self.accept("REDUCED")  # which allows repeated rows to stay, so they stay
        if self.token.kind == "*":
            clause.star = self.advance()
            return clause
        while self.token.kind in ("var", "("):
            clause.items.append(self._select_item())
        if not clause.items:
            raise self.error("'*', a variable or (expression AS ?variable) after SELECT")
        return clause

    def _select_item(self) -> SelectItem:
        token = self.advance()
        if token.kind == "var":
            variable = self.named(token)
            return SelectItem(token, variable, None, (Mention(variable, token),))
        start, first = len(self.mentions), self.index
        self.aggregates_allowed = True
        expression, token = self.expression_as()
        self.aggregates_allowed = False
        # Behind the expression come AS, the variable and a parenthesis.
        text = self.text[self.tokens[first].start : self.tokens[self.index - 4].end]
        return SelectItem(token, self.named(token), expression, tuple(self.mentions[start:]), " ".join(text.split()))

    def modifiers(self) -> Modifiers:
        """Read GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET."""
        found = Modifiers()
        if self.accept("GROUP"):
            self._group_by(found)
        self.aggregates_allowed = True
        start = len(self.mentions)
        if self.accept("HAVING"):
            found.having.append(self.constraint("HAVING"))
            while self.at_constraint():
                found.having.append(self.constraint("HAVING"))
        found.asked = self.mentions[start:]
        if self.accept("ORDER"):
            self._order_by(found)
        self.aggregates_allowed = False
        self._limits(found)
        return found

    def _group_by(self, found: Modifiers) -> None:
        self.expect("BY", "BY after GROUP")
        found.group_by = True
        while True:
            if self.token.kind == "var":
                found.keys.append((self.named(self.advance()), None))
            elif self.accept("("):
                found.keys.append(self._group_key())
            elif self.at_constraint():
                found.keys.append((self._unnamed_key(), self.constraint("GROUP BY")))
            elif found.keys:
                return
            else:
                raise self.error("a variable, a function or (expression AS ?variable) after GROUP BY")

    def _group_key(self) -> tuple[Variable, Expression]:
        expression = self.expression()
        if self.accept(")"):
            return self._unnamed_key(), expression
        self.expect("AS", "')', or AS and a variable")
        token = self.token
        variable = self.variable("a variable after AS")
        if variable in self.in_scope:
            raise self.error("a variable after AS that the query has not used before", token)
        self.expect(")", "')' after the variable")
        return variable, expression

    def _order_by(self, found: Modifiers) -> None:
        self.expect("BY", "BY after ORDER")
        while True:
            kind = self.token.kind
            if kind in ("ASC", "DESC"):
                self.advance()
                self.expect("(", f"'(' after {kind}")
                found.order.append((self.expression(), kind == "DESC"))
                self.expect(")", "')' or an operator")
            elif kind == "var":
                found.order.append((self.named(self.advance()), False))
            elif self.at_constraint():
                found.order.append((self.constraint("ORDER BY"), False))
            elif found.order:
                return
            else:
                raise self.error("a variable, ASC(...), DESC(...) or an expression in parentheses after ORDER BY")

    def _limits(self, found: Modifiers) -> None:
        """Read LIMIT and OFFSET, in either order, each at most once."""
        seen: set[str] = set()
        while self.token.kind in ("LIMIT", "OFFSET"):
            clause = self.advance()
            if clause.kind in seen:
                raise self.error(f"only one {clause.kind}", clause)
            seen.add(clause.kind)
            number = self.row_count(f"a whole number of rows, 0 or more, after {clause.kind}")
            if clause.kind == "LIMIT":
                found.limit = number
            else:
                found.offset = number

    # --- putting it together ------------------------------------------------------------------------------------------

    def grouped(self, pattern: Node, select: SelectClause, found: Modifiers) -> Node:
        """Put Group and HAVING around the pattern, if the query groups; check what SELECT may project then."""
        if not (found.group_by or self.aggregates or found.having):
            return pattern
        if select.star is not None:
            raise self.error("variables and aggregates in a query that groups, since '*' names no groups", select.star)
        visible = {variable for variable, _ in found.keys}
        for item in select.items:
            self._check_projection(item, visible)
            visible.add(item.variable)
            if item.expression is not None:
                self.having_aliases += [(item, token) for variable, token in found.asked if variable == item.variable]
        self._sample_ungrouped(found, visible)
        for variable, expression in found.keys:
            if expression is not None:
                pattern = Extend(pattern, variable, expression)
        keys = tuple(dict.fromkeys((*(variable for variable, _ in found.keys), *self.graph_key(bool(found.keys)))))
        made = tuple((variable, aggregate) for aggregate, variable in self.aggregates.items())
        node: Node = Group(pattern, keys, made)
        for condition in found.having:
            node = Filter(condition, node)
        return node

    def _check_projection(self, item: SelectItem, visible: set[Variable]) -> None:
        for variable, token in item.mentions:
            if variable not in visible:
                raise self.error(
                    "a variable of GROUP BY, or one inside of an aggregate", token, f"the ungrouped '{token.text}'"
                )

    def _sample_ungrouped(self, found: Modifiers, visible: set[Variable]) -> None:
        """HAVING and ORDER BY may name other variables, which then stand for any one value of the group."""

        def sampled(expression: Expression) -> Expression:
            replacements = {}
            for variable in sorted(expression_variables(expression, within_exists=False) - visible, key=str):
                if not variable.is_blank:
                    replacements[variable] = self.aggregated(Aggregate("SAMPLE", variable))
            return substitute(expression, replacements) if replacements else expression

        found.having = [sampled(condition) for condition in found.having]
        found.order = [(sampled(condition), descending) for condition, descending in found.order]

    def extended(self, node: Node, select: SelectClause, grouped_keys: set[Variable] | None) -> Node:
        """Bind the expressions of SELECT; each alias must be new."""
        taken = set(self.in_scope) if grouped_keys is None else set(grouped_keys)
        for item in select.items:
            if item.expression is not None:
                if item.variable in taken:
                    raise self.error("a variable after AS that is not in use yet", item.token)
                node = Extend(node, item.variable, item.expression)
            taken.add(item.variable)
        return node

    def sliced(self, node: Node, found: Modifiers) -> Node:
        if found.limit is None and not found.offset:
            return node
        self.graph_key(by_rows=False)
        return Slice(node, found.offset, found.limit)

    def ordered(self, node: Node, found: Modifiers) -> Node:
        return OrderBy(node, tuple(found.order)) if found.order else node

    def _unnamed_key(self) -> Variable:
        self.key_count += 1
        return Variable(f".key{self.key_count}")

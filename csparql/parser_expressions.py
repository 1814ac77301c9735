"""Expressions: operators by precedence, functions, aggregates."""

from __future__ import annotations

from typing import NamedTuple

from wukongs.csparql.algebra import Aggregate, Call, Exists, Expression, Node
from wukongs.csparql.functions import AGGREGATES, ALIASES, FUNCTIONS, arity_text
from wukongs.csparql.parser_base import NUMBERS, TermReader
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.tokens import Token
from wukongs.errors import QuerySyntaxError

COMPARISONS = frozenset(("=", "!=", "<", ">", "<=", ">="))
AN_EXPRESSION = "an expression"


class Mention(NamedTuple):
    """A variable that an expression reads, and where."""

    variable: Variable
    token: Token


class ExpressionParser(TermReader):
    """Reads expressions. Each aggregate goes to `aggregates` and leaves a variable in its place."""

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, base, source)
        self.aggregates: dict[Aggregate, Variable] = {}
        self.aggregates_allowed = False
        self.aggregate_count = 0
        self._calls_at: dict[Call, Token] = {}
        """Where the functions named by IRIs, and TIMESTAMP, are called first."""
        self.mentions: list[Mention] = []
        """The variables read in expressions so far, apart from those inside of aggregates and of EXISTS."""

    def nested_group(self) -> Node:
        """Read a group graph pattern whose variables are in scope nowhere else."""
        raise NotImplementedError

    def triple_term_expression(self) -> Expression:
        """Read a triple term."""
        raise NotImplementedError

    def expression(self) -> Expression:
        operands = [self._conjunction()]
        while self.accept("||"):
            operands.append(self._conjunction())
        return balanced("||", operands)

    def constraint(self, clause: str) -> Expression:
        """Read what may follow FILTER or HAVING: an expression in parentheses, or a function call."""
        if self.token.kind == "(":
            return self._parenthesised()
        if self.at_iri():
            called = self._iri_or_call()
            if isinstance(called, Term):
                raise self.error("'(' after the name of a function")
            return called
        if self.at_constraint():
            return self._primary()
        raise self.error(f"an expression in parentheses or a function after {clause}")

    def at_constraint(self) -> bool:
        kind = self.token.kind
        return (
            kind in FUNCTIONS
            or kind in ("(", "BOUND", "TIMESTAMP", "EXISTS", "NOT", "iri", "pname")
            or kind in AGGREGATES
        )

    def expression_as(self) -> tuple[Expression, Token]:
        """Read `(expression AS ?variable)` from after the opening parenthesis; return expression and variable."""
        expression = self.expression()
        self.expect("AS", "AS and a variable after the expression")
        token = self.expect("var", "a variable after AS")
        self.expect(")", "')' after the variable")
        return expression, token

    def _conjunction(self) -> Expression:
        operands = [self._relation()]
        while self.accept("&&"):
            operands.append(self._relation())
        return balanced("&&", operands)

    def _relation(self) -> Expression:
        left = self._sum()
        kind = self.token.kind
        if kind in COMPARISONS:
            self.advance()
            return Call(kind, (left, self._sum()))
        if kind == "IN":
            self.advance()
            return Call("IN", (left, *self._arguments()))
        if kind == "NOT" and self.peek().kind == "IN":
            self.advance()
            self.advance()
            return Call("NOTIN", (left, *self._arguments()))
        return left

    def _sum(self) -> Expression:
        left = self._product()
        while self.token.kind in ("+", "-"):
            left = Call(self.advance().kind, (left, self._product()))
        return left

    def _product(self) -> Expression:
        left = self._unary()
        while self.token.kind in ("*", "/"):
            left = Call(self.advance().kind, (left, self._unary()))
        return left

    def _unary(self) -> Expression:
        if self.at_signed_number():
            return self.literal()
        if self.accept("!"):
            return Call("!", (self._unary(),))
        if self.accept("-"):
            return Call("NEGATE", (self._unary(),))
        if self.accept("+"):  # the same number, and an error for what is none: as negating twice
            return Call("NEGATE", (Call("NEGATE", (self._unary(),)),))
        return self._primary()

    def _primary(self) -> Expression:
        token = self.token
        kind = token.kind
        if kind == "var":
            self.advance()
            variable = self.named(token)
            self.mentions.append(Mention(variable, token))
            return variable
        if kind == "(":
            return self._parenthesised()
        if kind in NUMBERS or kind in ("string", "TRUE", "FALSE"):
            return self.literal()
        if kind in ("iri", "pname"):
            return self._iri_or_call()
        if kind in AGGREGATES:
            return self._aggregate()
        if kind == "<<(":
            return self.triple_term_expression()
        return self._function()

    def _parenthesised(self) -> Expression:
        self.advance()
        expression = self.expression()
        self.expect(")", "')' or an operator")
        return expression

    def _iri_or_call(self) -> Term | Call:
        token = self.token
        term = self.iri(AN_EXPRESSION)
        if self.token.kind != "(":
            return term
        if self.peek().kind == "DISTINCT":
            raise self.unsupported(f"DISTINCT in a call of {term}", self.peek(), "there are no aggregates with an IRI")
        call = Call(term.text, self._arguments())
        self._calls_at.setdefault(call, token)
        return call

    def _function(self) -> Expression:
        token = self.token
        name = token.kind
        if name == "EXISTS" or (name == "NOT" and self.peek().kind == "EXISTS"):
            return self._exists()
        if name == "BOUND":
            return self._bound()
        if name == "TIMESTAMP":
            return self._timestamp()
        if name in FUNCTIONS:
            self.advance()
            return self._call(token)
        raise self.error(AN_EXPRESSION)

    def _bound(self) -> Call:
        self.advance()
        self.expect("(", "'(' after BOUND")
        token = self.token
        variable = self.variable("a variable in BOUND(...)")
        self.mentions.append(Mention(variable, token))
        self.expect(")", "')' after the variable")
        return Call("BOUND", (variable,))

    def _exists(self) -> Exists:
        negated = self.accept("NOT")
        self.expect("EXISTS", "EXISTS after NOT")
        return Exists(self.nested_group(), negated)

    def _call(self, name: Token) -> Call:
        fewest, most = FUNCTIONS[name.kind]
        arguments = self._arguments()
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            raise self.error(f"{arity_text(name.kind)} for {name.kind}", name, f"{len(arguments)}")
        op = ALIASES.get(name.kind, name.kind)
        if op == "IRI" and self.base is not None:
            arguments = (*arguments, Term(f"<{self.base}>"))
        return Call(op, arguments)

    def _timestamp(self) -> Call:
        name = self.advance()
        call = Call("TIMESTAMP", self._arguments())
        self._calls_at.setdefault(call, name)
        return call

    def refuse_timestamp(self, call: Call, expected: str) -> QuerySyntaxError:
        """Make the error for a call of timestamp() that can have no value."""
        at = self._calls_at.get(call) or next(at for known, at in self._calls_at.items() if known.op == call.op)
        return self.error(expected, at)

    def _arguments(self) -> tuple[Expression, ...]:
        """Read `(expression, ...)`, possibly empty."""
        self.expect("(", "'(' and a list of expressions")
        if self.accept(")"):
            return ()
        arguments = [self.expression()]
        while self.accept(","):
            arguments.append(self.expression())
        self.expect(")", "',' or ')' after the expression")
        return tuple(arguments)

    def _aggregate(self) -> Variable:
        name = self.advance()
        if not self.aggregates_allowed:
            raise self.error("no aggregate here (only in SELECT, HAVING and ORDER BY, and not inside of another)", name)
        mention_count = len(self.mentions)
        self.aggregates_allowed = False
        aggregate = self._aggregate_arguments(name.kind)
        self.aggregates_allowed = True
        del self.mentions[mention_count:]
        return self.aggregated(aggregate)

    def aggregated(self, aggregate: Aggregate) -> Variable:
        """Return the variable that stands for an aggregate; equal ones of one SELECT share theirs."""
        variable = self.aggregates.get(aggregate)
        if variable is None:
            self.aggregate_count += 1
            variable = self.aggregates[aggregate] = Variable(f".agg{self.aggregate_count}")
        return variable

    def _aggregate_arguments(self, name: str) -> Aggregate:
        self.expect("(", f"'(' after {name}")
        distinct = self.accept("DISTINCT")
        argument = None
        if name != "COUNT" or not self.accept("*"):
            argument = self.expression()
        separator = self._separator() if name == "GROUP_CONCAT" else " "
        self.expect(")", f"')' after the argument of {name}")
        return Aggregate(name, argument, distinct, separator)

    def _separator(self) -> str:
        if not self.accept(";"):
            return " "
        self.expect("SEPARATOR", "SEPARATOR after ';'")
        self.expect("=", "'=' after SEPARATOR")
        return self.string("the separator as a string")


def balanced(op: str, operands: list[Expression]) -> Expression:
    """Chain an associative operator as a tree of logarithmic depth, so that long chains need no deep recursion."""
    if len(operands) == 1:
        return operands[0]
    half = (len(operands) + 1) // 2
    return Call(op, (balanced(op, operands[:half]), balanced(op, operands[half:])))

"""The part of the parser that queries and updates share: terms, expressions, patterns, SELECT.

It reads by recursive descent and translates in the same pass (SPARQL 1.1, 18.2). Every error has its place. A pattern
has expressions, and an expression has EXISTS with a pattern: such circles make all of this one class. parser.py,
parser_streams.py and parser_update.py are functions on it.

**GRAPH.** SPARQL evaluates a group inside of a GRAPH block once per graph. Here its triple patterns carry the graph
instead. If no triple pattern makes sure that the graph exists (and binds its variable), a `GraphNames` stands before
the part that depends on it: `GRAPH ?g { OPTIONAL { P } }` is LeftJoin(GraphNames(?g), P in ?g). SPARQL binds ?g only
after the block is evaluated: an expression, a MINUS or a subquery inside of it does not see it. So the block is read
with a hidden variable for its graph. The hidden variable becomes ?g if the block has no such part, and no OPTIONAL that
?g must not reach (`may_be_bound_first`).

**Paths.** Joins and unions of triple patterns stand for a path where they can, so that it is planned with all other
triple patterns: a sequence becomes patterns that share a fresh variable, `^` turns its ends round, `|` is a Union, and
a negated set a filter on the predicate. Repetition and `?` are left to the search, as PathPatterns.

**Triple terms** of SPARQL 1.2 are put into words that the algebra has, so that triple patterns know nothing of them:

    <<( s p o )>>          a triple term: without variables a Term of its own (csparql/terms.py), else a variable, which
                           TripleParts ties to its parts in a pattern, and `put_together` in a template
    << s p o ~ r >>        the reifier r (a new blank node if none is named), with r rdf:reifies <<( s p o )>>
    s p o ~ r {| q z |}    the triple, with r rdf:reifies <<( s p o )>> and r q z

**Subqueries.** A subquery is evaluated by itself and lets out only the variables that it projects (SPARQL 1.1, section
12). Its other variables get names of their own while it is read, so that no rule and no operator has to know about
scopes: `?x` becomes `?x.1` in the first subquery that does not let `?x` out. A look ahead at its SELECT clause tells
which variables it lets out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from wukongs.csparql.algebra import (
    DEFAULT,
    UNIT,
    Aggregate,
    Bgp,
    Call,
    DefaultGraph,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Service,
    Slice,
    StreamWindow,
    TermOrVariable,
    TripleParts,
    TriplePattern,
    Union,
    Values,
    WrittenGraph,
)
from wukongs.csparql.cells import visible
from wukongs.csparql.clock import look
from wukongs.csparql.escapes import EscapeError, unescape_iri, unescape_local, unescape_string
from wukongs.csparql.functions import AGGREGATES, ALIASES, FUNCTIONS, arity_text
from wukongs.csparql.iris import is_absolute, resolve
from wukongs.csparql.nesting import (
    BRACKETS_MAX,
    DEPTH_MAX,
    PATTERNS_MAX,
    SMALL,
    algebra_depth,
    make_room,
    too_deep_token,
)
from wukongs.csparql.paths import (
    LINKS_MAX,
    Alternative,
    Inverse,
    NegatedSet,
    OneOrMore,
    Path,
    PathSequence,
    Repeated,
    ZeroOrMore,
    ZeroOrOne,
    is_repetition,
    links_count,
    repeated,
)
from wukongs.csparql.places import excerpt, place
from wukongs.csparql.scope import (
    always_matches_in,
    certain_variables,
    expression_variables,
    may_be_bound_first,
    possible_variables,
)
from wukongs.csparql.suggestions import suggest
from wukongs.csparql.terms import (
    GRAPH_PREFIX,
    RDF,
    RDF_FIRST,
    RDF_NIL,
    RDF_REIFIES,
    RDF_REST,
    RDF_TYPE,
    XSD,
    Term,
    Variable,
    iri,
    literal,
    triple_term,
)
from wukongs.csparql.tokens import Token
from wukongs.csparql.walk import parts_of, replaced, substitute
from wukongs.errors import DataError, QuerySyntaxError, UnsupportedFeatureError

_NUMBERS = {"integer": XSD + "integer", "decimal": XSD + "decimal", "double": XSD + "double"}
_TOKENS_A_LOOK = (1 << 10) - 1
_SHOWN_CHARACTERS = 40
_NUMBER_DIGITS_MAX = 15
_ROWS_MAX = 10**_NUMBER_DIGITS_MAX
_NOT_IN_IRI = re.compile(r"[\x00-\x20<>\"{}|\\^`]")
_DIRECTIONS = ("ltr", "rtl")
_SUBTAG_SIZE_MAX = 8
_NEEDS_A_TAG = (RDF + "langString", RDF + "dirLangString")
_COMPARISONS = frozenset(("=", "!=", "<", ">", "<=", ">="))
_REPETITIONS: dict[str, Callable[[Path], Path]] = {"*": ZeroOrMore, "+": OneOrMore, "?": ZeroOrOne}
_TERM_KINDS = frozenset(("var", "iri", "pname", "blank", "string", "TRUE", "FALSE", "[", "(", "<<", "<<(", *_NUMBERS))

_AN_EXPRESSION = "an expression"
_A_SUBJECT = "a subject: an IRI, a literal, a variable or a blank node"
_A_PREDICATE = "a predicate: an IRI, a variable or 'a'"
_A_PREDICATE_OR_PATH = "a predicate: an IRI, a variable, 'a' or a property path"
_AN_OBJECT = "an object: an IRI, a literal, a variable or a blank node"
_A_PATH = "a property path: an IRI, 'a', '^', '!' or '('"
_IN_A_SET = "an IRI, 'a' or '^' with one of them, in the negated property set"
_A_BOUND = "how often the path is repeated, such as {2}, {1,4}, {2,} or {,4}"
_A_CELL = "an IRI, a literal or UNDEF"

_Operand = TypeVar("_Operand")
Triple = tuple[TermOrVariable, TermOrVariable, TermOrVariable]


class Mention(NamedTuple):
    """A variable that an expression reads, and where."""

    variable: Variable
    token: Token


class MeasuredPath(NamedTuple):
    """`(path AS ?length)` in the place of a predicate."""

    path: Path
    length: Variable
    token: Token


class TripleTerm(NamedTuple):
    """A triple term with variables, and the variable that stands for it."""

    variable: Variable
    parts: Triple
    token: Token


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


class PatternParser:
    """Reads the tokens of one text. `token` is the one not read yet.

    A method reads the thing that it is named for, from `token` on, and returns its algebra. The attributes keep the
    rest: triples that are in no Bgp yet, the variables in scope, aggregates, places for later errors.
    """

    def __init__(self, text: str, tokens: list[Token], base: str | None, source: str) -> None:
        self.text = text
        self.tokens = tokens
        self.source = source
        self.index = 0
        self.token = tokens[0]

        self.base = base
        self.prefixes: dict[str, str] = {}
        self._iris: dict[str, Term] = {}
        """Those that were read since the last BASE or PREFIX, by their text."""

        self._aggregates: dict[Aggregate, Variable] = {}
        """The aggregates of the SELECT that we are in, each with the variable that it leaves in its place."""
        self._aggregates_allowed = False
        self._aggregate_count = 0
        self._calls_at: dict[Call, Token] = {}
        """Where the functions named by IRIs, and TIMESTAMP, are called first."""
        self._mentions: list[Mention] = []
        """The variables read in expressions so far, apart from those inside of aggregates and of EXISTS."""

        self.graph: WrittenGraph = DEFAULT
        self.patterns: list[TriplePattern] = []
        """The triples that have been read and are in no Bgp or template yet."""
        self._path_nodes: list[Node] = []
        """Their paths that are no triple patterns."""
        self._paths_allowed = False
        """Whether triples may have paths: those of a WHERE clause, not those of a template."""
        self._path_start = 0
        self._path_length: tuple[Variable, Token] | None = None
        """The variable of `(path AS ?length)`, of the path that is being read."""
        self._blank_count = 0
        self.triple_terms: list[TripleTerm] = []
        """Those with variables of the patterns or of the template that are being read."""
        self._triple_term_count = 0
        self.in_data = False
        """Whether triples of INSERT DATA or DELETE DATA are read."""
        self.in_rule = False
        """Whether a rule is read, where a triple that cannot be is a mistake."""
        self.unnamed_reifiers: set[Token] = set()
        """The tokens that stand for a blank node though none is written."""

        self.in_scope: dict[Variable, None] = {}
        """The variables of patterns, in the order in which the text names them."""
        self._scope_number = 0
        """The number of the basic graph pattern that we are in, which is as far as a blank node label reaches."""
        self._scope_count = 0
        self.labels: dict[str, tuple[int, Variable]] = {}

        self.graph_places: dict[str, Token] = {}
        """The IRIs of GRAPH blocks, with the first token of each."""
        self.refused_live: UnsupportedFeatureError | None = None
        """The first feature of the grammar that registered queries and updates cannot have. The error comes when
        somebody asks for answers."""
        self._service_depth = 0
        self._endpoints: set[Variable] = set()
        """The variables that stand for endpoints inside of the SERVICE that is being read."""
        self._graph_count = 0
        self._hides_graph = False
        """Whether the GRAPH block that we are in has a part to which its variable must not be known."""
        self._is_per_graph = False
        """Whether the GRAPH block that we are in counts or cuts rows, so that it must be evaluated graph by graph."""
        self.windows: tuple[StreamWindow, ...] = ()
        """Those that the dataset clause declares, once it has been read."""
        self._in_any_window = False

        self._subqueries: list[tuple[frozenset[str], int]] = []
        """The subqueries that we are in, the innermost last: the names that each one lets out, and its number."""
        self._subquery_count = 0
        self._key_count = 0
        self.having_aliases: list[tuple[SelectItem, Token]] = []
        """The aliases of SELECT that HAVING mentions, where they are unbound, and where it does."""

        if len(tokens) > SMALL:
            make_room()
            deep = too_deep_token(tokens)
            if deep is not None:
                raise self.error(f"a query that is nested less deeply (at most {BRACKETS_MAX} brackets)", deep)
        if base is not None and _NOT_IN_IRI.search(base):
            raise DataError(f"base = {base!r}: expected an IRI, without spaces, quotes or any of < > {{ }} | \\ ^ `")

    # --- tokens, places, errors ---------------------------------------------------------------------------------------

    def advance(self) -> Token:
        """Read one token; the end of the query is never passed."""
        token = self.token
        if token.kind != "end":
            self.index += 1
            self.token = self.tokens[self.index]
            if not self.index & _TOKENS_A_LOOK:
                look()
        return token

    def accept(self, kind: str) -> bool:
        """Read the next token if it is of this kind; say whether it was."""
        if self.token.kind != kind:
            return False
        self.advance()
        return True

    def expect(self, kind: str, expected: str) -> Token:
        if self.token.kind != kind:
            raise self.error(expected)
        return self.advance()

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def whole_number(self, expected: str, minimum: int = 0) -> int:
        """Read an integer without a sign, of at most 15 digits."""
        token = self.token
        if token.kind != "integer" or len(token.text) > _NUMBER_DIGITS_MAX or int(token.text) < minimum:
            raise self.error(expected)
        return int(self.advance().text)

    def _row_count(self, expected: str) -> int:
        """Read an integer of any size. One that is above all possible numbers of rows becomes the largest of them."""
        if self.token.kind != "integer":
            raise self.error(expected)
        digits = self.advance().text.lstrip("0") or "0"
        return int(digits) if len(digits) <= _NUMBER_DIGITS_MAX else _ROWS_MAX

    def check_depth(self, tree: object) -> None:
        """Raise QuerySyntaxError if an algebra has more levels than walks over it may go down."""
        if len(self.tokens) > SMALL and (depth := algebra_depth(tree)) > DEPTH_MAX:
            expected = f"at most {DEPTH_MAX} levels of algebra (an OPTIONAL, a BIND, an operand of a sum is one each)"
            raise self.error(expected, self.tokens[0], f"{depth}")

    def rewind(self, index: int) -> None:
        self.index = index
        self.token = self.tokens[index]

    def place_of(self, token: Token) -> tuple[int, int]:
        """Return the line and column of a token, both from 1."""
        return place(self.text, token.start)

    def error(self, expected: str, token: Token | None = None, found: str = "") -> QuerySyntaxError:
        """Make the error for a token (the next one if none is given) that must not stand there."""
        token = token or self.token
        suggestion = suggest(self.text, self.tokens, token, expected, self.prefixes)
        if not found:
            shown = token.text if len(token.text) <= _SHOWN_CHARACTERS else token.text[:_SHOWN_CHARACTERS] + "..."
            found = "the end of the query" if token.kind == "end" else f"'{visible(shown)}'"
        line, column = self.place_of(token)
        underlined = excerpt(self.text, token.start, len(token.text))
        return QuerySyntaxError(expected, found, line, column, self.source, underlined, suggestion)

    def unsupported(self, feature: str, token: Token | None = None, advice: str = "") -> UnsupportedFeatureError:
        token = token or self.token
        line, column = self.place_of(token)
        underlined = excerpt(self.text, token.start, len(token.text))
        return UnsupportedFeatureError(feature, line, column, advice, self.source, underlined)

    # --- prologue and terms -------------------------------------------------------------------------------------------

    def prologue(self) -> None:
        """Read any number of BASE and PREFIX."""
        while True:
            if self.accept("BASE"):
                self._base()
                self._iris.clear()
            elif self.accept("PREFIX"):
                self._prefix()
                self._iris.clear()
            elif self.accept("VERSION"):
                self._version()
            else:
                return

    def _version(self) -> None:
        """Read the VERSION of SPARQL 1.2. It changes nothing: a feature that we lack is refused where it stands."""
        if self.token.text.startswith(('"""', "'''")):
            raise self.error("the version between single quotation marks, such as VERSION '1.1'")
        self.string("a version as a string, such as VERSION '1.1'")

    def _base(self) -> None:
        token = self.token
        if token.kind != "iri":
            raise self.error("an IRI in angle brackets after BASE")
        base = self.iri_value("an IRI in angle brackets after BASE")
        if not is_absolute(base):
            raise self.error("an absolute IRI such as <http://example.org/> after BASE", token)
        self.base = base

    def _prefix(self) -> None:
        token = self.token
        if token.kind != "pname" or token.text.find(":") != len(token.text) - 1:
            raise self.error("a prefix that ends in a colon, such as ex:, after PREFIX")
        self.advance()
        if self.token.kind != "iri":
            raise self.error(f"an IRI in angle brackets after PREFIX {token.text}")
        self.prefixes[token.text[:-1]] = self.iri_value("an IRI")

    def at_iri(self) -> bool:
        return self.token.kind in ("iri", "pname")

    def iri(self, expected: str) -> Term:
        text = self.token.text
        known = self._iris.get(text)
        if known is None:
            known = self._iris[text] = Term(f"<{self.iri_value(expected)}>")
        else:
            self.advance()
        return known

    def graph_name(self, expected: str) -> Term:
        """Read the name of a graph: an IRI, or <_:label> for the blank node that answers report under this label."""
        return iri(self.iri_value(expected))

    def iri_value(self, expected: str) -> str:
        """Read `<iri>` or `prefix:local` and return the IRI, resolved, without brackets."""
        token = self.token
        if token.kind == "iri":
            self.advance()
            return resolve(self.base, self._unescape_iri(token))
        if token.kind == "pname":
            self.advance()
            prefix, _, local = token.text.partition(":")
            if prefix not in self.prefixes:
                raise self.error("a prefix that the query declares", token)
            return self.prefixes[prefix] + unescape_local(local)
        raise self.error(expected)

    def _unescape_iri(self, token: Token) -> str:
        try:
            return unescape_iri(token.text[1:-1])
        except EscapeError as problem:
            at = Token("iri", problem.escape, token.start + 1 + problem.offset)
            raise self.error("an escape for a character that an IRI may hold", at) from None

    def _expected_variable(self, expected: str) -> Variable:
        return self.named(self.expect("var", expected))

    def named(self, token: Token) -> Variable:
        """Return the variable that a token names. A subquery has a variable of its own for each name that it does not
        let out. A dot cannot stand in a name of the text, so no other variable is called `?x.2`."""
        name = token.text[1:]
        for let_out, number in reversed(self._subqueries):
            if name not in let_out:
                return Variable(f"{name}.{number}")
        return Variable(name)

    def at_literal(self) -> bool:
        kind = self.token.kind
        return kind == "string" or kind in _NUMBERS or kind in ("TRUE", "FALSE") or self._at_signed_number()

    def _at_signed_number(self) -> bool:
        """Whether a sign stands next, with a number right behind it (no blank between)."""
        if self.token.kind not in ("+", "-"):
            return False
        following = self.peek()
        return following.kind in _NUMBERS and following.start == self.token.end

    def literal(self) -> Term:
        """Read a string with its tag or datatype, a number (its digits kept to the letter) or a boolean."""
        if self.token.kind == "string":
            return self._string_literal()
        sign = self.advance().text if self.token.kind in ("+", "-") else ""
        token = self.advance()
        if token.kind in _NUMBERS:
            return literal(sign + token.text, _NUMBERS[token.kind])
        return literal(token.kind.lower(), XSD + "boolean")

    def _string_literal(self) -> Term:
        lexical = self.string("a string")
        if self.token.kind == "lang":
            tag, is_directed, direction = self.token.text[1:].partition("--")
            if max(map(len, tag.split("-"))) > _SUBTAG_SIZE_MAX:  # RFC 5646, 2.1
                raise self.error(f"a language tag whose parts have at most {_SUBTAG_SIZE_MAX} letters")
            if is_directed:
                if direction not in _DIRECTIONS:
                    raise self.error("a base direction, --ltr or --rtl, behind the language tag")
                tag = f"{tag}--{direction}"
            self.advance()
            return literal(lexical, language=tag)
        if self.accept("^^"):
            token = self.token
            datatype = self.iri_value("a datatype IRI after ^^")
            if datatype in _NEEDS_A_TAG:
                raise self.error(f"a language tag in place of the datatype {datatype}", token)
            return literal(lexical, datatype)
        return literal(lexical)

    def string(self, expected: str) -> str:
        """Read a string in any of its four forms and return its text."""
        token = self.expect("string", expected)
        quotes = 3 if token.text.startswith(('"""', "'''")) else 1
        try:
            return unescape_string(token.text[quotes:-quotes])
        except EscapeError as problem:
            at = Token("string", problem.escape, token.start + quotes + problem.offset)
            raise self.error(r"an escape such as \n, \" or \u00E9 in the string", at) from None

    # --- expressions --------------------------------------------------------------------------------------------------

    def _expression(self) -> Expression:
        operands = [self._conjunction()]
        while self.accept("||"):
            operands.append(self._conjunction())
        return _balanced(_either, operands)

    def _constraint(self, clause: str) -> Expression:
        """Read the condition of FILTER or HAVING: an expression in parentheses, or a function call."""
        if self.token.kind == "(":
            return self._parenthesised()
        if self.at_iri():
            called = self._iri_or_call()
            if isinstance(called, Term):
                raise self.error("'(' after the name of a function")
            return called
        if self._at_constraint():
            return self._primary()
        raise self.error(f"an expression in parentheses or a function after {clause}")

    def _at_constraint(self) -> bool:
        kind = self.token.kind
        return (
            kind in FUNCTIONS
            or kind in ("(", "BOUND", "TIMESTAMP", "EXISTS", "NOT", "iri", "pname")
            or kind in AGGREGATES
        )

    def _expression_as(self) -> tuple[Expression, Token]:
        """Read `(expression AS ?variable)` from after the opening parenthesis; return expression and variable."""
        expression = self._expression()
        self.expect("AS", "AS and a variable after the expression")
        token = self.expect("var", "a variable after AS")
        self.expect(")", "')' after the variable")
        return expression, token

    def _conjunction(self) -> Expression:
        operands = [self._relation()]
        while self.accept("&&"):
            operands.append(self._relation())
        return _balanced(_both, operands)

    def _relation(self) -> Expression:
        left = self._sum()
        kind = self.token.kind
        if kind in _COMPARISONS:
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
        if self._at_signed_number():
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
            self._mentions.append(Mention(variable, token))
            return variable
        if kind == "(":
            return self._parenthesised()
        if kind in _NUMBERS or kind in ("string", "TRUE", "FALSE"):
            return self.literal()
        if kind in ("iri", "pname"):
            return self._iri_or_call()
        if kind in AGGREGATES:
            return self._aggregate()
        if kind == "<<(":
            return self._triple_term_expression()
        return self._function()

    def _parenthesised(self) -> Expression:
        self.advance()
        expression = self._expression()
        self.expect(")", "')' or an operator")
        return expression

    def _iri_or_call(self) -> Term | Call:
        token = self.token
        term = self.iri(_AN_EXPRESSION)
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
        raise self.error(_AN_EXPRESSION)

    def _bound(self) -> Call:
        self.advance()
        self.expect("(", "'(' after BOUND")
        token = self.token
        variable = self._expected_variable("a variable in BOUND(...)")
        self._mentions.append(Mention(variable, token))
        self.expect(")", "')' after the variable")
        return Call("BOUND", (variable,))

    def _exists(self) -> Exists:
        negated = self.accept("NOT")
        self.expect("EXISTS", "EXISTS after NOT")
        return Exists(self._nested_group(), negated)

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
        arguments = [self._expression()]
        while self.accept(","):
            arguments.append(self._expression())
        self.expect(")", "',' or ')' after the expression")
        return tuple(arguments)

    def _aggregate(self) -> Variable:
        name = self.advance()
        if not self._aggregates_allowed:
            raise self.error("no aggregate here (only in SELECT, HAVING and ORDER BY, and not inside of another)", name)
        mention_count = len(self._mentions)
        self._aggregates_allowed = False
        aggregate = self._aggregate_arguments(name.kind)
        self._aggregates_allowed = True
        del self._mentions[mention_count:]
        return self._aggregated(aggregate)

    def _aggregated(self, aggregate: Aggregate) -> Variable:
        """Return the variable that stands for an aggregate; equal ones of one SELECT share theirs."""
        variable = self._aggregates.get(aggregate)
        if variable is None:
            self._aggregate_count += 1
            variable = self._aggregates[aggregate] = Variable(f".agg{self._aggregate_count}")
        return variable

    def _aggregate_arguments(self, name: str) -> Aggregate:
        self.expect("(", f"'(' after {name}")
        distinct = self.accept("DISTINCT")
        argument = None
        if name != "COUNT" or not self.accept("*"):
            argument = self._expression()
        separator = self._separator() if name == "GROUP_CONCAT" else " "
        self.expect(")", f"')' after the argument of {name}")
        return Aggregate(name, argument, distinct, separator)

    def _separator(self) -> str:
        if not self.accept(";"):
            return " "
        self.expect("SEPARATOR", "SEPARATOR after ';'")
        self.expect("=", "'=' after SEPARATOR")
        return self.string("the separator as a string")

    # --- property paths (SPARQL 1.1, productions 88 to 96; their translation: 18.2.2.3, 18.2.2.4, 18.4) ---------------

    def _fresh_blank(self) -> Variable:
        self._blank_count += 1
        return Variable(f".blank{self._blank_count}")

    def _path(self) -> Path | MeasuredPath:
        """Read a path; a single IRI is one too."""
        token, self._path_start, self._path_length = self.token, self.index, None
        found = self._path_alternative()
        if not isinstance(found, Term) and not self._paths_allowed:
            raise self.error("an IRI, a variable or 'a' as the predicate of a template", token, "a property path")
        count = 1 if isinstance(found, Term) else links_count(found)
        if count > LINKS_MAX and any(isinstance(part, Repeated) for part in parts_of(found)):
            expected = f"a path of at most {LINKS_MAX} links, with its repetitions {{n,m}} written out"
            raise self.error(expected, token, f"one of {count}")
        return found if self._path_length is None else MeasuredPath(found, *self._path_length)

    def _path_alternative(self) -> Path:
        branches = [self._path_sequence()]
        while self.accept("|"):
            branches.append(self._path_sequence())
        return _balanced(Alternative, branches)

    def _path_sequence(self) -> Path:
        parts = [self._path_element()]
        while self.accept("/"):
            parts.append(self._path_element())
        return _balanced(PathSequence, parts)

    def _path_element(self) -> Path:
        if self.accept("^"):
            return Inverse(self._path_repeated())
        return self._path_repeated()

    def _path_repeated(self) -> Path:
        found = self._path_primary()
        if self.accept("{"):
            return self._bounded(found)
        make = _REPETITIONS.get(self.token.kind)
        if make is None or self._at_signed_number():
            return found
        self.advance()
        return make(found)

    def _bounded(self, path: Path) -> Path:
        """Read the bounds of a repetition: an extension, as the working drafts of SPARQL 1.1 had it."""
        has_low = self.token.kind != ","
        low = self.whole_number(_A_BOUND) if has_low else 0
        high: int | None = low
        if self.accept(","):
            high = None
            if not (has_low and self.token.kind == "}"):
                expected = f"a number of at least {low} and at most 15 digits" if low else _A_BOUND
                high = self.whole_number(expected, low)
        self.expect("}", "'}' after the bounds of the repetition")
        return repeated(path, low, high)

    def _path_primary(self) -> Path:
        if self.accept("!"):
            return self._negated_set()
        if self.accept("("):
            start = self.index - 1
            found = self._path_alternative()
            if self.token.kind == "AS":
                return self._measured(found, start)
            self.expect(")", "')', or '/', '|', '*', '+', '?' or '{' to go on with the path")
            return found
        return self._path_link(_A_PATH)

    def _measured(self, path: Path, start: int) -> Path:
        """Read `AS ?length)` behind a path: an extension. start: the index of the '(' before the path."""
        if start != self._path_start:
            raise self.error("no AS in a part of a path: (path AS ?length) is a whole predicate")
        if not is_repetition(path):
            expected = "a repetition with '*', '+', '?' or '{n,m}' before AS: other paths have one length"
            raise self.error(expected, found="another path")
        self.advance()
        token = self.token
        self._path_length = self._expected_variable("a variable for the length of a shortest path after AS"), token
        self.in_scope[self._path_length[0]] = None
        self.expect(")", "')' after the variable")
        if self.token.kind in "/|{" or (self.token.kind in _REPETITIONS and not self._at_signed_number()):
            raise self.error("an object: (path AS ?length) is a whole predicate, and no part of a path")
        return path

    def _path_link(self, expected: str) -> Term:
        if self.token.text == "a":
            self.advance()
            return RDF_TYPE
        if self.at_iri():
            return self.iri(expected)
        raise self.error(expected)

    def _negated_set(self) -> NegatedSet:
        members: list[tuple[bool, Term]] = []
        if not self.accept("("):
            members.append(self._set_member())
        elif not self.accept(")"):
            members.append(self._set_member())
            while self.accept("|"):
                members.append(self._set_member())
            self.expect(")", "')' or '|' in the negated property set")
        forward = tuple(dict.fromkeys(term for is_inverse, term in members if not is_inverse))
        inverse = tuple(dict.fromkeys(term for is_inverse, term in members if is_inverse))
        return NegatedSet(forward if forward or not inverse else None, inverse or None)

    def _set_member(self) -> tuple[bool, Term]:
        is_inverse = self.accept("^")
        return is_inverse, self._path_link(_IN_A_SET)

    def _add_path(self, subject: TermOrVariable, path: Path | MeasuredPath, object_: TermOrVariable) -> None:
        """Add the patterns of a path between two ends to the group that is being read."""
        if isinstance(path, MeasuredPath):
            self._add_measured(subject, path, object_)
            return
        for part in self._translated(subject, path, object_):
            if isinstance(part, TriplePattern):
                self.patterns.append(part)
            else:
                self._path_nodes.append(part)

    def _add_measured(self, subject: TermOrVariable, measured: MeasuredPath, object_: TermOrVariable) -> None:
        path, length, token = measured
        if length in (subject, object_):
            raise self.error("a variable after AS that is no end of the path", token)
        while isinstance(path, Inverse):
            path, subject, object_ = path.path, object_, subject
        self._path_nodes.append(PathPattern(subject, path, object_, self.graph, length))

    def _translated(
        self, subject: TermOrVariable, path: Path, object_: TermOrVariable
    ) -> Iterable[TriplePattern | Node]:
        match path:
            case Term():
                return (TriplePattern(subject, path, object_, self.graph),)
            case Inverse(path=inner):
                return self._translated(object_, inner, subject)
            case PathSequence(first=first, second=second):
                between = self._fresh_blank()
                return (*self._translated(subject, first, between), *self._translated(between, second, object_))
            case Alternative(first=first, second=second):
                branches = self._translated(subject, first, object_), self._translated(subject, second, object_)
                return (Union(*map(_joined, branches)),)
            case NegatedSet(forward=forward, inverse=inverse):
                sides = []
                if forward is not None:
                    sides.append(self._other_than(subject, forward, object_))
                if inverse is not None:
                    sides.append(self._other_than(object_, inverse, subject))
                return (sides[0] if len(sides) == 1 else Union(*sides),)
            case Repeated(path=Term() as link, low=1, high=1):
                return (TriplePattern(subject, link, object_, self.graph),)
            case _:
                return (PathPattern(subject, path, object_, self.graph),)

    def _other_than(self, subject: TermOrVariable, excluded: tuple[Term, ...], object_: TermOrVariable) -> Node:
        """One solution for each triple whose predicate is not excluded."""
        predicate = self._fresh_blank()
        triple = Bgp((TriplePattern(subject, predicate, object_, self.graph),))
        return Filter(Call("NOTIN", (predicate, *excluded)), triple) if excluded else triple

    # --- triples ------------------------------------------------------------------------------------------------------

    def at_triples(self) -> bool:
        return self.token.kind in _TERM_KINDS or self._at_signed_number()

    def triples_block(self) -> None:
        """Read triples separated by full stops, with or without a last one."""
        while True:
            self._triples_same_subject()
            if not self.accept("."):
                if self.at_triples():
                    raise self.error("'.', ';' or ',' before what follows the triple")
                return
            if not self.at_triples():
                return

    def _triples_same_subject(self) -> None:
        subject: TermOrVariable
        if self.token.kind == "[" and self.peek().kind != "]":
            subject = self._property_list_node()
            if self._at_verb():
                self._property_list(subject)
        elif self.token.kind == "(" and self.peek().kind != ")":
            subject = self._collection()
            if self._at_verb():
                self._property_list(subject)
        elif self.token.kind == "<<":
            subject = self._reified_triple()
            if self._at_verb():
                self._property_list(subject)
        else:
            self._check_subject()
            self._property_list(self._variable_or_term(_A_SUBJECT))

    def _at_verb(self) -> bool:
        token = self.token
        return token.kind in ("var", "iri", "pname", "^", "!", "(") or token.text == "a"

    def _property_list(self, subject: TermOrVariable) -> None:
        """Read `predicate object, object; predicate object ...` for a subject; at least one."""
        while True:
            start = self.index
            predicate = self._verb()
            is_plain = self.index == start + 1
            while True:
                object_ = self._object()
                if isinstance(predicate, Variable | Term):
                    self.patterns.append(TriplePattern(subject, predicate, object_, self.graph))
                    if is_plain and self.token.kind in ("~", "{|"):
                        self._annotations(subject, predicate, object_)
                else:
                    self._add_path(subject, predicate, object_)
                if self.token.kind in ("~", "{|"):
                    raise self.error("no reifier or annotation behind a property path, which is no triple")
                if not self.accept(","):
                    break
            if self.token.kind != ";":
                return
            while self.accept(";"):
                pass
            if not self._at_verb():
                return

    def _verb(self) -> Path | MeasuredPath | Variable:
        if self.token.kind == "var":
            return self._variable()
        if self.at_iri() and self.peek().kind in _TERM_KINDS:
            return self.iri(_A_PREDICATE)  # as most predicates are; the grammar of paths takes twice as long
        if not self._at_verb():
            raise self.error(_A_PREDICATE_OR_PATH if self._paths_allowed else _A_PREDICATE)
        return self._path()

    def _object(self) -> TermOrVariable:
        if self.token.kind == "[" and self.peek().kind != "]":
            return self._property_list_node()
        if self.token.kind == "(" and self.peek().kind != ")":
            return self._collection()
        if self.token.kind == "<<":
            return self._reified_triple()
        return self._variable_or_term(_AN_OBJECT)

    def _variable_or_term(self, expected: str) -> TermOrVariable:
        """Read a variable, IRI, literal, blank node, `[]`, `()` or triple term."""
        kind = self.token.kind
        if kind == "var":
            return self._variable()
        if kind in ("iri", "pname"):
            return self.iri(expected)
        if kind == "blank":
            return self.labelled(self.advance())
        if kind == "[":
            self.advance()
            self.expect("]", "']'")
            return self._fresh_blank()
        if kind == "(":
            self.advance()
            self.expect(")", "')'")
            return RDF_NIL
        if self.at_literal():
            return self.literal()
        if kind == "<<(":
            return self._triple_term()
        raise self.error(expected)

    def _variable(self) -> Variable:
        variable = self.named(self.advance())
        self.in_scope[variable] = None
        return variable

    def new_scope(self) -> None:
        """Begin another basic graph pattern."""
        self._scope_count += 1
        self._scope_number = self._scope_count

    def labelled(self, token: Token) -> Variable:
        scope_number, variable = self.labels.get(token.text, (self._scope_number, None))
        if variable is None:
            variable = self._fresh_blank()
            self.labels[token.text] = scope_number, variable
        elif scope_number != self._scope_number:
            expected = "a blank node label that is new to this basic graph pattern"
            raise self.error(expected, token, f"'{token.text}', which is used in another one; a variable can be shared")
        return variable

    def _property_list_node(self) -> Variable:
        """Read `[ predicate object; ... ]`."""
        self.expect("[", "'['")
        node = self._fresh_blank()
        self._property_list(node)
        self.expect("]", "';', ',' or ']'")
        return node

    def _collection(self) -> Variable:
        """Read `( object ... )` with at least one object, into rdf:first and rdf:rest."""
        self.expect("(", "'('")
        head = cell = self._fresh_blank()
        while True:
            self.patterns.append(TriplePattern(cell, RDF_FIRST, self._object(), self.graph))
            if self.accept(")"):
                self.patterns.append(TriplePattern(cell, RDF_REST, RDF_NIL, self.graph))
                return head
            following = self._fresh_blank()
            self.patterns.append(TriplePattern(cell, RDF_REST, following, self.graph))
            cell = following

    # --- triple terms, reified triples, annotations (SPARQL 1.2) ------------------------------------------------------

    def _check_subject(self) -> None:
        """Refuse the next token as a subject of data, since RDF has no such subject."""
        if (self.in_data or self.in_rule) and (self.at_literal() or self.token.kind == "<<("):
            where = "DATA" if self.in_data else "a rule"
            raise self.error(f"a subject that RDF can have, an IRI or a blank node, in {where}")

    def _triple_term(self) -> TermOrVariable:
        """Read `<<( s p o )>>`; return the term, or the variable that stands for it."""
        token = self.advance()
        self._check_subject()
        subject = self._part("a subject in the triple term: an IRI, a variable, a blank node or a triple term")
        predicate = self._plain_verb()
        object_ = self._part("an object in the triple term: an IRI, a literal, a variable, a blank node, a triple term")
        self.expect(")>>", "')>>' to close the triple term")
        return self._made((subject, predicate, object_), token)

    def _part(self, expected: str) -> TermOrVariable:
        if self.token.kind == "<<(":
            return self._triple_term()
        if self.token.kind == "[" and self.peek().kind != "]":
            raise self.error("'[]': a blank node inside of a triple has no properties", self.peek())
        if self.token.kind in ("(", "<<"):
            raise self.error(expected)
        return self._variable_or_term(expected)

    def _plain_verb(self) -> TermOrVariable:
        token = self.token
        if token.text == "a":
            self.advance()
            return RDF_TYPE
        if token.kind not in ("var", "iri", "pname"):
            raise self.error(_A_PREDICATE)
        return self._variable_or_term(_A_PREDICATE)

    def _made(self, parts: Triple, token: Token) -> TermOrVariable:
        """Return the term or variable that stands for a triple term in the triples that are being read."""
        terms = [part.text for part in parts if isinstance(part, Term)]
        if len(terms) == 3:
            return triple_term(*terms)
        self._mentions.extend(Mention(part, token) for part in parts if isinstance(part, Variable))
        self._triple_term_count += 1
        variable = Variable(f"triple.t{self._triple_term_count}")  # no name of the text has a dot, no subquery's a 't'
        self.triple_terms.append(TripleTerm(variable, parts, token))
        return variable

    def _reified_triple(self) -> TermOrVariable:
        """Read `<< s p o >>` or `<< s p o ~ r >>`; return the reifier."""
        token = self.advance()
        self._check_subject()
        subject = self._reified_part("a subject: an IRI, a variable, a blank node, a triple term or a reified triple")
        predicate = self._plain_verb()
        object_ = self._reified_part("an object: an IRI, a literal, a variable, a blank node or a triple")
        reifier = self._reifier() if self.token.kind == "~" else self._unnamed(token)
        self.expect(">>", "'~' and a reifier, or '>>' to close the reified triple")
        self._reify(reifier, (subject, predicate, object_), token)
        return reifier

    def _reified_part(self, expected: str) -> TermOrVariable:
        return self._reified_triple() if self.token.kind == "<<" else self._part(expected)

    def _unnamed(self, token: Token) -> Variable:
        self.unnamed_reifiers.add(token)
        return self._fresh_blank()

    def _reifier(self) -> TermOrVariable:
        """Read `~` and the reifier, if it is named."""
        token = self.advance()
        if self.token.kind in ("var", "iri", "pname", "blank", "["):
            return self._part("a reifier: an IRI, a variable or a blank node")
        return self._unnamed(token)

    def _reify(self, reifier: TermOrVariable, parts: Triple, token: Token) -> None:
        self.patterns.append(TriplePattern(reifier, RDF_REIFIES, self._made(parts, token), self.graph))

    def _annotations(self, subject: TermOrVariable, predicate: TermOrVariable, object_: TermOrVariable) -> None:
        """Read the reifiers and annotation blocks behind a triple."""
        reifier: TermOrVariable | None = None
        while self.token.kind in ("~", "{|"):
            token = self.token
            if token.kind == "~":
                reifier = self._reifier()
                self._reify(reifier, (subject, predicate, object_), token)
                continue
            self.advance()
            if reifier is None:
                reifier = self._unnamed(token)
                self._reify(reifier, (subject, predicate, object_), token)
            self._property_list(reifier)
            self.expect("|}", "';', ',' or '|}'")
            reifier = None

    def with_triple_terms(self, patterns: tuple[TriplePattern, ...], path_nodes: list[Node]) -> Node:
        """Return patterns joined with the nodes that tie their triple terms to the parts."""
        node: Node = Bgp(patterns)
        tied = [TripleParts(found.variable, *found.parts) for found in self.triple_terms]
        self.triple_terms = []
        for part in (*path_nodes, *tied):
            node = join(node, part)
        return node

    def _triple_term_data(self) -> Term:
        """Read `<<( s p o )>>` of IRIs and, as the object, a literal or another one."""
        self.advance()
        subject = self.iri("an IRI as the subject of a triple term in VALUES")
        predicate = self._data_verb()
        expected = "an object in VALUES: an IRI, a literal or a triple term"
        if self.token.kind == "<<(":
            object_ = self._triple_term_data()
        else:
            object_ = self.literal() if self.at_literal() else self.iri(expected)
        self.expect(")>>", "')>>' to close the triple term")
        return triple_term(subject.text, predicate.text, object_.text)

    def _data_verb(self) -> Term:
        if self.token.text == "a":
            self.advance()
            return RDF_TYPE
        return self.iri("an IRI or 'a' as the predicate of a triple term in VALUES")

    def _triple_term_expression(self) -> Expression:
        """Read `<<( s p o )>>` of IRIs, variables and, as the object, a literal or another one."""
        self.advance()
        subject = self._expression_part("an IRI or a variable as the subject of a triple term")
        predicate = self._data_verb() if self.token.kind != "var" else self._expression_part(_A_PREDICATE)
        if self.token.kind == "<<(":
            object_ = self._triple_term_expression()
        else:
            object_ = self.literal() if self.at_literal() else self._expression_part(_AN_EXPRESSION)
        self.expect(")>>", "')>>' to close the triple term")
        return Call("TRIPLE", (subject, predicate, object_))

    def _expression_part(self, expected: str) -> Expression:
        if self.token.kind != "var":
            return self.iri(expected)
        token = self.advance()
        variable = self.named(token)
        self._mentions.append(Mention(variable, token))
        return variable

    # --- VALUES -------------------------------------------------------------------------------------------------------

    def _data_block(self) -> Values:
        """Read the rows of VALUES: `?x { 1 2 }` or `(?x ?y) { (1 2) (UNDEF 3) }`."""
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
            return self._triple_term_data()
        raise self.error(expected)

    # --- group graph patterns (SPARQL 1.1, 18.2.2) --------------------------------------------------------------------

    def group(self) -> Node:
        """Read `{ ... }`, with its filters around it."""
        pattern, condition = self._group_parts()
        return pattern if condition is None else Filter(condition, pattern)

    def _nested_group(self) -> Node:
        """Read `{ ... }` for EXISTS or MINUS. Its variables come into scope nowhere else, and the basic graph pattern
        around it goes on behind it."""
        in_scope, scope_number, mention_count = self.in_scope, self._scope_number, len(self._mentions)
        aggregates_allowed, self._aggregates_allowed = self._aggregates_allowed, False
        self.in_scope = {}
        node = self.group()
        self.in_scope, self._scope_number, self._aggregates_allowed = in_scope, scope_number, aggregates_allowed
        del self._mentions[mention_count:]
        self._hides_graph = True
        return node

    def _graph_key(self, by_rows: bool) -> tuple[Variable, ...]:
        """Return the variables that a subquery must keep apart besides its own keys: the graph, if it is a variable
        here.

        by_rows : whether it is enough to look at each row's graph; else the block is evaluated graph by graph.
        """
        if not isinstance(self.graph, Variable):
            return ()
        self._is_per_graph = self._is_per_graph or not by_rows
        return (self.graph,) if by_rows else ()

    def _group_parts(self) -> tuple[Node, Expression | None]:
        """Read `{ ... }`; return its pattern, and the condition of its filters, which OPTIONAL takes as its own."""
        self.expect("{", "'{'")
        outer = self.patterns, self._path_nodes, self.triple_terms, self._paths_allowed
        self.patterns, self._path_nodes, self.triple_terms, self._paths_allowed = [], [], [], True
        self.new_scope()
        node: Node = UNIT
        conditions: list[Expression] = []
        elements = 0
        if self.token.kind == "SELECT":
            node = self._subselect()
            self._hides_graph = True
            if self.token.kind != "}":
                raise self.error("'}' to close the subquery")
        while self.token.kind != "}":
            if self.at_triples():
                self.triples_block()
            elif self.accept("FILTER"):
                conditions.append(self._constraint("FILTER"))
                self.accept(".")
            elif self.token.kind == "end":
                raise self.error("'}' to close the group")
            else:
                elements += 1
                if elements > DEPTH_MAX:
                    raise self.error(f"at most {DEPTH_MAX} parts of one group that are no triples or filters")
                node = self._element(self._flush(node))
                self.accept(".")
                self.new_scope()
        self.advance()
        node = self._anchored(self._flush(node))
        self.patterns, self._path_nodes, self.triple_terms, self._paths_allowed = outer
        self.new_scope()
        return node, _balanced(_both, conditions) if conditions else None

    def _flush(self, node: Node) -> Node:
        """Join the triple patterns and paths read so far to the group."""
        if self.patterns or self.triple_terms:
            if len(self.patterns) > PATTERNS_MAX:
                raise self.error(f"at most {PATTERNS_MAX} triple patterns side by side", found=f"{len(self.patterns)}")
            patterns, self.patterns = tuple(self.patterns), []
            if self.triple_terms:
                path_nodes, self._path_nodes = self._path_nodes, []
                return join(node, self.with_triple_terms(patterns, path_nodes))
            node = join(node, Bgp(patterns))
        for path_node in self._path_nodes:
            node = join(node, path_node)
        self._path_nodes = []
        return node

    def _anchored(self, node: Node) -> Node:
        """See to it that each solution rests on the graph of the GRAPH block that we are in."""
        graph = self.graph
        if isinstance(graph, DefaultGraph) or always_matches_in(node, graph):
            return node
        return join(GraphNames(graph), node)

    def _element(self, node: Node) -> Node:
        """Read one part of a group that is neither triples nor FILTER, and combine it with the parts before it."""
        kind = self.token.kind
        if kind == "{":
            return join(node, self._union())
        if kind == "WINDOW":
            self.advance()
            return join(node, self._window_block())
        if kind == "OPTIONAL":
            self.advance()
            pattern, condition = self._group_parts()
            return LeftJoin(self._anchored(node), pattern, condition)
        if kind == "MINUS":
            self.advance()
            return Minus(self._anchored(node), self._nested_group())
        if kind == "GRAPH":
            self.advance()
            return join(node, self._graph_block())
        if kind == "BIND":
            self.advance()
            return self._bind(node)
        if kind == "VALUES":
            self.advance()
            return join(node, self._data_block())
        if kind == "SERVICE":
            return join(node, self._service())
        raise self.error("a triple pattern, FILTER, OPTIONAL, UNION, MINUS, GRAPH, BIND, VALUES, a group or '}'")

    def _union(self) -> Node:
        branches = [self.group()]
        while self.accept("UNION"):
            branches.append(self.group())
        return _balanced(Union, branches)

    def _bind(self, node: Node) -> Node:
        self.expect("(", "'(' after BIND")
        expression, token = self._expression_as()
        variable = self.named(token)
        if variable in possible_variables(node):
            raise self.error("a variable after AS that the group has not used before", token)
        self.in_scope[variable] = None
        self._mentions.append(Mention(variable, token))  # the variable of a GRAPH block around it is another one
        return Extend(self._anchored(node), variable, expression)

    def _graph_block(self) -> Node:
        outer_graph = self.graph
        if self.token.kind == "var":
            node = self._variable_graph(self.named(self.token))
        else:
            token = self.token
            self.graph = self.graph_name("an IRI or a variable after GRAPH")
            self.graph_places.setdefault(self.graph.name, token)
            node = self.group()
        self.graph = outer_graph
        return node

    def _service(self) -> Node:
        token = self.advance()
        if self.refused_live is None:
            advice = "load what the other endpoint has, and match it here: only one-shot queries wait for it"
            self.refused_live = self.unsupported("SERVICE in a continuous query or an update", token, advice)
        is_silent = self.accept("SILENT")
        endpoint: TermOrVariable
        if self.token.kind == "var":
            endpoint = self.named(self.advance())
            self.in_scope[endpoint] = None
            if self._service_depth:
                self._endpoints.add(endpoint)
        else:
            endpoint = self.iri("an IRI or a variable after SERVICE")
        outer_graph, self.graph = self.graph, DEFAULT
        self._service_depth += 1
        start = self.token.start
        node = self.group()
        end = self.tokens[self.index - 1].end
        self._service_depth -= 1
        self.graph = outer_graph
        if self._service_depth:
            return node  # what is inside goes to the endpoint around it, as it is written
        bound = possible_variables(node) | (self._endpoints & self.in_scope.keys())
        self._endpoints.clear()
        variables = tuple(one for one in sorted(bound, key=str) if not one.is_blank)
        names = tuple(one.name.partition(".")[0] for one in variables)
        return Service(endpoint, self.text[start:end], self.prologue_text(), names, variables, is_silent)

    def prologue_text(self) -> str:
        """Return BASE and the prefixes that hold here, as text."""
        base = "" if self.base is None else f"BASE <{self.base}>\n"
        return base + "".join(f"PREFIX {name}: <{value}>\n" for name, value in self.prefixes.items())

    def _variable_graph(self, name: Variable) -> Node:
        self.advance()
        self.in_scope[name] = None
        outer_hides, outer_per_graph = self._hides_graph, self._is_per_graph
        self._hides_graph = self._is_per_graph = False
        mention_count = len(self._mentions)
        self._graph_count += 1
        hidden = Variable(f"{GRAPH_PREFIX}{self._graph_count}")
        self.graph = hidden
        node = self.group()
        hides, per_graph = self._hides_graph, self._is_per_graph
        self._hides_graph, self._is_per_graph = outer_hides or hides, outer_per_graph
        if per_graph:
            node = PerGraph(hidden, node)
        elif (
            not hides
            and all(mention.variable != name for mention in self._mentions[mention_count:])
            and may_be_bound_first(node, name)
        ):
            return replaced(node, {hidden: name})
        if name not in possible_variables(node):
            return Extend(node, name, hidden)
        if name in certain_variables(node):
            return Filter(Call("SAMETERM", (name, hidden)), node)
        return Join(node, Extend(GraphNames(hidden), name, hidden))

    # --- WINDOW blocks ------------------------------------------------------------------------------------------------

    def _window_block(self) -> Node:
        """Read the rest of `WINDOW <w> { ... }` or `WINDOW ?w { ... }`."""
        token = self.token
        names = list(dict.fromkeys(window.name for window in self.windows))
        declared = f"declared: {', '.join(f'<{name}>' for name in names) or 'none'}"
        if token.kind == "var":
            if not names:
                raise self.error("a window that WINDOW ?w can range over: FROM NAMED WINDOW <w> ON <stream> [...]")
            return self._any_window(self._variable(), names)
        name = self.iri_value("an IRI or a variable after WINDOW")
        if name not in names:
            raise self.error(f"a window that FROM [NAMED] WINDOW or STREAM declares ({declared})", token)
        return self._in_window(name)

    def _in_window(self, name: str) -> Node:
        outer_graph, self.graph = self.graph, iri(name)
        node = self.group()
        self.graph = outer_graph
        return node

    def _any_window(self, variable: Variable, names: list[str]) -> Node:
        """Read the block of `WINDOW ?w` once for each window that is declared; a solution says which it is of."""
        if self._in_any_window:
            raise self.unsupported(f"WINDOW ?{variable.name} inside of another WINDOW with a variable")
        self._in_any_window = True
        start, labels = self.index, dict(self.labels)
        branches: list[Node] = []
        for name in names:
            self.rewind(start)
            self.labels = dict(labels)
            node = self._in_window(name)
            if variable in possible_variables(node):
                node = Join(node, Values((variable,), ((iri(name),),)))
            else:
                node = Extend(node, variable, iri(name))
            branches.append(node)
        self._in_any_window = False
        found = branches[0]
        for branch in branches[1:]:
            found = Union(found, branch)
        return found

    # --- SELECT and solution modifiers (SPARQL 1.1, 18.2.4) -----------------------------------------------------------

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
        start, first = len(self._mentions), self.index
        self._aggregates_allowed = True
        expression, token = self._expression_as()
        self._aggregates_allowed = False
        # Behind the expression come AS, the variable and a parenthesis.
        text = self.text[self.tokens[first].start : self.tokens[self.index - 4].end]
        return SelectItem(token, self.named(token), expression, tuple(self._mentions[start:]), " ".join(text.split()))

    def _modifiers(self) -> Modifiers:
        """Read GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET."""
        found = Modifiers()
        if self.accept("GROUP"):
            self._group_by(found)
        self._aggregates_allowed = True
        start = len(self._mentions)
        if self.accept("HAVING"):
            found.having.append(self._constraint("HAVING"))
            while self._at_constraint():
                found.having.append(self._constraint("HAVING"))
        found.asked = self._mentions[start:]
        if self.accept("ORDER"):
            self._order_by(found)
        self._aggregates_allowed = False
        self._limits(found)
        return found

    def _group_by(self, found: Modifiers) -> None:
        self.expect("BY", "BY after GROUP")
        found.group_by = True
        while True:
            if self.token.kind == "var":
                found.keys.append((self.named(self.advance()), None))
            elif self.accept("("):
                found.keys.append(self._group_key(found.keys))
            elif self._at_constraint():
                found.keys.append((self._unnamed_key(), self._constraint("GROUP BY")))
            elif found.keys:
                return
            else:
                raise self.error("a variable, a function or (expression AS ?variable) after GROUP BY")

    def _group_key(self, others: list[tuple[Variable, Expression | None]]) -> tuple[Variable, Expression]:
        expression = self._expression()
        if self.accept(")"):
            return self._unnamed_key(), expression
        self.expect("AS", "')', or AS and a variable")
        token = self.token
        variable = self._expected_variable("a variable after AS")
        if variable in self.in_scope or any(variable == other for other, _ in others):
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
                found.order.append((self._expression(), kind == "DESC"))
                self.expect(")", "')' or an operator")
            elif kind == "var":
                found.order.append((self.named(self.advance()), False))
            elif self._at_constraint():
                found.order.append((self._constraint("ORDER BY"), False))
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
            number = self._row_count(f"a whole number of rows, 0 or more, after {clause.kind}")
            if clause.kind == "LIMIT":
                found.limit = number
            else:
                found.offset = number

    def _grouped(self, pattern: Node, select: SelectClause, found: Modifiers) -> Node:
        """Put Group around the pattern, if the query groups, and HAVING; check that SELECT may project its variables.

        HAVING alone groups nothing: without GROUP BY and aggregates it is a filter (18.2.4.1)."""
        for item in select.items:
            if item.expression is not None:
                self.having_aliases += [(item, token) for variable, token in found.asked if variable == item.variable]
        if self._groups(found):
            pattern = self._group_of(pattern, select, found)
        for condition in found.having:
            pattern = Filter(condition, pattern)
        return pattern

    def _groups(self, found: Modifiers) -> bool:
        return found.group_by or bool(self._aggregates)

    def _group_of(self, pattern: Node, select: SelectClause, found: Modifiers) -> Node:
        if select.star is not None:
            raise self.error("variables and aggregates in a query that groups, since '*' names no groups", select.star)
        visible = {variable for variable, _ in found.keys}
        for item in select.items:
            self._check_projection(item, visible)
            visible.add(item.variable)
        self._sample_ungrouped(found, visible)
        for variable, expression in found.keys:
            if expression is not None:
                pattern = Extend(pattern, variable, expression)
        keys = tuple(dict.fromkeys((*(variable for variable, _ in found.keys), *self._graph_key(bool(found.keys)))))
        made = tuple((variable, aggregate) for aggregate, variable in self._aggregates.items())
        return Group(pattern, keys, made)

    def _check_projection(self, item: SelectItem, visible: set[Variable]) -> None:
        for variable, token in item.mentions:
            if variable not in visible:
                raise self.error(
                    "a variable of GROUP BY, or one inside of an aggregate", token, f"the ungrouped '{token.text}'"
                )

    def _sample_ungrouped(self, found: Modifiers, visible: set[Variable]) -> None:
        """Give a value to other variables that HAVING and ORDER BY name: any one value of the group."""

        def sampled(expression: Expression) -> Expression:
            replacements = {}
            for variable in sorted(expression_variables(expression, within_exists=False) - visible, key=str):
                if not variable.is_blank:
                    replacements[variable] = self._aggregated(Aggregate("SAMPLE", variable))
            return substitute(expression, replacements) if replacements else expression

        found.having = [sampled(condition) for condition in found.having]
        found.order = [(sampled(condition), descending) for condition, descending in found.order]

    def _extended(self, node: Node, select: SelectClause, grouped_keys: set[Variable] | None) -> Node:
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
        self._graph_key(by_rows=False)
        return Slice(node, found.offset, found.limit)

    def ordered(self, node: Node, found: Modifiers) -> Node:
        return OrderBy(node, tuple(found.order)) if found.order else node

    def _unnamed_key(self) -> Variable:
        self._key_count += 1
        return Variable(f".key{self._key_count}")

    # --- SELECT as a whole, at the top and as a subquery --------------------------------------------------------------

    def _subselect(self) -> Node:
        """Read a subquery, from SELECT to the end of its group."""
        self.advance()
        outer_scope, self.in_scope = self.in_scope, {}
        outer_aggregates, self._aggregates = self._aggregates, {}
        mention_count = len(self._mentions)
        visible = self._let_out()
        if visible is not None:
            self._subquery_count += 1
            self._subqueries.append((visible, self._subquery_count))
        clause = self.select_clause()
        pattern = self.where()
        node, variables = self.selected(clause, pattern)
        if visible is not None:
            self._subqueries.pop()
        self._aggregates = outer_aggregates
        self.in_scope = outer_scope | dict.fromkeys(variables)
        del self._mentions[mention_count:]
        return node

    def where(self) -> Node:
        """Read the WHERE clause, whose keyword may be left out."""
        self.accept("WHERE")
        if self.token.kind != "{":
            raise self.error("WHERE or '{'" if self._subqueries else "FROM, WHERE or '{'")
        return self.group()

    def selected(self, clause: SelectClause, pattern: Node) -> tuple[Node, tuple[Variable, ...]]:
        """Read the modifiers and VALUES; return the whole algebra and the variables that SELECT reports."""
        node, found = self.solutions(clause, pattern)
        if clause.star is not None:
            variables = tuple(variable for variable in self.in_scope if not variable.is_blank)
        else:
            variables = tuple(dict.fromkeys(item.variable for item in clause.items))
        node = Project(self.ordered(node, found), (*variables, *self._graph_key(by_rows=True)))
        if clause.distinct:
            node = Distinct(node)
        return self.sliced(node, found), variables

    def solutions(self, clause: SelectClause, pattern: Node) -> tuple[Node, Modifiers]:
        """Read the modifiers and VALUES; put groups, VALUES and the expressions of SELECT around a pattern."""
        found = self._modifiers()
        values = self._data_block() if self.accept("VALUES") else None
        node = self._grouped(pattern, clause, found)
        keys = {variable for variable, _ in found.keys} if self._groups(found) else None
        if values is not None:
            node = join(node, values)
            keys = None if keys is None else keys.union(values.variables)
        return self._extended(node, clause, keys), found

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


# --- algebra ----------------------------------------------------------------------------------------------------------


def join(left: Node, right: Node) -> Node:
    """Join two patterns; the empty pattern vanishes and neighbouring triple patterns become one Bgp."""
    if left == UNIT:
        return right
    if right == UNIT:
        return left
    if isinstance(right, Bgp):
        if isinstance(left, Bgp):
            return Bgp(left.patterns + right.patterns)
        if isinstance(left, Join) and isinstance(left.right, Bgp):
            return Join(left.left, Bgp(left.right.patterns + right.patterns))
    return Join(left, right)


def put_together(
    node: Node, template: tuple[TriplePattern, ...], triple_terms: list[TripleTerm]
) -> tuple[Node, tuple[TriplePattern, ...]]:
    """Bind the variables that stand for the triple terms of a template; return the template that goes with that.

    A blank node inside of a triple term is made in the pattern, by BNODE(), for the whole template."""
    known = {found.variable: found.parts for found in triple_terms}
    blanks: dict[TermOrVariable, Variable] = {}
    for part in (part for parts in known.values() for part in parts):
        if isinstance(part, Variable) and part.is_blank and part not in blanks:
            blanks[part] = Variable(f"triple.b{len(blanks)}")
            node = Extend(node, blanks[part], Call("BNODE", ()))

    def made(part: TermOrVariable) -> Expression:
        parts = known.get(part) if isinstance(part, Variable) else None
        return blanks.get(part, part) if parts is None else Call("TRIPLE", tuple(map(made, parts)))

    for variable in known:
        node = Extend(node, variable, made(variable))
    filled = (
        replace(quad, subject=blanks.get(quad.subject, quad.subject), object=blanks.get(quad.object, quad.object))
        for quad in template
    )
    return node, tuple(filled) if blanks else template


def _joined(parts: Iterable[TriplePattern | Node]) -> Node:
    """Join triple patterns, as one Bgp, and other nodes."""
    parts = tuple(parts)
    patterns = tuple(part for part in parts if isinstance(part, TriplePattern))
    nodes: list[Node] = [Bgp(patterns)] if patterns else []
    nodes += [part for part in parts if not isinstance(part, TriplePattern)]
    node = nodes[0]
    for other in nodes[1:]:
        node = Join(node, other)
    return node


def _balanced(make: Callable[[_Operand, _Operand], _Operand], parts: Sequence[_Operand]) -> _Operand:
    """Combine the parts, in their order, as a tree of logarithmic depth, so that long chains need no deep recursion."""
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return make(_balanced(make, parts[:half]), _balanced(make, parts[half:]))


def _either(one: Expression, other: Expression) -> Expression:
    return Call("||", (one, other))


def _both(one: Expression, other: Expression) -> Expression:
    return Call("&&", (one, other))

"""What every part of the parser stands on: a walk over tokens, errors with their place, and RDF terms."""

from __future__ import annotations

import re

from wukongs.csparql import cells
from wukongs.csparql.escapes import EscapeError, unescape_iri, unescape_local, unescape_string
from wukongs.csparql.iris import is_absolute, resolve
from wukongs.csparql.nesting import BRACKETS_MAX, DEPTH_MAX, SMALL, algebra_depth, make_room, too_deep_token
from wukongs.csparql.places import excerpt, place
from wukongs.csparql.suggestions import suggest
from wukongs.csparql.terms import XSD, Term, Variable, literal
from wukongs.csparql.tokens import Token, tokenize_decoded
from wukongs.errors import DataError, QuerySyntaxError, UnsupportedFeatureError

NUMBERS = {"integer": XSD + "integer", "decimal": XSD + "decimal", "double": XSD + "double"}
_SHOWN_CHARACTERS = 40
_NUMBER_DIGITS_MAX = 15
_ROWS_MAX = 10**_NUMBER_DIGITS_MAX
_NOT_IN_IRI = re.compile(r"[\x00-\x20<>\"{}|\\^`]")
_DIRECTIONS = ("ltr", "rtl")


def check_text(text: object) -> None:
    """Raise TypeError for what is no text."""
    if not isinstance(text, str):
        raise TypeError(f"expected the text of a query or an update as a str, found {type(text).__name__}")


class TokenReader:
    """A walk over the tokens of one query. `token` is the one not read yet."""

    def __init__(self, text: str, source: str) -> None:
        check_text(text)
        self.source = source
        self.prefixes: dict[str, str] = {}
        self.text, self.tokens = self.tokenized(text)
        self.index = 0
        self.token = self.tokens[0]
        if len(self.tokens) > SMALL:
            make_room()
            deep = too_deep_token(self.tokens)
            if deep is not None:
                raise self.error(f"a query that is nested less deeply (at most {BRACKETS_MAX} brackets)", deep)

    def tokenized(self, text: str) -> tuple[str, list[Token]]:
        """Cut the query into tokens; return them with the text that they are pieces of."""
        return tokenize_decoded(text, self.source)

    def advance(self) -> Token:
        """Read one token; the end of the query is never passed."""
        token = self.token
        if token.kind != "end":
            self.index += 1
            self.token = self.tokens[self.index]
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

    def row_count(self, expected: str) -> int:
        """Read an integer of any size; what is above all numbers of rows that can be is the largest of them."""
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
        """Make the error for a token (the next one if none is given) that is not what had to stand there."""
        token = token or self.token
        suggestion = suggest(self.text, self.tokens, token, expected, self.prefixes)
        if not found:
            shown = token.text if len(token.text) <= _SHOWN_CHARACTERS else token.text[:_SHOWN_CHARACTERS] + "..."
            found = "the end of the query" if token.kind == "end" else f"'{cells.visible(shown)}'"
        line, column = self.place_of(token)
        underlined = excerpt(self.text, token.start, len(token.text))
        return QuerySyntaxError(expected, found, line, column, self.source, underlined, suggestion)

    def unsupported(self, feature: str, token: Token | None = None, advice: str = "") -> UnsupportedFeatureError:
        token = token or self.token
        line, column = self.place_of(token)
        underlined = excerpt(self.text, token.start, len(token.text))
        return UnsupportedFeatureError(feature, line, column, advice, self.source, underlined)


class TermReader(TokenReader):
    """Reads IRIs, prefixed names and literals; knows BASE and the prefixes."""

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, source)
        if base is not None and _NOT_IN_IRI.search(base):
            raise DataError(f"base = {base!r}: expected an IRI, without spaces, quotes or any of < > {{ }} | \\ ^ `")
        self.base = base
        self._iris: dict[str, Term] = {}
        """Those that were read since the last BASE or PREFIX, by their text."""
        self.subqueries: list[tuple[frozenset[str], int]] = []
        """The subqueries that we are in, the innermost last: the names that each one lets out, and its number."""

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
        """Read what SPARQL 1.2 lets a text say of itself. It changes nothing: what we lack of a version is refused."""
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

    def variable(self, expected: str) -> Variable:
        return self.named(self.expect("var", expected))

    def named(self, token: Token) -> Variable:
        """Return the variable that a token names: of all those with one name, each subquery has its own, unless it
        lets it out. A dot cannot stand in a name of the text, so `?x.2` is no other's name."""
        name = token.text[1:]
        for visible, number in reversed(self.subqueries):
            if name not in visible:
                return Variable(f"{name}.{number}")
        return Variable(name)

    def at_literal(self) -> bool:
        kind = self.token.kind
        return kind == "string" or kind in NUMBERS or kind in ("TRUE", "FALSE") or self.at_signed_number()

    def at_signed_number(self) -> bool:
        """Whether a sign stands next, with a number right behind it (no blank between)."""
        if self.token.kind not in ("+", "-"):
            return False
        following = self.peek()
        return following.kind in NUMBERS and following.start == self.token.end

    def literal(self) -> Term:
        """Read a string with its tag or datatype, a number (its digits kept to the letter) or a boolean."""
        if self.token.kind == "string":
            return self._string_literal()
        sign = self.advance().text if self.token.kind in ("+", "-") else ""
        token = self.advance()
        if token.kind in NUMBERS:
            return literal(sign + token.text, NUMBERS[token.kind])
        return literal(token.kind.lower(), XSD + "boolean")

    def _string_literal(self) -> Term:
        lexical = self.string("a string")
        if self.token.kind == "lang":
            tag, is_directed, direction = self.token.text[1:].partition("--")
            if is_directed:
                if direction not in _DIRECTIONS:
                    raise self.error("a base direction, --ltr or --rtl, behind the language tag")
                tag = f"{tag}--{direction}"
            self.advance()
            return literal(lexical, language=tag)
        if self.accept("^^"):
            return literal(lexical, self.iri_value("a datatype IRI after ^^"))
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

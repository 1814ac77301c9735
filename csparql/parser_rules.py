"""The parser of rule files: PREFIX and BASE lines, and rules between them.

    RULE name: CONSTRUCT { template } WHERE { pattern }

A rule is a CONSTRUCT query of the usual parser. Here are the names, and the words that a query may have and a rule may
not: each is refused where it stands, before the query is read. wukongs/rules/program.py refuses patterns for their
meaning, and asks the rule for the place (`ParsedRule.error`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from wukongs.csparql.algebra import Query, Registration
from wukongs.csparql.nesting import TOKENS_MAX
from wukongs.csparql.parser import read_construct
from wukongs.csparql.parser_patterns import PatternParser
from wukongs.csparql.places import excerpt, place
from wukongs.csparql.tokens import Token, check_text, read_tokens, tokenize_decoded
from wukongs.errors import RuleError

RULES = "rules"
"""The name of a text of rules without a file, in errors."""
NAME = "a name of letters, digits, '_', '-' and '.'"

RULE_STREAM = "urn:x-wukongs:rule:"
"""How the stream of what a rule over windows concludes begins; the name of the rule follows."""

_NAME = re.compile(r"\s*([\w.-]+)")
_COLON = re.compile(r"\s*(:)")
_ENDS = frozenset(("RULE", "end"))
_BETWEEN = frozenset(("RULE", "PREFIX", "BASE", "VERSION", "end"))
_NOT_HERE = {
    "SERVICE": ("no SERVICE in a rule", "load what the other endpoint has, and match it here"),
    "WINDOW": ("no WINDOW in a rule", "a rule reads stored graphs: GRAPH <iri> { ... }"),
    "FROM": (
        "no FROM in a rule but FROM STREAM",
        "a rule reads the graph that it is installed into; GRAPH <iri> { ... } reads another",
    ),
    "ORDER": ("no ORDER BY in a rule", "leave it out: conclusions have no order"),
    "LIMIT": ("no LIMIT in a rule", "leave it out: a rule holds for all solutions"),
    "OFFSET": ("no OFFSET in a rule", "leave it out: a rule holds for all solutions"),
    "UNDEF": ("no UNDEF in a rule", "write the rows without this variable as a rule of their own"),
    "SAMPLE": ("no SAMPLE in a rule", "write MIN or MAX, which always choose the same"),
    "GROUP_CONCAT": ("no GROUP_CONCAT in a rule", "its text depends on the order of the rows"),
    **dict.fromkeys(
        ("RAND", "NOW", "UUID", "STRUUID", "BNODE", "TIMESTAMP"),
        ("functions that give the same value each time", "put the value into a stored triple, and match that"),
    ),
    **dict.fromkeys(
        ("<<", "<<(", "{|", "~"),
        ("no triple inside of a triple in a rule", "match the triples themselves"),
    ),
}
"""Words and marks that no rule has: what is expected in their place, and what to write."""
_BLANKS = frozenset(("blank", "[", "("))


@dataclass(frozen=True, slots=True, eq=False)
class ParsedRule:
    """One rule. text: the rule as it is written, from RULE on; prologue: the BASE and PREFIX lines that hold there, so
    that `prologue + text` is a rule file of one rule; source: the file."""

    name: str
    query: Query
    text: str
    prologue: str
    source: str
    name_token: Token
    tokens: tuple[Token, ...]
    """Those of its CONSTRUCT query."""
    file_text: str

    @property
    def line(self) -> int:
        """The line of its name, from 1."""
        return place(self.file_text, self.name_token.start)[0]

    @property
    def standing(self) -> str | None:
        """The continuous query that a rule over windows is, None for a rule over stored graphs."""
        if self.query.registration is None:
            return None
        body = self.text[self.text.index(":") + 1 :].lstrip()
        return f"{self.prologue}REGISTER STREAM <{self.query.registration.name}> AS {body}"

    @property
    def column(self) -> int:
        return place(self.file_text, self.name_token.start)[1]

    def error(self, expected: str, found: str, suggestion: str = "", token: Token | None = None) -> RuleError:
        """Make the error for a token of the rule, or for the rule as a whole, at its name."""
        return _error(self.file_text, self.source, token or self.name_token, expected, found, suggestion)

    def first(self, *kinds: str) -> Token | None:
        """Return the first token of one of these kinds."""
        return next((token for token in self.tokens if token.kind in kinds), None)

    def mention(self, name: str, after: str = "") -> Token | None:
        """Return the first token that names a variable behind a word (from the start, if that has no such word)."""
        index = next((index for index, token in enumerate(self.tokens) if token.kind == after), 0)
        named = [token for token in self.tokens if token.kind == "var" and token.text[1:] == name.partition(".")[0]]
        behind = [token for token in named if token.start > self.tokens[index].start]
        return next(iter(behind or named), None)


def parse_rules(text: str, base: str | None = None, file: str | None = None) -> tuple[ParsedRule, ...]:
    """Parse a rule file. base: as in parse_query; file: its name in errors.

    Raises QuerySyntaxError (place, expected, found): no rule file, or no CONSTRUCT query in a rule; RuleError (the
    same): a query that no rule may be, a name that is there twice; DataError (base)."""
    source = file or RULES
    check_text(text, base, source)
    text, tokens = tokenize_decoded(text, source, _tokenize)
    parser = PatternParser(text, tokens, base, source)
    if len(tokens) > TOKENS_MAX:
        expected = f"at most {TOKENS_MAX} tokens in a rule file"
        raise parser.error(expected, tokens[TOKENS_MAX], f"{len(tokens)}")
    found: dict[str, ParsedRule] = {}
    while True:
        parser.prologue()
        if parser.token.kind == "end":
            return tuple(found.values())
        rule = _rule(parser, found)
        found[rule.name] = rule


def rule_of_registered(text: str, base: str | None, name: str) -> ParsedRule:
    """Parse a registered CONSTRUCT query as the rule of its name. text: it parses as a query that is registered.

    Raises RuleError (place, expected, found): what no rule may have, a name that no rule can have."""
    source = f"query {name}"
    text, tokens = tokenize_decoded(text, source)
    kinds = [token.kind for token in tokens]
    head = tokens[kinds.index("REGISTER")]
    begin = kinds.index("AS", kinds.index("REGISTER"))
    form = tokens[kinds.index("CONSTRUCT", begin)]
    if _NAME.fullmatch(name) is None:
        raise _error(text, source, tokens[kinds.index("REGISTER") + 2], f"{NAME}, as it is to be a rule", name)
    written = tokens[begin].start + len(tokens[begin].text)
    cleared = re.sub(r"[^\n]", " ", text[head.start : written])
    before, mark = text[: head.start] + cleared + text[written : form.start], f"RULE {name}: "
    if not before[-len(mark) :].strip(" "):  # what follows keeps its place
        before = before[: -len(mark)]
    [rule] = parse_rules(before + mark + text[form.start :], base, source)
    return rule


def _tokenize(text: str, source: str) -> list[Token]:
    """Cut a rule file into tokens; the name of a rule and its colon are tokens of their own."""
    tokens: list[Token] = []
    reached = 0
    while True:
        reached = read_tokens(text, reached, tokens, _ENDS, source)
        if tokens[-1].kind == "end":
            return tokens
        for kind, regex in (("rule name", _NAME), (":", _COLON)):
            match = regex.match(text, reached)
            if match is None:
                break
            tokens.append(Token(kind, match[1], match.start(1)))
            reached = match.end()


def _rule(parser: PatternParser, known: dict[str, ParsedRule]) -> ParsedRule:
    start = parser.expect("RULE", "RULE and a name, PREFIX, BASE or the end of the rules")
    name = parser.expect("rule name", f"{NAME} after RULE")
    parser.expect(":", "':' after the name of the rule")
    if name.text in known:
        found = f"'{name.text}', which line {known[name.text].line} has"
        raise _error(parser.text, parser.source, name, "a name that no other rule here has", found)
    first = parser.index
    end = next(index for index in range(first, len(parser.tokens)) if parser.tokens[index].kind in _BETWEEN)
    following = parser.tokens[end]
    tokens = parser.tokens[first:end]
    inner = PatternParser(
        parser.text, [*tokens, following, Token("end", "", following.start)], parser.base, parser.source
    )
    inner.prefixes = dict(parser.prefixes)
    inner.in_rule = True
    is_standing = _has_window(tokens)
    if not is_standing:
        _check_words(inner, tokens)
    try:
        query = _construct(
            inner, following, Registration(RULE_STREAM + name.text, is_stream=True) if is_standing else None
        )
    except RecursionError:
        raise inner.error("a rule that is nested less deeply", name) from None
    inner.check_depth(query.pattern)
    parser.rewind(end)
    last = tokens[-1]
    return ParsedRule(
        name.text,
        query,
        parser.text[start.start : last.end],
        inner.prologue_text(),
        parser.source,
        name,
        tuple(tokens),
        parser.text,
    )


def _has_window(tokens: list[Token]) -> bool:
    """Whether a rule reads a window: then it is a continuous query, and may be any."""
    kinds = [token.kind for token in tokens]
    return any(kind == "FROM" and "STREAM" in kinds[at + 1 : at + 3] for at, kind in enumerate(kinds))


def _construct(parser: PatternParser, following: Token, registration: Registration | None) -> Query:
    """Read the CONSTRUCT query of a rule, up to the token behind it."""
    parser.expect("CONSTRUCT", "CONSTRUCT { template } WHERE { pattern } after the name of the rule")
    query = read_construct(parser, registration)
    if parser.token is not following:
        raise parser.error("the end of the rule: RULE, PREFIX, BASE or the end of the rules")
    if registration is not None:
        return query
    if parser.having_aliases:
        item, token = parser.having_aliases[0]
        expected = "an aggregate or a key in HAVING, which does not see aliases"
        raise _refused(parser, token, expected, f"write {item.text}")
    return query


def _check_words(parser: PatternParser, tokens: list[Token]) -> None:
    """Refuse words that no rule may have, and blank nodes in its template."""
    for index, token in enumerate(tokens):
        if token.kind in _NOT_HERE:
            expected, hint = _NOT_HERE[token.kind]
            raise _refused(parser, token, expected, hint)
        before = tokens[index - 1].kind if index else ""
        following = tokens[index + 1].kind if index + 1 < len(tokens) else ""
        if token.kind == "GRAPH" and following == "var":
            hint = "write a rule for each graph"
            raise _refused(parser, tokens[index + 1], "the IRI of a graph after GRAPH in a rule", hint)
        if token.kind == "SELECT" and index and not (before == "{" and index == _template_end(tokens) + _where(tokens)):
            hint = "conclude the groups in a rule of their own, and read its conclusions"
            raise _refused(parser, token, "SELECT only as the whole WHERE of a rule", hint)
    for token, behind in pairwise(tokens[: _template_end(tokens)]):
        if token.kind in _BLANKS and behind.kind != ")":
            hint = "name the node: a variable that BIND(IRI(...) AS ?node) gives a value"
            raise _refused(parser, token, "no blank node in the template of a rule", hint)


def _where(tokens: list[Token]) -> int:
    """Return how many tokens stand between the template and the pattern: `{`, with or without WHERE."""
    at = _template_end(tokens)
    return 2 if at < len(tokens) and tokens[at].kind == "WHERE" else 1


def _template_end(tokens: list[Token]) -> int:
    """Return how many tokens CONSTRUCT and its template are; those of the short form are the whole rule."""
    if len(tokens) > 1 and tokens[1].kind != "{":
        return len(tokens)
    return next((index + 1 for index, token in enumerate(tokens) if token.kind == "}"), len(tokens))


def _refused(parser: PatternParser, token: Token, expected: str, suggestion: str) -> RuleError:
    return _error(parser.text, parser.source, token, expected, f"'{token.text}'", suggestion)


def _error(text: str, source: str, token: Token, expected: str, found: str, suggestion: str = "") -> RuleError:
    underlined = excerpt(text, token.start, len(token.text))
    return RuleError(expected, found, source, *place(text, token.start), underlined, suggestion)

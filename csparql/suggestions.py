"""Help with a query that does not parse: the word that was meant, the mark of another language, an open bracket.

Only errors call this, so it may take its time. It suggests nothing if no known word is near.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from wukongs.csparql.places import place
from wukongs.csparql.tokens import Token

WELL_KNOWN = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
    "geosparql": "http://www.opengis.net/ont/geosparql#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "prov": "http://www.w3.org/ns/prov#",
    "qudt": "http://qudt.org/schema/qudt/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "schema": "https://schema.org/",
    "sioc": "http://rdfs.org/sioc/ns#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "sosa": "http://www.w3.org/ns/sosa/",
    "ssn": "http://purl.oclc.org/NET/ssnx/ssn#",
    "time": "http://www.w3.org/2006/time#",
    "void": "http://rdfs.org/ns/void#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}

_KEYWORDS = """ADD ALL AS ASC ASK BASE BIND BY CLEAR COMPUTED CONSTRUCT COPY CREATE DATA DEFAULT DELETE DESC DESCRIBE
    DISTINCT DROP DSTREAM EVERY EXISTS FILTER FROM GRAPH GROUP HAVING INSERT INTO ISTREAM LIMIT LOAD MINUS MOVE NAMED
    NOT OFFSET OPTIONAL ORDER PREFIX QUERY RANGE REDUCED REGISTER RSTREAM SELECT SEPARATOR SERVICE SILENT STEP STREAM
    TRIPLES TUMBLING UNDEF UNION USING VALUES WHERE WINDOW WITH""".split()  # noqa: SIM905
_FUNCTIONS = """ABS AVG BNODE BOUND CEIL COALESCE CONCAT CONTAINS COUNT DATATYPE DAY ENCODE_FOR_URI FLOOR GROUP_CONCAT
    HOURS IF IRI ISBLANK ISIRI ISLITERAL ISNUMERIC ISURI LANG LANGMATCHES LCASE MAX MD5 MIN MINUTES MONTH NOW RAND REGEX
    REPLACE ROUND SAMETERM SAMPLE SECONDS SHA1 SHA256 SHA384 SHA512 STR STRAFTER STRBEFORE STRDT STRENDS STRLANG STRLEN
    STRSTARTS STRUUID SUBSTR SUM TIMEZONE TZ UCASE URI UUID YEAR""".split()  # noqa: SIM905
_OTHER_NAMES = {
    "AND": "write && for a logical and",
    "OR": "write || for a logical or",
    "LIKE": "write REGEX(?x, 'pattern') or CONTAINS(?x, 'part')",
    "NULL": "write !BOUND(?x) for a variable without a value",
    "LENGTH": "STRLEN is the length of a string",
    "UPPER": "UCASE makes upper case",
    "LOWER": "LCASE makes lower case",
    "SUBSTRING": "SUBSTR is a part of a string",
    "TOP": "write LIMIT at the end of the query",
    "EXCEPT": "MINUS takes solutions away",
    "TRUNCATE": "CLEAR GRAPH <g> empties a graph",
    "UPDATE": "write DELETE { ... } INSERT { ... } WHERE { ... }",
}
_AFTER_CHANGE = {
    "INTO": "write INSERT DATA { GRAPH <g> { ... } }, or WITH <g> INSERT { ... } WHERE { ... }",
    "FROM": "write DELETE DATA { GRAPH <g> { ... } }, or WITH <g> DELETE { ... } WHERE { ... }",
}
_MARKS = {
    "=": "write = for equality, once",
    "<>": "write != for inequality",
    "|": "write || for a logical or",
}
_PAIRS = {")": "(", "}": "{", "]": "[", ">>": "<<", ")>>": "<<(", "|}": "{|"}
_SIMILAR = 0.7


def suggest(text: str, tokens: Sequence[Token], token: Token, expected: str, prefixes: Mapping[str, str]) -> str:
    """Return a clause of help for an error that found `token` and expected `expected`; or nothing."""
    index = next((place for place, known in enumerate(tokens) if known.start >= token.start), len(tokens) - 1)
    before = tokens[index - 1] if index else None
    if token.kind == "pname":
        return _about_name(token, before, expected, prefixes)
    if expected.startswith("a unit of time") and before is not None and before.kind == "integer":
        return f"{before.text}s is {before.text} seconds, {before.text}ms milliseconds"
    if token.text == "<>" or token.kind in ("=", "|"):
        return _about_mark(token, before)
    if token.kind == "?":
        return "a variable needs a name right behind its mark, such as ?x"
    if token.kind == "," and before is not None and _is_projection(tokens, index):
        return "variables after SELECT stand side by side, without commas"
    if token.kind in ("COUNT", "SUM", "MIN", "MAX", "AVG") and "after SELECT" in expected:
        return f"write ({token.kind}(...) AS ?name), in parentheses"
    if token.kind == "end" or token.kind in _PAIRS:
        return _about_brackets(text, tokens[:index], token)
    if token.kind == token.text.upper() and token.text[:1].isalpha():
        return _about_word(tokens, index, expected)
    return ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the one of the known words that a word may have been meant to be; or nothing."""
    found = get_close_matches(word.upper(), known, 1, _SIMILAR)
    return found[0] if found else ""


def _about_name(token: Token, before: Token | None, expected: str, prefixes: Mapping[str, str]) -> str:
    prefix, _, local = token.text.partition(":")
    if prefix.lower() in ("http", "https", "urn", "file", "mailto", "tag"):
        return "an IRI stands in angle brackets, such as <http://example.org/>"
    if expected != "a prefix that the query declares":
        return ""
    upper = {known.upper(): known for known in prefixes}
    near = nearest(prefix, upper)
    if prefix in WELL_KNOWN:
        return f"add PREFIX {prefix}: <{WELL_KNOWN[prefix]}> at the start"
    if near:
        return f"did you mean {upper[near]}:{local}?"
    return f"add PREFIX {prefix}: <...> at the start"


def _about_mark(token: Token, before: Token | None) -> str:
    if token.kind == "=" and (before is None or before.kind != "="):
        return ""
    return _MARKS[token.text]


def _about_word(tokens: Sequence[Token], index: int, expected: str) -> str:
    token = tokens[index]
    if token.kind in _OTHER_NAMES:
        return _OTHER_NAMES[token.kind]
    if expected.startswith("the template { ... }") and token.kind in _AFTER_CHANGE:
        return _AFTER_CHANGE[token.kind]
    if expected.startswith("a prefix that ends in a colon"):
        return f"write {token.text}: with its colon"
    if token.kind in _KEYWORDS:
        return ""
    is_call = index + 1 < len(tokens) and tokens[index + 1].kind == "("
    names = [*_FUNCTIONS, *_KEYWORDS] if is_call else [*_KEYWORDS, *_FUNCTIONS]
    if token.kind in names:
        return ""
    near = nearest(token.kind, names)
    if near:
        return f"did you mean {near}?"
    return "" if is_call else "a name is written ?name, prefix:name or 'name'"


def _is_projection(tokens: Sequence[Token], index: int) -> bool:
    """Whether only variables stand between SELECT and a token."""
    while index and tokens[index - 1].kind in ("var", "DISTINCT", "REDUCED"):
        index -= 1
    return index > 0 and tokens[index - 1].kind == "SELECT"


def _about_brackets(text: str, read: Sequence[Token], token: Token) -> str:
    """Say which bracket is still open, or that none is."""
    opened: list[Token] = []
    for known in read:
        if known.kind in _PAIRS.values():
            opened.append(known)
        elif known.kind in _PAIRS and opened:
            opened.pop()
    if not opened:
        return f"no '{_PAIRS[token.kind]}' is open here" if token.kind in _PAIRS else ""
    innermost = opened[-1]
    if token.kind in _PAIRS and innermost.kind == _PAIRS[token.kind]:
        return ""
    line, column = place(text, innermost.start)
    return f"the '{innermost.text}' of line {line}, column {column} is not closed"

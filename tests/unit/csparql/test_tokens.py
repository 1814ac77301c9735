"""Tokens: kinds, text to the letter, offsets; lines and columns."""

from __future__ import annotations

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.csparql.places import place
from wukongs.csparql.tokens import tokenize, tokenize_decoded
from wukongs.errors import DataError, QuerySyntaxError


def kinds_and_texts(text: str) -> list[tuple[str, str]]:
    tokens = tokenize(text)
    assert all(text[token.start : token.end] == token.text for token in tokens)
    assert tokens[-1].kind == "end"
    return [(token.kind, token.text) for token in tokens[:-1]]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<http://example.org/a#b>", "iri"),
        ("<>", "iri"),
        (r"<a\u0020\U00000041b>", "iri"),
        ("?x", "var"),
        ("$x1_é", "var"),
        ("?1", "var"),
        ("ex:", "pname"),
        (":", "pname"),
        (":a", "pname"),
        ("ex.y-1:a.b-c", "pname"),
        ("ex:a%20b", "pname"),
        (r"ex:a\-b\,c\.", "pname"),
        ("ex:1a:b::", "pname"),
        ("é:ü·", "pname"),
        ("_:a.b-c", "blank"),
        ("_:1", "blank"),
        ("12", "integer"),
        ("1.50", "decimal"),
        (".5", "decimal"),
        ("1e5", "double"),
        ("1.E-5", "double"),
        (".5e+05", "double"),
        ('"a\\"b"', "string"),
        ("'a\"b'", "string"),
        ("''", "string"),
        ('""', "string"),
        ('"""a"b""c\nd\\""""', "string"),
        ("'''a'b''c\r\n'''", "string"),
        ('""""""', "string"),
        ("@en-GB", "lang"),
        ("SELECT", "SELECT"),
        ("select", "SELECT"),
        ("a", "A"),
        ("Group_Concat", "GROUP_CONCAT"),
        ("^^", "^^"),
        ("&&", "&&"),
        ("!=", "!="),
        ("<=", "<="),
        ("<", "<"),
        (".", "."),
    ],
)
def test_one_token(text: str, kind: str) -> None:
    assert kinds_and_texts(text) == [(kind, text)]
    assert kinds_and_texts(f" \t{text} ") == [(kind, text)]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("?s ex:a.b.", ["?s", "ex:a.b", "."]),
        ("ex:a..", ["ex:a", ".", "."]),
        ("_:a.", ["_:a", "."]),
        ("?o.?s", ["?o", ".", "?s"]),
        ("10s", ["10", "s"]),
        ("1.", ["1", "."]),
        ("-1", ["-", "1"]),
        ("?x-1", ["?x", "-", "1"]),
        ("?a<?b", ["?a", "<", "?b"]),
        ("?a<<b>", ["?a", "<", "<b>"]),
        ("<<?s ?p ?o>>", ["<<", "?s", "?p", "?o", ">>"]),
        ("?p?", ["?p", "?"]),
        ('"a"@en', ['"a"', "@en"]),
        ('"1"^^ex:t', ['"1"', "^^", "ex:t"]),
        ("a#b\nc", ["a", "c"]),
        ("<a#b> # <c>\r<d>", ["<a#b>", "<d>"]),
        ('"#" # "', ['"#"']),
        ("[]", ["[", "]"]),
        ("&&||!", ["&&", "||", "!"]),
        ("ex:a,ex:b;c", ["ex:a", ",", "ex:b", ";", "c"]),
        ("", []),
        ("# only a comment", []),
    ],
)
def test_token_boundaries(text: str, texts: list[str]) -> None:
    assert [found for _, found in kinds_and_texts(text)] == texts


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("abc", 2, (1, 3)),
        ("a\nb", 2, (2, 1)),
        ("a\r\nb", 3, (2, 1)),
        ("a\rb\n\nc", 5, (4, 1)),
        ("é\U0001f600x", 2, (1, 3)),
    ],
)
def test_place_counts_characters(text: str, offset: int, expected: tuple[int, int]) -> None:
    assert place(text, offset) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('?s "ab\n', 'query, line 1, column 4: expected a string closed by " on the same line, found the unclosed "ab'),
        ("?s\n 'ab", "query, line 2, column 2: expected a string closed by ' on the same line, found the unclosed 'ab"),
        (
            '"""ab"" ',
            'query, line 1, column 1: expected a string closed by """ before the end of the query, '
            'found the unclosed """ab"" ',
        ),
        ("a # c\n ¬", "query, line 2, column 2: expected a term, a keyword or punctuation, found '¬'"),
        (
            "a\u00a0b",
            "query, line 1, column 2: expected a term, a keyword or punctuation, found the character U+00A0; "
            "this is a no-break space: write a plain blank",
        ),
    ],
)
def test_malformed_text(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        tokenize(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        (r"ASK { ?a\u0062c <p> 1 }", "ASK { ?abc <p> 1 }"),
        (r"\u0041SK { ?s ?p \U00000031 }", "ASK { ?s ?p 1 }"),
        (r"ASK { ?s ex\u003Ay 'a\u0022b' }", r"ASK { ?s ex:y 'a\u0022b' }"),
        ("ASK # \\u0041\n{ ?\\u0041 <\\u0041> 'x' }", "ASK # \\u0041\n{ ?A <\\u0041> 'x' }"),
    ],
)
def test_codepoint_escapes_anywhere(text: str, decoded: str) -> None:
    assert tokenize_decoded(text) == (decoded, tokenize(decoded))


def test_codepoint_escapes_that_help_nothing() -> None:
    """A text that can be read is left as it is; what no escape can mend is an error at its place."""
    text = r"SELECT ('\u0041' AS ?x) {}"
    assert tokenize_decoded(text)[0] == text
    for broken, column in ((r"ASK { ?a\uD800 }", 9), (r"ASK { ?a\U00110000 }", 9), (r"ASK { \u0041 ' }", 7)):
        with pytest.raises(QuerySyntaxError) as caught:
            tokenize_decoded(broken)
        assert caught.value.column == column


def test_half_a_character_is_refused() -> None:
    """A lone surrogate is no character: no file could hold such a text, and no term of it could be encoded."""
    with pytest.raises(QuerySyntaxError, match=r"line 1, column 14: .*found the character U\+D800"):
        parse_query("ASK { ?s ?p '\ud800' }")
    assert parse_query("ASK { ?s ?p '\U0001f600' }").form == "ask"


@pytest.mark.parametrize("base", ["http://a b/", "http://a/<b>", "http://a/\n"])
def test_a_base_is_an_iri(base: str) -> None:
    with pytest.raises(DataError, match=r"^base = .*: expected an IRI, without spaces"):
        parse_query("SELECT (<x> AS ?y) {}", base)


@pytest.mark.parametrize("between", [" ", "\t\n", "# a comment\n", "  # one\r\n\n"])
def test_blanks_before_a_wrong_character_are_read_once(between: str) -> None:
    """Read again in each way to group them, forty blanks would take hours."""
    text = "ASK {" + between * 5_000 + "\u201cx\u201d }"
    with pytest.raises(QuerySyntaxError, match="write straight quotes") as caught:
        tokenize_decoded(text)
    assert caught.value.line == place(text, text.index("\u201c"))[0]

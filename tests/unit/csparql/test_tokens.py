"""Tokens: kinds, text to the letter, offsets; lines and columns."""

from __future__ import annotations

import pytest

from csparql.places import place
from csparql.tokens import tokenize
from wukongs.errors import QuerySyntaxError


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

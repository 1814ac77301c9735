"""Places in a text, and the offending text underlined."""

from __future__ import annotations

import pickle

import pytest

from wukongs.csparql.cells import display_width
from wukongs.csparql.parser import parse_query
from wukongs.csparql.places import excerpt, line_around, place
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError


def error_of(text: str) -> QuerySyntaxError | UnsupportedFeatureError:
    with pytest.raises((QuerySyntaxError, UnsupportedFeatureError)) as caught:
        parse_query(text, source="q.rq")
    assert isinstance(caught.value, QuerySyntaxError | UnsupportedFeatureError)
    return caught.value


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_in_three_ways(end: str) -> None:
    text = f"ab{end}{end}cd"
    assert [line_around(text, text.index(letter)) for letter in "ac"] == [
        (1, 0, 2),
        (3, 2 + 2 * len(end), len(text)),
    ]
    assert place(text, len(text)) == (3, 3)


def test_the_offending_text_is_underlined() -> None:
    error = error_of("SELECT ?x\nWEHRE { ?x ?y 1 }")
    assert error.excerpt == "2 | WEHRE { ?x ?y 1 }\n  | ^^^^^"
    assert str(error) == ("q.rq, line 2, column 1: expected FROM, WHERE or '{', found 'WEHRE'; did you mean WHERE?")
    assert error.show() == f"{error}\n{error.excerpt}"
    assert error.__notes__ == [error.excerpt]


def test_what_is_not_supported_is_underlined_too() -> None:
    error = error_of("ASK {\n  FILTER <f>(DISTINCT ?x) }")
    assert isinstance(error, UnsupportedFeatureError)
    assert error.excerpt == "2 |   FILTER <f>(DISTINCT ?x) }\n  |              ^^^^^^^^"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ASK {", "1 | ASK {\n  |      ^"),
        ("", "1 |\n  | ^"),
        ("ASK {\t'é日本'\t?? }", "1 | ASK { 'é日本' ?? }\n  |               ^"),
        ("ASK { ?s ?p \u201cx\u201d }", "1 | ASK { ?s ?p \u201cx\u201d }\n  |             ^"),
        ("ASK { ?s ?p 'abc\n }", "1 | ASK { ?s ?p 'abc\n  |             ^^^^"),
        ("ASK { \x00 }", "1 | ASK { \\u0000 }\n  |       ^^^^^^"),
        ("ASK { \ud800 }", "1 | ASK { \\uD800 }\n  |       ^^^^^^"),
        ("ASK {} '''two\nlines'''", "1 | ASK {} '''two\n  |        ^^^^^^"),
    ],
)
def test_marks_stand_under_the_text(text: str, expected: str) -> None:
    assert error_of(text).excerpt == expected


def test_a_long_line_is_shown_in_part() -> None:
    text = "ASK { " + "?s ?p 1 . " * 50 + "WHERE " + "?s ?p 1 . " * 50 + "}"
    line, marks = error_of(text).excerpt.splitlines()
    assert len(line) <= 106
    assert line[4] == line[-1] == "…"
    start = marks.index("^")
    assert line[start : start + marks.count("^")] == "WHERE"


def test_a_token_longer_than_the_line_shown() -> None:
    line, marks = excerpt("x" * 500, 0, 500).splitlines()
    assert display_width(marks) == display_width(line) - 1
    assert line.endswith("x…")


@pytest.mark.parametrize("text", ["SELCT", "ASK { FILTER <f>(DISTINCT ?x) }"])
def test_errors_are_pickled_whole(text: str) -> None:
    error = error_of(text)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.excerpt, again.__notes__) == (str(error), error.excerpt, error.__notes__)
    assert vars(again) == vars(error)

"""REGEX and REPLACE: XPath's regular expressions, their flags and their errors."""

from __future__ import annotations

import itertools
import logging
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expression_text import column, result
from tests.fuzz import fuzzed
from wukongs.query.functions import patterns
from wukongs.query.functions.pattern_parser import PatternError, translate
from wukongs.query.functions.pattern_sets import any_case, category, complement, united, without


def found(pattern: str, text: str, flags: str = "") -> bool | None:
    answers = patterns.matches([text], pattern, flags)
    return None if answers is None else answers[0]


@pytest.mark.parametrize(
    ("pattern", "text", "flags", "expected"),
    [
        ("b", "abc", "", True),
        ("^b", "abc", "", False),
        ("^a.c$", "abc", "", True),
        ("^a.c$", "a\nc", "", False),
        ("^a.c$", "a\nc", "s", True),
        ("^a.c$", "a\rc", "", True),
        ("c$", "abc\n", "", False),
        ("^b$", "a\nb\nc", "", False),
        ("^b$", "a\nb\nc", "m", True),
        ("ABC", "xabcx", "i", True),
        ("[A-C]+x", "abcX", "i", True),
        ("[^a]", "A", "i", False),
        ("s", "\u017f", "i", True),
        ("ß", "ẞ", "i", True),
        ("\\p{Lu}", "a", "i", False),
        ("a b", "ab", "x", True),
        ("a[ ]b", "a b", "x", True),
        ("a\\ b", "a b", "x", None),
        ("a.b*", "xa.b*x", "q", True),
        ("a.b*", "aXbb", "q", False),
        ("A.B", "a.b", "iq", True),
        ("[a-z-[aeiou]]", "e", "", False),
        ("[a-z-[aeiou]]", "f", "", True),
        ("[a-z-[b-y-[m]]]", "m", "", True),
        ("[^a-c-[x]]", "x", "", False),
        ("[\\d-[5]]", "5", "", False),
        ("\\d", "٣", "", True),
        ("^\\w+$", "héß9", "", True),
        ("\\w", "_", "", False),
        ("\\w", "€", "", True),
        ("\\s", "\u00a0", "", False),
        ("^\\i\\c*$", "_a-b.c1:d", "", True),
        ("^\\i", "1", "", False),
        ("\\p{L}", "日", "", True),
        ("\\P{L}", "日", "", False),
        ("[\\p{N}-]", "-", "", True),
        ("[a-]", "-", "", True),
        ("[-a]", "-", "", True),
        ("[\\]\\[]", "[", "", True),
        ("[.]", "a", "", False),
        ("(a|b){2,3}c", "babc", "", True),
        ("^a{3}$", "aa", "", False),
        ("a{0}b", "b", "", True),
        ("^(?:ab)+$", "abab", "", True),
        ("(a)(b)\\2\\1", "abba", "", True),
        ("(a)\\1", "AA", "i", True),
        ("(a)\\11", "aa1", "", True),
        ("a{1001}", "a" * 1001, "", True),
        ("a??b", "ab", "", True),
        ("", "anything", "", True),
        ("()", "", "", True),
        ("\\n\\t\\r\\\\\\|\\-", "\n\t\r\\|-", "", True),
    ],
)
def test_match(pattern: str, text: str, flags: str, expected: bool | None) -> None:
    assert found(pattern, text, flags) is expected


@pytest.mark.parametrize(
    ("pattern", "flags", "message"),
    [
        ("a", "z", "expected flags among s, m, i, x and q, found 'z'"),
        ("(a", "", r"expected '\)' at character 3, found the end"),
        ("a)", "", "an opening parenthesis before this one at character 2"),
        ("*a", "", "a character, a class or a group .* at character 1"),
        ("a**", "", "a character, a class or a group .* at character 3"),
        ("a]", "", "a character, a class or a group .* at character 2"),
        ("[a", "", "expected ']' at character 3"),
        ("[]", "", "a character of the class"),
        ("[z-a]", "", "a range from a character to a later one at character 2"),
        ("[a[b]]", "", "a character of the class"),
        ("[a-[b]c]", "", "']' after the class that is taken away"),
        ("a{2,1}", "", "a quantifier such as"),
        ("a{,2}", "", "a number of repetitions"),
        ("\\b", "", "an escape such as"),
        ("\\p{Xx}", "", "a Unicode category"),
        ("\\p{IsBasicLatin}", "", "a Unicode category"),
        ("\\p", "", "a Unicode category"),
        ("a\\", "", "an escape such as"),
        ("(a\\1)", "", "a back-reference to a group that has ended"),
        ("(?=a)", "", "a character, a class or a group"),
        ("(?i)a", "", "a character, a class or a group"),
        ("(" * 300, "", "groups that are nested at most 200 deep"),
        ("[a-" * 300, "", "classes that are nested at most 200 deep"),
    ],
)
def test_wrong_patterns(pattern: str, flags: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PatternError, match=message):
        translate(pattern, flags)
    with caplog.at_level(logging.WARNING, "wukongs"):
        assert found(pattern, "a", flags) is None
        assert found(pattern, "b", flags) is None
    assert len(caplog.records) <= 1, "one warning for one pattern"


def test_regex_takes_strings_only() -> None:
    texts = [('"abc"',), ('"abc"@en',), ("<http://e/abc>",), ('"1"^^<http://e/t>',), (None,), ('"x"',)]
    true, false = ('"true"^^<xsd:boolean>', '"false"^^<xsd:boolean>')
    assert column("REGEX(?x, 'b')", ["x"], texts) == [true, true, None, None, None, false]
    assert column("REGEX(STR(?x), 'B', 'i')", ["x"], texts) == [true, true, true, false, None, false]
    assert column("REGEX('abc', ?x)", ["x"], texts) == [true, None, None, None, None, false]
    assert column("REGEX(?x, 'b'@en)", ["x"], texts) == [None] * 6
    assert column("REGEX(?x, '[')", ["x"], texts) == [None] * 6
    assert column("REGEX(?x, 'b', 1)", ["x"], texts) == [None] * 6
    assert column("COALESCE(REGEX(?x, 'b'), 'e')", ["x"], texts) == [true, true, '"e"', '"e"', '"e"', false]
    assert column("REGEX(?x, 'b')", ["x"], []) == []


def test_a_hostile_pattern_takes_linear_time() -> None:
    started_s = time.monotonic()
    assert found("(a+)+$", "a" * 50_000 + "b") is False
    assert found("(a|a)*b", "a" * 50_000) is False
    assert time.monotonic() - started_s < 60, "exponential time would not end"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("REPLACE('abcd', 'b', 'Z')", '"aZcd"'),
        ("REPLACE('abab', 'B', 'Z','i')", '"aZaZ"'),
        ("REPLACE('abab', 'B.', 'Z','i')", '"aZb"'),
        ("REPLACE('abracadabra', 'bra', '*')", '"a*cada*"'),
        ("REPLACE('abracadabra', 'a.*a', '*')", '"*"'),
        ("REPLACE('abracadabra', 'a.*?a', '*')", '"*c*bra"'),
        ("REPLACE('abracadabra', 'a', '')", '"brcdbr"'),
        ("REPLACE('abracadabra', 'a(.)', 'a$1$1')", '"abbraccaddabbra"'),
        ("REPLACE('abracadabra', '.*?', '$1')", None),
        ("REPLACE('AAAA', 'A+', 'b')", '"b"'),
        ("REPLACE('darted', '^(.*?)d(.*)$', '$1c$2')", '"carted"'),
        ("REPLACE('abc'@en, 'b', '$0$0')", '"abbc"@en'),
        ("REPLACE('abc', '(b)(x)?', '[$2]')", '"a[]c"'),
        ("REPLACE('abc', '(b)', '$2')", '"ac"'),
        ("REPLACE('abc', '(b)', '$12')", '"ab2c"'),
        ("REPLACE('abcdefghijkl', '(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)', '$10')", '"jkl"'),
        ("REPLACE('a.b', '.', '$1', 'q')", '"a$1b"'),
        ("REPLACE('abc', 'b', '\\\\\\\\\\\\$')", '"a\\$c"'),
        ("REPLACE('abc', 'b', '$')", None),
        ("REPLACE('abc', 'b', '\\\\n')", None),
        ("REPLACE('aa', '(a)\\\\1', 'x')", '"x"'),
        ("REPLACE('abc', 'x?', '-')", None),
        ("REPLACE('abc', 'b', 'x'@en)", None),
        ("REPLACE(1, 'b', 'x')", None),
        ("REPLACE('abc', '[', 'x')", None),
    ],
)
def test_replace(expression: str, expected: str | None) -> None:
    assert result(expression) == expected


# --- against Python's re, by patterns that are written in both syntaxes -----------------------------------------------

Both = tuple[str, str]
ALPHABET = "ab1 -\n"


def _letter(letter: str) -> Both:
    return ("\\n" if letter == "\n" else "\\-" if letter == "-" else letter, re.escape(letter))


def _subtracted(sets: tuple[str, str]) -> Both:
    """A class without the letters of another, which for Python is worked out here."""
    kept, removed = sets
    left = "".join(re.escape(letter) for letter in kept if letter not in removed)
    written = ["".join(_letter(letter)[0] for letter in letters) for letters in sets]
    return f"[{written[0]}-[{written[1]}]]", f"[{left}]" if left else r"[^\s\S]"


_ATOMS = st.one_of(
    st.sampled_from(ALPHABET).map(_letter),
    st.sampled_from([(".", r"[^\n]"), ("^", r"\A"), ("$", r"\Z"), ("\\d", r"[0-9]"), ("\\S", r"[^ \n]")]),
    st.tuples(st.text(ALPHABET, min_size=1, max_size=3), st.text(ALPHABET, min_size=1, max_size=3)).map(_subtracted),
)


def _deeper(parts: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    def join(separator: str) -> st.SearchStrategy[Both]:
        return st.lists(parts, min_size=1, max_size=3).map(
            lambda pairs: (separator.join(pair[0] for pair in pairs), separator.join(pair[1] for pair in pairs))
        )

    def grouped(pair: Both, quantifier: str) -> Both:
        return f"({pair[0]}){quantifier}", f"({pair[1]}){quantifier}"

    quantifiers = st.sampled_from(["", "*", "+", "?", "*?", "{2}", "{1,2}", "{2,}"])
    return st.one_of(join(""), join("|"), st.builds(grouped, parts, quantifiers))


@given(st.recursive(_ATOMS, _deeper, max_leaves=6), st.lists(st.text(ALPHABET, max_size=6), min_size=1, max_size=8))
@fuzzed(300)
def test_random_patterns(pair: Both, texts: list[str]) -> None:
    expected = [re.search(pair[1], text) is not None for text in texts]
    assert patterns.matches(texts, pair[0], "") == expected
    python = re.compile(translate(pair[0], "").for_python)
    assert [python.search(text) is not None for text in texts] == expected


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=6), st.integers(0, 400))
def test_sets_of_characters(parts: list[tuple[int, int]], code: int) -> None:
    ranges = [(first, first + more) for first, more in parts]
    held = united(*(((first, last),) for first, last in ranges))
    is_in = any(first <= code <= last for first, last in ranges)
    assert any(first <= code <= last for first, last in held) == is_in
    assert any(first <= code <= last for first, last in complement(held)) != is_in
    assert without(held, held) == ()
    assert all(low[1] + 1 < high[0] for low, high in itertools.pairwise(held)), "disjoint, and not touching"
    cased = any_case(held)
    variants = {other for other in range(0x500) if chr(other).lower() == chr(code).lower()}
    if is_in:
        assert all(any(first <= other <= last for first, last in cased) for other in variants)


def test_categories_hold_every_character_once() -> None:
    letters, numbers = category("L"), category("N")
    assert letters is not None
    assert numbers is not None
    assert without(letters, numbers) == letters
    assert category("Cs") is None, "surrogates are no characters"
    assert category("Q") is None

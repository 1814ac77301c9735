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
from wukongs.query.functions import pattern_blocks, patterns
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
        ("\\p{IsGreek}", "π", "", True),
        ("\\P{IsGreek}", "π", "", False),
        ("^\\P{IsGreek}$", "p", "", True),
        ("^[\\p{IsGreek}x]+$", "πxω", "", True),
        ("[^\\p{IsBasicLatin}]", "abc", "", False),
        ("[^\\p{IsBasicLatin}]", "abcé", "", True),
        ("^[\\p{IsBasicLatin}-[\\P{L}]]+$", "abc", "", True),
        ("^[\\p{IsBasicLatin}-[\\P{L}]]+$", "ab1", "", False),
        ("[\\p{L}-[\\p{IsGreek}\\p{IsCyrillic}]]", "πж", "", False),
        ("(\\p{IsGreek})\\1", "ππ", "", True),
        ("\\p{IsCJKUnifiedIdeographsExtensionB}", "\U00020000", "", True),
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
        ("\\p{IsNoBlock}", "", "a block such as"),
        ("\\P{IsNoBlock}", "", "a block such as"),
        ("[a-\\p{IsGreek}]", "", "a range from a character"),
        ("\\p{IsBasiclatin}", "", "did you mean .p.IsBasicLatin"),
        ("\\p{Greek}", "", "a Unicode category"),
        ("\\p{IsGreek", "", "a Unicode category"),
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


BLOCKS = """
BasicLatin 0000 007F|Latin-1Supplement 0080 00FF|LatinExtended-A 0100 017F|LatinExtended-B 0180 024F|Greek 0370 03FF
Cyrillic 0400 04FF|Hebrew 0590 05FF|Arabic 0600 06FF|Thai 0E00 0E7F|GeneralPunctuation 2000 206F|Arrows 2190 21FF
CombiningMarksforSymbols 20D0 20FF|MathematicalOperators 2200 22FF|CJKUnifiedIdeographs 4E00 9FFF|Hiragana 3040 309F
HangulSyllables AC00 D7AF|ArabicPresentationForms-A FB50 FDFF|Gothic 10330 1034F|MusicalSymbols 1D100 1D1FF
MathematicalAlphanumericSymbols 1D400 1D7FF|Tags E0000 E007F|GreekandCoptic 0370 03FF|Emoticons 1F600 1F64F
CombiningDiacriticalMarksforSymbols 20D0 20FF|PrivateUseArea E000 F8FF|CyrillicSupplementary 0500 052F
"""
"""Names and bounds from the tables of XML Schema (Datatypes, F.1.1 in version 1.0) and Unicode's charts."""


@pytest.mark.parametrize("line", [one for row in BLOCKS.split("\n") for one in row.split("|") if one])
def test_blocks_begin_and_end_where_unicode_says(line: str) -> None:
    name, first, last = line.split()
    bounds = int(first, 16), int(last, 16)
    inside = [chr(bounds[0]), chr(bounds[1])]
    outside = [chr(at) for at in (bounds[0] - 1, bounds[1] + 1) if at >= 0 and not 0xD800 <= at <= 0xDFFF]
    for escape, is_in in (("p", True), ("P", False)):
        pattern = f"^\\{escape}{{Is{name}}}$"
        assert [found(pattern, one, "s") for one in inside] == [is_in] * 2
        assert [found(pattern, one, "s") for one in outside] == [not is_in] * len(outside)


def test_the_old_name_of_private_use_has_all_three_areas() -> None:
    for code in (0xE000, 0xF8FF, 0xF0000, 0x10FFFD):
        assert found("\\p{IsPrivateUse}", chr(code)) is True
    assert found("\\p{IsPrivateUse}", "a") is False


def test_blocks_share_no_character_and_their_names_fit_the_grammar() -> None:
    """XML Schema 1.1, G.4.2.3: IsBlock ::= 'Is' [a-zA-Z0-9#x2D]+."""
    words = [word.partition(":") for word in pattern_blocks._BLOCKS.split()]
    bounds = [tuple(int(code, 16) for code in pair.split("-")) for pair, _, _ in words]
    assert all(re.fullmatch("[a-zA-Z0-9-]+", name) for _, _, name in words)
    assert all(one[0] <= one[1] < other[0] for one, other in itertools.pairwise(bounds))
    assert len(bounds) > 340

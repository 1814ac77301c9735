"""REGEX and REPLACE (SPARQL 1.1, 17.4.3.14 and 15), for many texts at a time."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from wukongs.query.functions import pattern_process
from wukongs.query.functions.pattern_parser import PatternError, Translation, translate
from wukongs.query.functions.pattern_worker import most_characters, rewrite_of
from wukongs.query.functions.strings import like, simple, text
from wukongs.query.limits import CHARACTER_BYTES, current
from wukongs.query.terms.arrow_texts import TEXT, in_parts, to_numpy
from wukongs.query.terms.value_operators import from_truth
from wukongs.query.terms.values import Value
from wukongs.store.dtypes import BoolArray

log = logging.getLogger("wukongs")

PART_STEPS = 1 << 23
"""The most work of one call, which nothing can stop: characters times the states of the pattern, about a tenth of a
second at the worst. A single text that is longer is matched in another process, which can be ended."""
_STEPS_OF_MATCH = 20
"""The cost of replacing a match, in the steps of a state."""
_RE2_GROUP_MAX = 9
"""The last group that a replacement of RE2 can name."""
SHORT_RESULT = 1 << 16
"""Characters that a replaced text may have without being counted before."""
SHORT_RESULTS = 1 << 22
"""Those that several texts may have together."""
_REPLACEMENT = re.compile(r"\\([\\$])|\$([0-9]+)|([^\\$]+)")


@lru_cache(maxsize=1024)
def _translated(pattern: str, flags: str) -> Translation | None:
    """Translate a pattern. A wrong one gives None and one warning in the log; for a query it is an error of this
    row."""
    try:
        translation = translate(pattern, flags)
        if translation.for_re2 is None:
            re.compile(translation.for_python)
        else:
            pc.match_substring_regex(pa.array([""]), translation.for_re2)
    except (PatternError, pa.ArrowInvalid, re.error, OverflowError) as problem:
        log.warning("no value: the regular expression %.200r (flags %.20r) is wrong: %s", pattern, flags, problem)
        return None
    return translation


def matches(texts: Sequence[str], pattern: str, flags: str) -> list[bool] | None:
    """Tell of each text whether a part of it matches; None if the pattern or the flags are wrong."""
    found = found_in(pa.array(texts, TEXT), pattern, flags)
    return None if found is None else found.tolist()


def found_in(texts: pa.LargeStringArray, pattern: str, flags: str) -> BoolArray | None:
    """Do the same as matches, for an Arrow array."""
    translation = _translated(pattern, flags)
    if translation is None:
        return None
    at_once = _characters_at_once(translation)

    def some(part: pa.LargeStringArray) -> pa.BooleanArray:
        if translation.for_re2 is None:
            return pa.array(pattern_process.search("re", translation.for_python, part.to_pylist()), pa.bool_())
        if len(part) == 1 and _length(part) > at_once:
            return pa.array(pattern_process.search("re2", translation.for_re2, part.to_pylist()))
        return pc.match_substring_regex(part, translation.for_re2)

    return to_numpy(in_parts(some, texts, at_once))


def _characters_at_once(translation: Translation) -> int:
    """Return how much text one call may match."""
    if translation.for_re2 is None:
        return PART_STEPS  # in a process that can be ended: only its memory counts
    return PART_STEPS // (_STEPS_OF_MATCH + translation.state_count)


def _length(texts: pa.LargeStringArray) -> int:
    """Return how long texts are together, in bytes: their characters at least."""
    return pc.sum(pc.binary_length(texts)).as_py() or 0


def _regex(value: Value, pattern: Value, flags: Value | None = None) -> Value | None:
    held, wanted, modes = text(value), simple(pattern), "" if flags is None else simple(flags)
    if held is None or wanted is None or modes is None:
        return None
    found = matches([held], wanted, modes)
    return None if found is None else from_truth(found[0])


def _replace(value: Value, pattern: Value, replacement: Value, flags: Value | None = None) -> Value | None:
    held, wanted, by = text(value), simple(pattern), simple(replacement)
    modes = "" if flags is None else simple(flags)
    if held is None or wanted is None or by is None or modes is None:
        return None
    changed = replaced(pa.array([held], TEXT), wanted, by, modes)
    return None if changed is None else like(value, changed[0].as_py())


def replaced(texts: pa.LargeStringArray, pattern: str, by: str, flags: str = "") -> pa.LargeStringArray | None:
    """Replace every match in each text. None if the pattern, its replacement or the flags are wrong; a pattern that
    matches nothing at all is wrong, as in XPath."""
    translation = _translated(pattern, flags)
    if translation is None or matches([""], pattern, flags) == [True]:
        return None
    parts = [by] if "q" in flags else _replacement_parts(by, translation.group_count)
    if parts is None:
        return None
    return in_parts(lambda some: _replaced(some, translation, parts), texts, _characters_at_once(translation))


def _replacement_parts(replacement: str, group_count: int) -> list[str | int] | None:
    """Cut a replacement into texts and numbers of groups; None if it has a $ or backslash that means nothing.

    `$12` is group 12 if there are so many, else group 1 and the digit 2. A group that the pattern has not is empty.
    """
    parts: list[str | int] = []
    end = 0
    for match in _REPLACEMENT.finditer(replacement):
        if match.start() != end:
            return None
        end = match.end()
        escaped, digits, plain = match.groups()
        if digits is None:
            parts.append(escaped or plain)
            continue
        size = len(digits)
        while size > 1 and int(digits[:size]) > group_count:
            size -= 1
        number = int(digits[:size])
        parts += [number if number <= group_count else "", digits[size:]]
    return parts if end == len(replacement) else None


def _replaced(texts: pa.LargeStringArray, translation: Translation, parts: Sequence[str | int]) -> pa.LargeStringArray:
    """Replace in so many texts as one call may match, or in one that is longer."""
    pattern = translation.for_re2
    if pattern is None or any(isinstance(part, int) and part > _RE2_GROUP_MAX for part in parts):
        return _in_process("re", translation.for_python, texts, parts)
    length, short = _length(texts), SHORT_RESULT if len(texts) == 1 else SHORT_RESULTS
    if most_characters(length, length, parts) > short:
        if length > _characters_at_once(translation):
            return _in_process("re2", pattern, texts, parts)
        matched = pc.sum(pc.count_substring_regex(texts, pattern)).as_py() or 0
        current().expect(CHARACTER_BYTES * most_characters(length, matched, parts), "REPLACE")
        current().check()
    return pc.replace_substring_regex(texts, pattern, rewrite_of(parts))


def _in_process(
    engine: pattern_process.Engine, pattern: str, texts: pa.LargeStringArray, parts: Sequence[str | int]
) -> pa.LargeStringArray:
    limits = current()
    before = limits.held
    made: list[str] = []
    for held in texts.to_pylist():
        made.append(pattern_process.replace(engine, pattern, held, parts))
        limits.hold(len(made[-1]), "REPLACE")
    limits.give_back(limits.held - before)  # for an array, which the caller holds
    return pa.array(made, TEXT)


FUNCTIONS: dict[str, Callable[..., Value | None]] = {"REGEX": _regex, "REPLACE": _replace}

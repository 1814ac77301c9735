"""REGEX and REPLACE (SPARQL 1.1, 17.4.3.14 and 15), for many texts at a time."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from wukongs.functions import backtracking
from wukongs.functions.pattern_parser import PatternError, Translation, translate
from wukongs.functions.strings import like, simple, text
from wukongs.limits import CHARACTER_BYTES, current
from wukongs.value_operators import from_truth
from wukongs.values import Value

log = logging.getLogger("wukongs")

PART_CHARACTERS = 1 << 20
"""So much text is matched in one call, which nothing can stop; a single text that is longer is matched as a whole."""
_REPLACEMENT = re.compile(r"\\([\\$])|\$([0-9]+)|([^\\$]+)")


@lru_cache(maxsize=1024)
def _translated(pattern: str, flags: str) -> Translation | None:
    """Translate a pattern; None, and one warning, for a wrong one: to a query that is an error of this row."""
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
    translation = _translated(pattern, flags)
    if translation is None:
        return None
    if translation.for_re2 is None:
        return backtracking.search(translation.for_python, texts)
    found: list[bool] = []
    for part in _parts(texts):
        current().check()
        array = pa.array(part, pa.large_string())
        found += pc.match_substring_regex(array, translation.for_re2).to_pylist()
    return found


def _parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of texts after each PART_CHARACTERS of them."""
    start = characters = 0
    for place, held in enumerate(texts):
        characters += len(held)
        if characters > PART_CHARACTERS:
            yield texts[start : place + 1]
            start, characters = place + 1, 0
    yield texts[start:]


def _regex(value: Value, pattern: Value, flags: Value | None = None) -> Value | None:
    held, wanted, modes = text(value), simple(pattern), "" if flags is None else simple(flags)
    if held is None or wanted is None or modes is None:
        return None
    found = matches([held], wanted, modes)
    return None if found is None else from_truth(found[0])


def _replace(value: Value, pattern: Value, replacement: Value, flags: Value | None = None) -> Value | None:
    """Replace every match. A pattern that matches nothing at all is an error, as in XPath."""
    held, wanted, by = text(value), simple(pattern), simple(replacement)
    modes = "" if flags is None else simple(flags)
    if held is None or wanted is None or by is None or modes is None:
        return None
    translation = _translated(wanted, modes)
    if translation is None or matches([""], wanted, modes) == [True]:
        return None
    parts = [by] if "q" in modes else _replacement_parts(by, translation.group_count)
    return None if parts is None else like(value, _replaced(held, translation, parts))


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


def _replaced(held: str, translation: Translation, parts: Sequence[str | int]) -> str:
    limits = current()
    is_long = len(held) > PART_CHARACTERS
    if is_long and translation.for_re2 is not None:
        matched = pc.count_substring_regex(pa.array([held], pa.large_string()), translation.for_re2)[0].as_py()
        constant = sum(len(part) for part in parts if isinstance(part, str))
        groups = sum(isinstance(part, int) for part in parts)
        limits.expect(CHARACTER_BYTES * ((1 + groups) * len(held) + matched * constant), "REPLACE")
        limits.check()
    if translation.for_re2 is not None and all(isinstance(part, str) or part <= 9 for part in parts):
        rewrite = "".join(part.replace("\\", r"\\") if isinstance(part, str) else f"\\{part}" for part in parts)
        replaced: str = pc.replace_substring_regex(pa.array([held], pa.large_string()), translation.for_re2, rewrite)[
            0
        ].as_py()
        return replaced

    pieces = []
    end = 0
    for match in limits.polled(backtracking.spans(translation.for_python, held)):
        made = [part if isinstance(part, str) else held[slice(*match[part])] for part in parts]
        limits.expect(CHARACTER_BYTES * sum(map(len, made)), "REPLACE")
        pieces += [held[end : match[0][0]], *made]
        end = match[0][1]
    return "".join([*pieces, held[end:]])


FUNCTIONS: dict[str, Callable[..., Value | None]] = {"REGEX": _regex, "REPLACE": _replace}

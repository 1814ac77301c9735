"""The classes of XPath's patterns as sets of characters: sorted disjoint ranges of code points."""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache

Ranges = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
EVERYTHING: Ranges = ((0, LAST),)

_GENERAL = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"),
    *("Zs", "Zl", "Zp", "Sm", "Sc", "Sk", "So", "Cc", "Cf", "Co", "Cn"),
)
"""The general categories of XML Schema: all of Unicode's but surrogates, which are no characters."""

# XML 1.0 (fifth edition), productions NameStartChar and NameChar.
_NAME_START: Ranges = (
    *((0x3A, 0x3A), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x2FF)),
    *((0x370, 0x37D), (0x37F, 0x1FFF), (0x200C, 0x200D), (0x2070, 0x218F), (0x2C00, 0x2FEF), (0x3001, 0xD7FF)),
    *((0xF900, 0xFDCF), (0xFDF0, 0xFFFD), (0x10000, 0xEFFFF)),
)
_NAME_MORE: Ranges = ((0x2D, 0x2E), (0x30, 0x39), (0xB7, 0xB7), (0x300, 0x36F), (0x203F, 0x2040))


def united(*parts: Ranges) -> Ranges:
    """Return the union of sets."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(item for part in parts for item in part):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """Return the characters that are not in a set."""
    gaps = []
    start = 0
    for first, last in ranges:
        if first > start:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return tuple(gaps)


def without(ranges: Ranges, removed: Ranges) -> Ranges:
    """Return the characters of one set that are not in another."""
    return complement(united(complement(ranges), removed))


@cache
def _categories() -> dict[str, Ranges]:
    """Read the ranges of all general categories off Python's Unicode tables, once (about half a second)."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in (*_GENERAL, "Cs")}
    category = unicodedata.category
    start, current = 0, category("\0")
    for code in range(1, LAST + 1):
        following = category(chr(code))
        if following != current:
            found[current].append((start, code - 1))
            start, current = code, following
    found[current].append((start, LAST))
    return {name: tuple(ranges) for name, ranges in found.items()}


@lru_cache(maxsize=256)
def category(name: str) -> Ranges | None:
    """Return a category such as Lu, or L for all that begin so; None if there is no such category."""
    names = [known for known in _GENERAL if known.startswith(name)] if name and len(name) <= 2 else []
    return united(*(_categories()[known] for known in names)) if names else None


@lru_cache(maxsize=16)
def escape_class(letter: str) -> Ranges | None:
    """Return the set of the multi-character escape of this letter: s i c d w; None for any other letter."""
    match letter:
        case "s":
            return ((0x9, 0xA), (0xD, 0xD), (0x20, 0x20))
        case "i":
            return _NAME_START
        case "c":
            return united(_NAME_START, _NAME_MORE)
        case "d":
            return category("Nd")
        case "w":
            others = [category(name) for name in "PZC"]
            return complement(united(*(ranges for ranges in others if ranges), _categories()["Cs"]))
    return None


@cache
def _case_variants() -> dict[str, frozenset[str]]:
    """Return the case variants of each character that has some: they are equal to it in lower or in upper case."""
    by_form: dict[str, set[str]] = {}
    for code in range(LAST + 1):
        character = chr(code)
        lower, upper = character.lower(), character.upper()
        if lower != character or upper != character:
            by_form.setdefault(f"lower {lower}", set()).add(character)
            by_form.setdefault(f"upper {upper}", set()).add(character)
    variants: dict[str, set[str]] = {}
    for group in by_form.values():
        for character in group:
            variants.setdefault(character, set()).update(group)
    return {character: frozenset(group) for character, group in variants.items() if len(group) > 1}


def any_case(ranges: Ranges) -> Ranges:
    """Add the case variants of all characters of a set."""
    added = []
    for first, last in ranges:
        if last < 128:
            added += [(first, last)]
            for code in range(first, last + 1):
                other = ord(chr(code).swapcase())
                added.append((other, other))
                added += {"k": [(0x212A, 0x212A)], "s": [(0x17F, 0x17F)]}.get(chr(code).lower(), [])
        else:
            added.append((first, last))
            added += [
                (ord(variant), ord(variant))
                for character, group in _case_variants().items()
                if first <= ord(character) <= last
                for variant in group
            ]
    return united(tuple(added))

"""The process that matches patterns for pattern_process.py. Run by its path; needs nothing of ours.

Standard input is requests, standard output their answers, each a line of JSON and then bytes as the line says:

    {"engine": "re" | "re2", "pattern": p, "sizes": [...]}       texts of so many bytes of UTF-8, one after the other
    -> {"size": n}                                               n bytes, one for each text: 1 if a part of it matches
    {..., "parts": [text or number of a group, ...], "characters_max": m}     one text, whose matches are replaced
    -> {"size": n} and n bytes of UTF-8, or {"characters": c} if the result would have c characters, more than m (null:
       any number is good)

Ends with standard input.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

Parts = Sequence["str | int"]


def main() -> None:
    taken, given = sys.stdin.buffer, sys.stdout.buffer
    while line := taken.readline():
        request = json.loads(line)
        texts = [str(taken.read(size), "utf-8", "surrogatepass") for size in request["sizes"]]
        module: Any = _Re if request["engine"] == "re" else _Re2
        if "parts" not in request:
            _answer(given, bytes(module.search(request["pattern"], texts)))
            continue
        found = module.replace(request["pattern"], texts[0], request["parts"], request["characters_max"])
        if isinstance(found, int):
            given.write(json.dumps({"characters": found}).encode() + b"\n")
            given.flush()
        else:
            _answer(given, found.encode("utf-8", "surrogatepass"))


def _answer(given: BinaryIO, content: bytes) -> None:
    given.write(json.dumps({"size": len(content)}).encode() + b"\n")
    given.write(content)
    given.flush()


class _Re:
    """Python's re, for patterns that need backtracking."""

    @staticmethod
    def search(pattern: str, texts: Sequence[str]) -> list[bool]:
        compiled = re.compile(pattern)
        return [compiled.search(text) is not None for text in texts]

    @staticmethod
    def replace(pattern: str, text: str, parts: Parts, characters_max: int | None) -> str | int:
        pieces: list[str] = []
        end = characters = 0
        for match in re.compile(pattern).finditer(text):
            made = [part if isinstance(part, str) else match[part] or "" for part in parts]
            pieces += [text[end : match.start()], *made]
            characters += match.start() - end + sum(map(len, made))
            end = match.end()
            if characters_max is not None and characters > characters_max:
                return characters
        return "".join([*pieces, text[end:]])


class _Re2:
    """RE2, for texts and patterns that take long though they take linear time."""

    @staticmethod
    def search(pattern: str, texts: Sequence[str]) -> list[bool]:
        import pyarrow as pa
        import pyarrow.compute as pc

        found: list[bool] = pc.match_substring_regex(pa.array(texts, pa.large_string()), pattern).to_pylist()
        return found

    @staticmethod
    def replace(pattern: str, text: str, parts: Parts, characters_max: int | None) -> str | int:
        import pyarrow as pa
        import pyarrow.compute as pc

        array = pa.array([text], pa.large_string())
        if characters_max is not None:
            matched = pc.count_substring_regex(array, pattern)[0].as_py()
            characters = most_characters(len(text), matched, parts)
            if characters > characters_max:
                return characters
        replaced: str = pc.replace_substring_regex(array, pattern, rewrite_of(parts))[0].as_py()
        return replaced


def rewrite_of(parts: Parts) -> str:
    """Write a replacement for RE2."""
    return "".join(part.replace("\\", r"\\") if isinstance(part, str) else f"\\{part}" for part in parts)


def most_characters(length: int, matched: int, parts: Parts) -> int:
    """Return how long a text may become by replacing so many matches: the groups of all of them have its length."""
    groups = sum(isinstance(part, int) for part in parts)
    return (1 + groups) * length + matched * sum(len(part) for part in parts if isinstance(part, str))


if __name__ == "__main__":
    main()

"""The other side of README.md's JSON lines, for an engine that is written in Python."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from wukongs.bench.peers import CannotSay, Rows

_ESCAPED = re.compile(r"\\(?:\\|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")


class Engine(Protocol):
    """Any error that a call raises is answered, and the engine asked further questions."""

    def load(self, path: Path) -> None:
        """Make the N-Triples of a file the default graph."""

    def window(self, graphs: Mapping[str, str]) -> None:
        """Make these the named graphs, each as N-Triples."""

    def select(self, text: str) -> Rows:
        """Raises CannotSay."""


def answer_lines(name: str, version: str, engine: Engine) -> None:
    """Answer all that comes on standard input, until its end. The prints of others go to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        message = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if message["do"] == "hello":
                answer = {"name": name, "version": version}
            elif message["do"] == "load":
                engine.load(Path(message["path"]))
            elif message["do"] == "window":
                engine.window(message["graphs"])
            else:
                answer = {"rows": engine.select(message["query"])}
        except CannotSay as error:
            answer = {"cannot": str(error)}
        except Exception as error:
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def split_triples(lines: str) -> list[tuple[str, str, str]]:
    """Return the distinct triples of N-Triples, each term as it stands there, but for characters escaped by number."""
    found = dict.fromkeys(line for line in lines.split("\n") if line and not line.isspace())
    return [split_triple(line) for line in found]


def split_triple(line: str) -> tuple[str, str, str]:
    if "\\u" in line or "\\U" in line:
        line = _ESCAPED.sub(_decoded, line)
    subject, predicate, rest = line.split(" ", 2)
    return subject, predicate, rest.rstrip(" .")


def _decoded(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    character = chr(int(digits, 16)) if digits else "\\"
    return found[0] if character < " " or character in '"\\' else character

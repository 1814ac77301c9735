"""Where rules come from: a set that wukongs brings along, by its name; a file; a text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from wukongs.csparql.parser_rules import ParsedRule, parse_rules
from wukongs.errors import RuleError
from wukongs.rules.program import rules_of

RuleSource = str | os.PathLike[str]
SHIPPED = ("owl-rl", "rdfs")
"""The names of the sets in library/."""

_RULE = re.compile(r"\bRULE\s", re.IGNORECASE)
_PATH = re.compile(r"[/\\]|\.rules$")


def read_rules(source: RuleSource) -> tuple[ParsedRule, ...]:
    """Parse the rules of a source: a path, or a str that is the name of a shipped set, a text with RULE, or a path.

    Raises RuleError (no such set; a file that cannot be read; no rule in it; all that parse_rules, rules_of and no rule
    may say); QuerySyntaxError (place)."""
    text, file = _text_of(source)
    found = parse_rules(text, file=file)
    if not found:
        raise RuleError("RULE name: CONSTRUCT { template } WHERE { pattern }", "no rule", file or "rules")
    for rule in found:
        if rule.standing is None:
            rules_of(rule)  # what is refused is told with its place here: later a rule is a text of its own
    return found


def read_all(sources: Iterable[RuleSource]) -> tuple[ParsedRule, ...]:
    """Parse the rules of several sources, which become one program. Raises as read_rules, also for a name that two
    of them have."""
    found: dict[str, ParsedRule] = {}
    for source in sources:
        for rule in read_rules(source):
            other = found.setdefault(rule.name, rule)
            if other is not rule:
                raise rule.error("a name that no other rule has", f"{rule.name!r}, as in {other.source}")
    return tuple(found.values())


def _text_of(source: RuleSource) -> tuple[str, str | None]:
    """Return the text of a source and how errors call it."""
    if isinstance(source, os.PathLike):
        return _file_text(Path(source)), os.fspath(source)
    if not isinstance(source, str):
        raise RuleError(_A_SOURCE, type(source).__name__)
    if source in SHIPPED:
        return (files("wukongs.rules") / "library" / f"{source}.rules").read_text("utf-8"), f"{source}.rules"
    if _RULE.search(source):
        return source, None
    if _PATH.search(source) or os.path.exists(source):
        return _file_text(Path(source)), source
    near = get_close_matches(source.lower(), SHIPPED, 1)
    raise RuleError(_A_SOURCE, f"{source!r:.100}", suggestion=f"did you mean {near[0]!r}?" if near else "")


_A_SOURCE = f"the name of a set of rules ({', '.join(SHIPPED)}), a text with RULE, or the path of a rule file"


def _file_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RuleError("a rule file", "no such file", str(path)) from None
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise RuleError("a rule file that can be read", found, str(path)) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        start = content.rfind(b"\n", 0, error.start) + 1
        column = len(content[start : error.start].decode("utf-8", "replace")) + 1
        found = f"the byte 0x{content[error.start]:02X}"
        raise RuleError("a text in UTF-8", found, str(path), line, column, suggestion="save it as UTF-8") from None

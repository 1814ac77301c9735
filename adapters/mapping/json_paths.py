"""JSON paths of names, places and `[*]`, as RML mappings have them: `$.items[*].sku`, `$['ISO 3166'][0]`.

A path always selects lists of one depth: each `[*]` makes a list with one entry per element, and its end makes the list
of values. So the values of `$.items[*].sku` and `$.items[*].price` belong together, entry by entry.

Source: RFC 9535, of which slices, unions, filters and `..` are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from wukongs.errors import DataError

Step = str | int | None
"""The name of a key, the place of an element (from the end if negative), or None for every element."""

_STEP = re.compile(
    r"""\.?\[\s*(?:'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<place>-?\d+)|(?P<every>\*))\s*\]"""
    r"""|\.(?P<all>\*)|\.(?P<name>[^.\[\]{}*?@()]+)"""
)
_PLAIN = re.compile(r"[^\W\d][\w-]*")
_ROOT = re.compile(r"[$@](?=$|[.\[])")


def is_json_path(name: str) -> bool:
    """Tell the name of a column that is a JSON path from other names."""
    return name.startswith("$") and _ROOT.match(name) is not None


def parse_json_path(text: str) -> tuple[Step, ...]:
    """Return the steps of a path; `$` may be left out before a name. Raises: DataError (another path)."""
    rest = text.strip()
    if _ROOT.match(rest):
        rest = rest[1:]
    elif rest and rest[0] not in ".[":
        rest = "." + rest
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise DataError(f"expected a JSON path of names, [*] and [number], found {text!r}")
        if match["place"]:
            steps.append(int(match["place"]))
        elif match["every"] or match["all"]:
            steps.append(None)
        else:
            quoted = match["single"] if match["single"] is not None else match["double"]
            steps.append(match["name"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    return tuple(steps)


def key_of(name: str) -> str | None:
    """Return the key that a path names if it is `$` and one key, None for any other."""
    steps = parse_json_path(name)
    return steps[0] if len(steps) == 1 and isinstance(steps[0], str) else None


def json_path(steps: tuple[Step, ...]) -> str:
    """Return the one text of a path: the name of its column."""
    return "$" + "".join(_written(step) for step in steps)


def _written(step: Step) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN.fullmatch(step):
        return "." + step
    return "['" + step.replace("\\", "\\\\").replace("'", "\\'") + "']"


def select_values(value: Any, steps: tuple[Step, ...], values_of: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the values that a path selects of a parsed document, in lists. values_of: makes those of a last node."""
    for at, step in enumerate(steps):
        if step is None:
            return [select_values(child, steps[at + 1 :], values_of) for child in _children(value)]
        value = value.get(step) if isinstance(value, dict) else _child(value, step)
    return values_of(value)


def count_nodes(value: Any, steps: tuple[Step, ...]) -> int:
    """Return the number of nodes that a path selects, null ones among them."""
    for at, step in enumerate(steps):
        if step is None:
            return sum(count_nodes(child, steps[at + 1 :]) for child in _children(value))
        value = _child(value, step)
    return 1


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _child(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    if isinstance(value, list) and -len(value) <= step < len(value):
        return value[step]
    return None


def column_of(name: str) -> str:
    """Return the name that a column of Arrow has for a path: `items[].sku` for `$.items[*].sku`.

    Raises: DataError (a path that no column has)."""
    found = ""
    for step in parse_json_path(name):
        if isinstance(step, int):
            raise DataError(f"expected a JSON path of names and [*], found {name!r}: a column has no places")
        found += "[]" if step is None else f".{step}"
    return found.removeprefix(".")

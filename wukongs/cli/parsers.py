"""CommandParser: how all commands read their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NoReturn


class CommandParser(argparse.ArgumentParser):
    """Help texts keep their lines, options are not abbreviated, and a misspelt one is told its nearest name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)
        self._given: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        known = [name for action in self._actions for name in action.option_strings]
        told = [one.partition("=")[0] for one in self._given if one.startswith("--")]
        near = {one: get_close_matches(one, known, 1, 0.75) for one in told if one not in known}
        hints = [f"{names[0]} for {one}" for one, names in near.items() if names]
        super().error(message + (f"; did you mean {', '.join(hints)}?" if hints else ""))


def integer_from(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return the argparse type of integers from `low` on, up to `high`."""
    expected = f"from {low} on" if high is None else f"from {low} to {high}"

    def read(text: str) -> int:
        if text.isdecimal() and low <= int(text) and (high is None or int(text) <= high):
            return int(text)
        raise argparse.ArgumentTypeError(f"expected an integer {expected}, found {text!r}")

    return read


def read_iri(text: str) -> str:
    """Return an IRI without angle brackets: an argparse type."""
    from wukongs.errors import DataError
    from wukongs.query.terms.names import plain_iri

    try:
        return plain_iri(text)
    except DataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

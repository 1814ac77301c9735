"""Stories as a simulator for mutants: seed n tells story n."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def outcome(stories: Sequence[Callable[[], None]], seed: int) -> str | None:
    """Tell the story with this number; return what went wrong."""
    try:
        stories[seed % len(stories)]()
    except AssertionError as error:
        return str(error) or repr(error)
    return None

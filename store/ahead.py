"""Reading ahead: what comes next is made in a thread of its own while what came is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T], thread: str) -> Iterator[T]:
    """Yield items; the next one is made meanwhile, in a thread of this name. Raises what making one has raised, behind
    those before it."""
    nothing = object()
    with ThreadPoolExecutor(1, thread) as making:
        coming = making.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = making.submit(next, items, nothing)
            yield item  # type: ignore[misc]

"""The rule by which a read of a cluster may be answered, and the newest SN that its client was told.

* `LATEST`: the read misses no change that was acknowledged before it began, to whomever (docs/protocol.md, section 10).
* `LOCAL`: the read sees what its node has, which may be old if the node is cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args

from wukongs.errors import SettingsError

Consistency: TypeAlias = Literal["latest", "local"]
LATEST: Consistency = "latest"
LOCAL: Consistency = "local"


class _Current(threading.local):
    told_sn: int | None = None


_CURRENT = _Current()


def told_sn() -> int | None:
    """Return the newest SN that was told to the client for whom this thread reads: it reads nothing older."""
    return _CURRENT.told_sn


@contextmanager
def reading_from(told_sn: int | None) -> Iterator[None]:
    """Let this thread read for a client that was told an SN."""
    before, _CURRENT.told_sn = _CURRENT.told_sn, told_sn
    try:
        yield
    finally:
        _CURRENT.told_sn = before


def check_consistency(value: object) -> None:
    """Raise SettingsError for a value that names no rule."""
    if value not in get_args(Consistency):
        raise SettingsError(f'consistency = {value!r:.100}: expected "latest" or "local"')

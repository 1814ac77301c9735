"""CompiledFirings: the compiled queries that are due at one time, alike or not, run by one kernel call."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from wukongs.errors import WukongsError
from wukongs.live.core import Core
from wukongs.live.firing import Firing
from wukongs.query.limits import Limits, limits_of
from wukongs.query.memory import Kind
from wukongs.query.plans.compiled import CompiledQueries, CompiledQuery

log = logging.getLogger("wukongs")
FIRINGS_MAX = 100
"""The firings that are picked under one hold of the engine's lock, and run by one call, at most."""
KEPT_MAX = 1000
"""So many sets of queries are kept ready; with one more all are forgotten."""


class CompiledFirings:
    """Called by the thread that fires."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._kept: dict[tuple[CompiledQuery, ...], CompiledQueries] = {}
        """Most sets of queries are due together again and again."""

    def forget(self) -> None:
        """Keep nothing ready: queries have come or gone. From any thread."""
        self._kept.clear()

    def ran(self, firings: Sequence[Firing]) -> Sequence[Firing]:
        """Return firings at one time, which read one snapshot, with the answers of compiled queries: these come
        first, since they need not wait for others.

        They are as before if there is nothing to share, or if one of them exceeds its limits: then each is run alone,
        and finds its own error."""
        asked = [one for one in firings if not (one.is_repeated or one.is_maintained)]
        found = [(one, query) for one in asked if (query := one.whole) is not None]
        if len(found) < 2:
            return firings
        try:
            answers = self._together(tuple([query for _, query in found])).run(self._limits)
            columns = [answers.columns(number) for number in range(len(found))]
        except Exception as error:
            # One without a name is a mistake of ours, which each query tells of if it meets it again.
            level = logging.DEBUG if isinstance(error, WukongsError | MemoryError) else logging.ERROR
            log.log(level, "%d compiled queries could not be run together", len(found), exc_info=True)
            return firings
        for (firing, _), own in zip(found, columns, strict=True):
            firing.columns = own
        return sorted(firings, key=lambda one: one.columns is None)

    def _limits(self) -> Limits:
        return limits_of(self._core.settings, None, kind=Kind.FIRING)

    def _together(self, queries: tuple[CompiledQuery, ...]) -> CompiledQueries:
        found = self._kept.get(queries)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = self._kept[queries] = CompiledQueries(queries, self._core.windows.workspace)
        return found

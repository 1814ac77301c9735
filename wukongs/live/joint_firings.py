"""Joint firings: the programs of queries that are due at one time, alike or not, run by one kernel call.

Most of them are direct: the rows of the program are the window, and nothing is compared with the firing before. Such
a firing is an entry of DirectFirings, and its WindowResult is made when it is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wukongs.live.answer_cache import AnswerCache, CachedAnswer
from wukongs.live.answering import answer_of
from wukongs.live.firing import Firing
from wukongs.live.query_counts import ALONE, REPEATED, TOGETHER
from wukongs.live.query_firings import QueryFirings
from wukongs.live.query_windows import Reading
from wukongs.query.programs.program import Program, run_together
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_registry import TermReader

log = logging.getLogger("wukongs")
FIRINGS_MAX = 100
"""The firings that are picked under one hold of the engine's lock, and run by one call, at most."""


@dataclass(slots=True, eq=False)
class DirectFirings:
    """The direct firings of queries of one beat at one time.

    reading   The windows and the snapshot that all of them read.
    reader    Reads the terms of the data.
    firings   The query of each, its answer, and its program if that finds the answer; empty after `report`."""

    at_ms: int
    reading: Reading
    reader: TermReader
    firings: list[tuple[QueryFirings, CachedAnswer, Program | None]]
    latency_us: float = 0.0

    @classmethod
    def pick(
        cls, queries: Sequence[QueryFirings], at_ms: int, next_ms: int, reading: Reading, reader: TermReader
    ) -> DirectFirings:
        """Pick direct firings. Called with the engine's lock held.

        queries   Those of one schedule class (beat) that are due.
        at_ms     The time of the firings, event time in ms.
        next_ms   The time of the next firings."""
        versions = None if reading.sn is not None else queries[0].windows.versions(reading)
        firings = [(query, *query.pick_directly(at_ms, next_ms, reading, versions)) for query in queries]
        return cls(at_ms, reading, reader, firings)

    def report(self, share_us: float, due_at_s: float, *, is_together: bool) -> list[Firing]:
        """Report the windows whose answers are found, and return the other firings.

        share_us      The share of a program in the time of the kernel call, in microseconds.
        due_at_s      The perf_counter at which they were due.
        is_together   Whether the call has run several programs."""
        left, at_ms = list[Firing](), self.at_ms
        self.latency_us = latency_us = (time.perf_counter() - due_at_s) * 1e6
        for query, cached, program in self.firings:
            if cached.answered is None:
                is_repeated = program is None
                left.append(query.firing_of(at_ms, self.reading, self.reader, cached, is_repeated=is_repeated))
            elif not query.is_closed:
                way = REPEATED if program is None else TOGETHER if is_together else ALONE
                query.report_directly(self, cached, way, 0.0 if program is None else share_us, latency_us)
        self.firings = []  # a window that nobody reads holds this object, and no answers of others
        return left


@dataclass(slots=True, eq=False)
class DueFirings:
    """Firings that are picked under one hold of the lock, and read one snapshot."""

    direct: list[DirectFirings] = field(default_factory=list)
    others: list[Firing] = field(default_factory=list)

    def are_quick_with(self, room: int) -> bool:
        """Whether the last firing of each query was short. Direct firings are, and those that find room in the slow
        lane.

        room    For how many firings it has room."""
        offloaded = sum(one.is_offloaded for one in self.others)
        return offloaded <= max(0, room) and all(one.query.is_quick or one.is_offloaded for one in self.others)

    def __len__(self) -> int:
        return len(self.others) + sum(len(one.firings) for one in self.direct)


def run_jointly(due: DueFirings, answers: AnswerCache, due_at_s: float, told: Callable[[], None]) -> Sequence[Firing]:
    """Run the programs of firings in one call, report the direct firings, and return the others.

    Firings whose rows the call has found come first. Called by the owner of the turn, without locks.

    due        The firings.
    answers    Keeps the answers of direct firings.
    due_at_s   The perf_counter at which they were due.
    told       Called after each batch of reports."""
    began_s = time.perf_counter()
    wanted = [
        (one, query, cached, program)
        for one in due.direct
        for query, cached, program in one.firings
        if program is not None and program.may_run_together()
    ]
    found = [
        (one, program)
        for one in due.others
        if (program := one.program) is not None
        and not (one.is_repeated or one.is_maintained)
        and program.may_run_together()
    ]
    programs = [*(program for *_, program in wanted), *(program for _, program in found)]
    results: Sequence[Int64Array | None] = ()
    if len(programs) > 1 or wanted:
        try:
            results = run_together(programs, (wanted[0][0] if wanted else found[0][0]).reader)
        except Exception as error:
            # A mistake of ours, which each query reports if it meets it again.
            level = logging.DEBUG if isinstance(error, MemoryError) else logging.ERROR
            log.log(level, "%d programs could not be run together", len(programs), exc_info=True)
    share_us = (time.perf_counter() - began_s) * 1e6 / max(1, len(programs))
    if results:
        for (direct, query, cached, program), rows in zip(wanted, results, strict=False):
            if rows is not None:
                terms = query.terms_of(program, rows, direct) if program.has_computed else None
                answers.keep(cached, answer_of(program.query, tuple(rows), rows.shape[1]), terms or direct.reader)
        for (firing, _), rows in zip(found, results[len(wanted) :], strict=True):
            firing.rows, firing.joint_us = rows, share_us
    others = [*due.others]
    for direct in due.direct:
        others += direct.report(share_us, due_at_s, is_together=len(programs) > 1)
        told()
    return others if len(others) < 2 else sorted(others, key=lambda one: one.rows is None)

"""Asking: questions to several nodes at the same time, each over a connection that nobody else uses meanwhile.

The asking thread itself sends and waits, so an answer wakes it and no other thread. A connection on which an answer is
missing is closed rather than kept, so no late answer meets another question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.live.header import Frame
from wukongs.wire.codec import ANSWER, packet_of, read_packet_header
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import REFUSED, error_in
from wukongs.wire.traffic import WireTraffic
from wukongs.wire.transport import LOOK_MS, AskingLine, lines_with_news

_REACHING = "Check that it runs there, and that each side knows the other's key"

REACH_S = 5.0
"""The time that a connection may take: a living node takes one at once, however long the answer takes."""


class Question(NamedTuple):
    """name: the node's name in errors; address: of the lines over which it may be asked; connect: makes one more of
    these, or one to another address of the node; frames: a packet with this sequence number; on_stranger: called when
    the node refuses it since it does not know the asker."""

    name: str
    address: str
    connect: Callable[[], AskingLine]
    sequence: int
    frames: Sequence[Frame]
    on_stranger: Callable[[], object] = lambda: None


class Asker:
    """Connections to any number of addresses, made as they are needed and kept; at most asks_max asks at a time."""

    def __init__(self, traffic: WireTraffic, asks_max: int) -> None:
        self._traffic = traffic
        self._permits = threading.BoundedSemaphore(asks_max)
        self._asks_max = asks_max
        self._lock = threading.Lock()
        self._idle: dict[str, list[AskingLine]] = {}
        self._is_closed = False

    def ask(
        self,
        questions: Sequence[Question],
        timeout_s: float,
        meanwhile: Callable[[], object] = lambda: None,
        begun_s: float | None = None,
    ) -> list[Packet]:
        """Return the answers in the order of the questions. meanwhile: called once all are asked
        that can be reached. begun_s: from when on timeout_s counts (time.monotonic()), None: from now on.

        Raises: NodeUnavailable; whatever error a node answers, the first one when no other is at it any more; DataError
        (an answer that is none); what `meanwhile` raises."""
        deadline_s = (time.monotonic() if begun_s is None else begun_s) + timeout_s
        left_s = max(0.0, deadline_s - time.monotonic())
        if not (self._permits.acquire(blocking=False) or self._permits.acquire(timeout=left_s)):
            raise NodeUnavailable(
                f"{questions[0].name}: not asked within {timeout_s:g} s, since {self._asks_max} other questions wait "
                "for answers. Ask again when there are fewer"
            )
        lines: list[AskingLine] = []
        waiting: dict[int, AskingLine] = {}
        try:
            lines.extend(map(self._borrow, questions))
            waiting = dict(enumerate(lines))
            unreached = self._send(questions, waiting, deadline_s, timeout_s)
            meanwhile()
            if unreached is not None:
                raise unreached
            return self._answers(questions, waiting, deadline_s, timeout_s)
        finally:
            unanswered = set(waiting.values())
            for question, line in zip(questions, lines, strict=False):  # of the last ones there may be no lines
                self._give_back(question, line, line not in unanswered)
            self._permits.release()

    def keep_only(self, addresses: set[str]) -> None:
        """Close the idle connections to other addresses than these."""
        with self._lock:
            others = [line for address in set(self._idle) - addresses for line in self._idle.pop(address)]
        for line in others:
            line.close()

    def close(self) -> None:
        """Close all connections; a caller that waits for an answer is told within a moment."""
        self._is_closed = True
        self.keep_only(set())

    def _send(
        self, questions: Sequence[Question], waiting: Mapping[int, AskingLine], deadline_s: float, timeout_s: float
    ) -> NodeUnavailable | None:
        """Send each question as soon as its line takes it; one that does not take it in time keeps none of the others
        from being asked. Return the error that names the first such one."""
        reach_s = min(timeout_s, REACH_S)
        until_s = min(deadline_s, time.monotonic() + reach_s)
        unsent = dict(enumerate(questions))
        while unsent:
            for place, question in list(unsent.items()):
                if waiting[place].send(question.frames, LOOK_MS):
                    self._traffic.sent(question.frames)
                    del unsent[place]
                else:
                    self._check_is_open(question)
            if unsent and time.monotonic() >= until_s:
                name = next(iter(unsent.values())).name
                return NodeUnavailable(f"{name}: cannot be reached within {reach_s:g} s. {_REACHING}")
        return None

    def _answers(
        self, questions: Sequence[Question], waiting: dict[int, AskingLine], deadline_s: float, timeout_s: float
    ) -> list[Packet]:
        """Take answers until there is one to each question; `waiting` loses those that are answered."""
        answers: dict[int, Packet] = {}
        refused: WukongsError | None = None
        while waiting:
            news = waiting.values() if len(waiting) == 1 else lines_with_news(list(waiting.values()), deadline_s)
            come = {line: frames for line in news if (frames := line.receive(deadline_s)) is not None}
            for place, line in list(waiting.items()):
                if line in come:
                    self._traffic.received(come[line])
                    answers[place] = _answer(questions[place], come[line])
                    del waiting[place]
                    if answers[place].kind == REFUSED and answers[place].fields.get("is_stranger") is True:
                        questions[place].on_stranger()
                    if refused is None and (refused := error_in(answers[place])) is not None:
                        refused.add_note(f"answered by {questions[place].name}")
                else:
                    self._check_hope(questions[place], line, deadline_s, timeout_s, refused)
        if refused is not None:
            raise refused
        return [answers[place] for place in range(len(questions))]

    def _check_hope(
        self, question: Question, line: AskingLine, deadline_s: float, timeout_s: float, refused: WukongsError | None
    ) -> None:
        """Raise what ends the waiting for an answer; refused: by another node, which says more."""
        self._check_is_open(question)
        if refused is not None and (time.monotonic() >= deadline_s or not line.is_connected()):
            raise refused
        if not line.is_connected():
            raise NodeUnavailable(
                f"{question.name}: the connection was lost before the answer came. Ask again when it is back"
            )
        if time.monotonic() >= deadline_s:
            slow = NodeUnavailable(
                f"{question.name}: no answer within {timeout_s:g} s. Allow more time, or check what it is busy with"
            )
            slow.is_slow = True
            raise slow

    def _check_is_open(self, question: Question) -> None:
        if self._is_closed:
            raise NodeUnavailable(f"{question.name}: this side was closed before the answer came")

    def _borrow(self, question: Question) -> AskingLine:
        with self._lock:
            if self._is_closed:
                raise NodeUnavailable(f"{question.address}: this side is closed")
            idle = self._idle.get(question.address)
            while idle:
                line = idle.pop()
                if line.is_connected():
                    return line
                line.close()
            self._close_lost()
        return question.connect()

    def _close_lost(self) -> None:
        """Close the idle connections that are lost, most of all those to where a node was before: nobody would ever ask
        for them."""
        for address, lines in list(self._idle.items()):
            kept = []
            for line in lines:
                if line.is_connected():
                    kept.append(line)
                else:
                    line.close()
            self._idle[address] = kept
            if not kept:
                del self._idle[address]

    def _give_back(self, question: Question, line: AskingLine, is_good: bool) -> None:
        with self._lock:
            # One to another address was made though there may have been idle ones to that.
            is_wanted = line.address == question.address or not self._idle.get(line.address)
            if is_good and is_wanted and not self._is_closed:
                self._idle.setdefault(line.address, []).append(line)
                return
        line.close()


def _answer(question: Question, frames: Sequence[Frame]) -> Packet:
    try:
        header = read_packet_header(frames)
        if header.way != ANSWER or header.sequence != question.sequence:
            raise DataError(f"expected the answer {question.sequence}, found {header.way} {header.sequence}")
        return packet_of(header, frames)
    except DataError as error:
        raise DataError(f"{question.name}: {error.message}") from None

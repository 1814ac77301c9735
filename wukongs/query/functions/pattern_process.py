"""Patterns that may take long, matched in a process of their own: a call of `re` or RE2 cannot be stopped.

Python's `re`, for back-references and long repetitions, can take for ever and lets no other thread run meanwhile. RE2
is linear in the text, at up to some 50 us a character for a large pattern: a minute for a long text. The process can be
ended, so that a query that is out of time ends, and the engine goes on.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from wukongs.errors import BudgetExceeded
from wukongs.query.limits import CHARACTER_BYTES, current

Engine = Literal["re", "re2"]
_WORKER = Path(__file__).with_name("pattern_worker.py")
_POLL_MS = 20
_PIECE = 1 << 20
"""Characters and bytes that are handed over between two looks at the clock."""
_idle: deque[_Worker] = deque()
"""Those that wait for the next request; as many as were asked at once."""


def search(engine: Engine, pattern: str, texts: Sequence[str]) -> list[bool]:
    """Tell of each text whether a part of it matches. Raises QueryTimeout, BudgetExceeded."""
    _, answer = _ask({"engine": engine, "pattern": pattern}, texts)
    return [held == "\1" for held in answer]


def replace(engine: Engine, pattern: str, text: str, parts: Sequence[str | int]) -> str:
    """Replace all matches in a text by parts: texts, and groups of the match. Raises QueryTimeout, BudgetExceeded."""
    limits = current()
    left = None if limits.bytes_max is None else max(0, limits.bytes_max - limits.held) // CHARACTER_BYTES
    request = {"engine": engine, "pattern": pattern, "parts": list(parts), "characters_max": left}
    header, answer = _ask(request, [text])
    if "characters" in header:
        limits.expect(CHARACTER_BYTES * int(header["characters"]), "REPLACE")
    return answer


def _ask(request: dict[str, Any], texts: Sequence[str]) -> tuple[dict[str, Any], str]:
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    try:
        answer = worker.ask(request, texts)
    except BaseException:
        worker.end()
        raise
    _idle.append(worker)
    return answer


class _Worker:
    """One process. Reads and writes wait in short turns and look at the clock after each."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", str(_WORKER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)

    def end(self) -> None:
        """End the process, whatever it is at."""
        self._process.kill()
        with contextlib.suppress(OSError):
            self._process.communicate()

    def ask(self, request: dict[str, Any], texts: Sequence[str]) -> tuple[dict[str, Any], str]:
        """Send a request and its texts; return the line and the content of its answer."""
        encoded = [list(_encoded(text)) for text in texts]
        header = {**request, "sizes": [sum(map(len, pieces)) for pieces in encoded]}
        self._write(json.dumps(header).encode() + b"\n")
        for piece in _gathered(piece for pieces in encoded for piece in pieces):
            self._write(piece)
        received = b""
        while b"\n" not in received:
            received += self._read()
        line, _, received = received.partition(b"\n")
        answer = json.loads(line)
        left = int(answer.get("size", 0)) - len(received)
        decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        decoded = [decoder.decode(received)]
        while left > 0:
            received = self._read()
            left -= len(received)
            decoded.append(decoder.decode(received))
        return answer, "".join(decoded)

    def _write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            _wait(self._to, select.POLLOUT)
            try:
                rest = rest[os.write(self._to, rest) :]
            except BrokenPipeError:
                raise _ended() from None

    def _read(self) -> bytes:
        _wait(self._from, select.POLLIN)
        received = os.read(self._from, _PIECE)
        if not received:
            raise _ended()
        return received


def _wait(pipe: int, event: int) -> None:
    """Wait until a pipe can be read or written, or its other end is gone. Raises QueryTimeout."""
    limits = current()
    limits.check()
    poll = select.poll()
    poll.register(pipe, event)
    while not poll.poll(_POLL_MS):
        limits.check()


def _encoded(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), _PIECE):
        current().check()
        yield text[start : start + _PIECE].encode("utf-8", "surrogatepass")


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join short pieces to long ones: a call for each of many short texts would take longer than the texts."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _ended() -> BudgetExceeded:
    return BudgetExceeded(
        "the process that matches the pattern of REGEX or REPLACE ended, most likely for want of memory: match shorter "
        "texts, or a smaller pattern"
    )

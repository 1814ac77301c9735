"""An engine that runs as its own process: one JSON object a line in, one out. README.md has the messages."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from wukongs.bench.peers import CannotSay, PeerFailed, PeerMissing, Rows, TooSlow

VERSION = 1
ANSWER_S, LOAD_S = 60.0, 1800.0
"""How long one answer, and loading, may take."""
_LAST_CHARACTERS = 300
_END_S = 10.0
_PIPE_BYTES = 32_768
"""So much goes into a pipe that nobody reads."""


class External:
    """A command that speaks the messages of README.md. The end of its standard error is told when it fails."""

    def __init__(self, name: str, command: str, answer_s: float = ANSWER_S) -> None:
        self.name = name
        self._answer_s = answer_s
        self._ended = ""
        self._folder = tempfile.TemporaryDirectory(prefix="wukongs-peer-")
        self._errors = (Path(self._folder.name) / "stderr").open("w+b")
        try:
            self._process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # Ctrl-C is ours: we end it, with all that it has started
            )
        except (OSError, ValueError) as error:
            self._clean_up()
            raise PeerMissing(
                f"{name}: {error}: give a command that starts it, as in --peers '{name}=COMMAND'"
            ) from None
        assert self._process.stdin is not None, command
        assert self._process.stdout is not None, command
        self._input = self._process.stdin
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        try:
            self.version = str(self._ask({"do": "hello", "version": VERSION}, answer_s).get("version", ""))
        except (PeerFailed, TooSlow) as error:
            self.close()
            raise PeerMissing(str(error) or f"{name}: no answer to hello within {answer_s:g} s") from None
        except BaseException:  # such as Ctrl-C: nobody has the engine yet who would end it
            self._kill()
            self.close()
            raise

    def load(self, ntriples: bytes) -> None:
        path = Path(self._folder.name) / "stored.nt"
        path.write_bytes(ntriples)
        self._ask({"do": "load", "path": str(path)}, LOAD_S)
        path.unlink(missing_ok=True)

    def window(self, graphs: Mapping[str, bytes]) -> None:
        self._ask({"do": "window", "graphs": {name: lines.decode() for name, lines in graphs.items()}}, self._answer_s)

    def select(self, text: str) -> Rows:
        answer = self._ask({"do": "select", "query": text}, self._answer_s)
        if "cannot" in answer:
            raise CannotSay(str(answer["cannot"]))
        rows = answer.get("rows")
        if not isinstance(rows, list) or not all(map(_is_row, rows)):
            raise PeerFailed(f"{self.name}: expected rows, lists of texts and null, found {str(rows)[:100]}")
        return [tuple(row) for row in rows]

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._input.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        self._reader.join(_END_S)
        assert self._process.stdout is not None, self.name
        self._process.stdout.close()
        self._clean_up()

    def _ask(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a message and return its answer. Raises PeerFailed, TooSlow."""
        doing = message["do"]
        if self._ended:
            raise PeerFailed(self._ended)
        try:
            self._send(json.dumps(message) + "\n", timeout_s)
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._kill()  # a late answer would be taken for that of the next question
            self._ended = self._told_slow(doing, timeout_s)
            raise TooSlow from None
        except TooSlow:
            self._ended = self._told_slow(doing, timeout_s)
            raise
        except (OSError, ValueError):
            line = None
        if line is None:
            raise PeerFailed(f"{self.name}: ended at {doing!r} with status {self._status()}{self._last_words()}")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise PeerFailed(f"{self.name}: expected a JSON object as the answer to {doing!r}, found {line[:100]!r}")
        if "error" in answer:
            raise PeerFailed(f"{self.name}: {doing}: {answer['error']}")
        return answer

    def _send(self, line: str, timeout_s: float) -> None:
        """Raises TooSlow (the engine does not read it), OSError, ValueError."""
        if len(line) <= _PIPE_BYTES:
            self._input.write(line)
            self._input.flush()
            return
        was_late = threading.Event()

        def give_up() -> None:
            was_late.set()
            self._kill()

        timer = threading.Timer(timeout_s, give_up)
        timer.start()
        try:
            self._input.write(line)
            self._input.flush()
        except OSError:
            if was_late.is_set():
                raise TooSlow from None
            raise
        finally:
            timer.cancel()

    def _told_slow(self, doing: str, timeout_s: float) -> str:
        return f"{self.name}: was ended at {doing!r}, which took more than {timeout_s:g} s"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self, stdout: IO[str]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _status(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_S)
        return None

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_SET)
        text = " ".join(self._errors.read().decode(errors="replace").split())
        return f": {text[-_LAST_CHARACTERS:]}" if text else ""

    def _clean_up(self) -> None:
        self._errors.close()
        self._folder.cleanup()


def _is_row(row: object) -> bool:
    return isinstance(row, list) and all(term is None or isinstance(term, str) for term in row)

"""Processes that tests start, and that do not outlive them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def child(command: Sequence[str]) -> Iterator[subprocess.Popen[Any]]:
    """Start a process with pipes that Ctrl-C ends, even if these tests run in the background of a shell, where it is
    ignored and children inherit that; kill it if it is still there at the end."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            process.kill()

"""Processes that tests start, and that do not outlive them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# In a process of its own, not between fork and exec, where the threads of a test's process may hold any lock.
WITH_CTRL_C = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)


@contextmanager
def child(command: Sequence[str], **given: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process with pipes that Ctrl-C ends, even if these tests run in the background of a shell, where it is
    ignored and children inherit that; kill it if it is still there at the end. given: to Popen."""
    command = [sys.executable, "-c", WITH_CTRL_C, *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **given) as process:
        try:
            yield process
        finally:
            process.kill()

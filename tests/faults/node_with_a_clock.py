"""`python -m tests.faults.node_with_a_clock FILE node --config ...`: wukongs with a wall clock that is wrong by as many
seconds as FILE says at that moment. Monotonic clocks go on as they do when somebody sets the clock of a machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from wukongs.cli import main


def run(arguments: list[str]) -> int:
    file, real_ns = Path(arguments[0]), time.time_ns

    def time_ns() -> int:
        return real_ns() + int(float(file.read_text() or 0) * 1e9)

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    return main(arguments[1:])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

"""Notes when a run passes its milestones, for `python -m wukongs.bench pipeline`; does nothing in other runs.

All processes of a run append to the file that WUKONGS_MILESTONES names: the milestone and a clock that they share.
"""

from __future__ import annotations

import os
import time

ENVIRONMENT_NAME = "WUKONGS_MILESTONES"
_file = os.environ.get(ENVIRONMENT_NAME)


def passed(milestone: str) -> None:
    """Note that a milestone is passed now. It may be passed again; the first time counts."""
    if _file is not None:
        with open(_file, "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic():.6f} {milestone}\n")

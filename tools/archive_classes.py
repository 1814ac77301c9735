"""Archive the classes that Spark loads in a small run, once, beside the kernels: part of `make setup`.

A JVM with the archive starts sooner. Without Java nothing is done, and nothing is lost but time.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from wukongs.adapters.spark.jvm import ARCHIVE_TO_MAKE, archive_path, check_java, is_plain
from wukongs.bench.pipeline.start import write_run
from wukongs.errors import SettingsError

WAIT_S = 300
"""A run takes a minute, on a busy machine a few."""


def main() -> None:
    """Make the archive unless it is there."""
    try:
        check_java()
    except SettingsError:
        return
    archive = archive_path()
    if archive.exists() or not is_plain():
        return
    print("archiving the classes of Spark, once (a minute) ...", file=sys.stderr, flush=True)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wukongs-archive-", dir=archive.parent) as name:
        made = Path(name, archive.name)
        command = [sys.executable, "-m", "wukongs", "run", "--plain", str(write_run(Path(name)))]
        environment = {**os.environ, ARCHIVE_TO_MAKE: str(made)}
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=WAIT_S)
            if done.returncode == 0 and made.exists():
                made.replace(archive)  # at once: no JVM finds half of it
                return
    print("the classes of Spark are not archived: it starts, but slower", file=sys.stderr)


if __name__ == "__main__":
    main()

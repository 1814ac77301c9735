"""The process that forks Spark's Python workers: it has imported what they need, once for all of them.

Spark starts one for each kind of worker (`spark.python.daemon.module`), the kind being its first argument. No import
may start a thread that a fork would lose: sockets are made, and kernels loaded, by the workers themselves.
"""

from __future__ import annotations

import gc
import importlib
import sys

_IN_TASKS = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "wukongs.adapters.spark.data_source",
    "wukongs.adapters.spark.driver",
    "wukongs.adapters.push",
    "wukongs.adapters.sources.timestamped_file",
    "wukongs.wire.link",
    "wukongs.wire.sharding",
)


def modules_for(worker: str) -> tuple[str, ...]:
    """Return what the workers of one kind import. Those that only plan are few, and import little."""
    return _IN_TASKS if worker == "pyspark.worker" else (worker,)


def main() -> None:
    """Import, then fork workers until Spark closes the standard input."""
    from pyspark.daemon import manager

    for name in modules_for(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"):
        importlib.import_module(name)
    gc.freeze()  # forked workers share these pages, and their collections pass over them
    manager()


if __name__ == "__main__":
    main()

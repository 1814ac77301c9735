"""Does memory stay flat under ever-new strings that only live in windows?

Observations with an IRI and a reading (a string) of their own are pushed through a stream with a short history: as
timing tuples, whose strings go with their slice, and as a control as timeless ones, whose strings stay. `python -m
bench.store.soak DIR` (make soak) pushes 20 million; as a question of the store it pushes less.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from wukongs import Engine
from wukongs.bench.harness import Report, Row
from wukongs.bench.memory import resident_bytes

if TYPE_CHECKING:
    import pyarrow as pa

STREAM = "http://soak.example/observations"
BATCH_MS = 100
HISTORY_MS = 1000
ROWS = 20_000
FULL = 20_000_000
CONTROL = 3_000_000


def measure(found: Report, quick: bool) -> None:
    """Push a moderate number of observations."""
    soak(found, *((8_000, 4_000, 200) if quick else (2_000_000, 1_000_000, ROWS)))


def soak(found: Report, count: int, control: int, rows: int) -> None:
    """Push `count` timing and `control` timeless observations, `rows` a stream batch; sample memory on the way."""
    for name, timing, observations in (("timing", True, count), ("timeless", False, control)):
        terms, samples = _push_all(timing, observations, rows)
        live = 2 * rows * (HISTORY_MS // BATCH_MS + 4)
        if timing:
            found.check("timing: terms left at the end are those of the history", True, 0 < terms <= 2 * live)
        else:
            found.check("timeless: all terms are kept", True, terms >= 2 * observations)
        for row in samples:
            found.add(name, row)


def _push_all(timing: bool, count: int, rows: int) -> tuple[int, list[Row]]:
    """Return the number of terms at the end, and the samples."""
    samples: list[Row] = []
    every = max(count // 50 // rows, 1)
    gc.collect()
    with Engine() as engine:
        stream = engine.stream(STREAM, timing=timing, batch_ms=BATCH_MS, history_ms=HISTORY_MS)
        before, began = resident_bytes(), time.perf_counter()
        for number in range(count // rows):
            stream.push_arrow(_observations(number * rows, rows, (number + 1) * BATCH_MS))
            if (number + 1) % every == 0:
                engine.settle()
                seconds = time.perf_counter() - began
                samples.append(
                    {
                        "observations": (number + 1) * rows,
                        "resident MB": resident_bytes() / 1e6,
                        "more than at the start MB": (resident_bytes() - before) / 1e6,
                        "seconds": seconds,
                    }
                )
        stream.close()
        engine.settle()
        return int(engine.stats()["terms"]), samples


def _observations(first: int, count: int, timestamp_ms: int) -> pa.Table:
    import pyarrow as pa

    numbers = range(first, first + count)
    return pa.table(
        {
            "subject": [f"<http://soak.example/observation/{number}>" for number in numbers],
            "predicate": ["<http://soak.example/reading>"] * count,
            "object": [f'"reading {number * 2_654_435_761 % 1_000_000_007}.{number}"' for number in numbers],
            "timestamp_ms": [timestamp_ms] * count,
        }
    )


def plot(found: Report, path: Path) -> None:
    """Draw resident memory against observations, both runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, label in (("timing", "timing: strings go with their slice"), ("timeless", "timeless: strings stay")):
        rows = found.tables[name]
        axes.plot(
            [row["observations"] / 1e6 for row in rows], [row["more than at the start MB"] for row in rows], label=label
        )
    axes.set(xlabel="observations (millions)", ylabel="growth of resident memory (MB)", ylim=(0, None))
    axes.set_title("Ever-new strings through a stream", fontsize=10)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    outcome = Report("store-soak-full", {"question": (__doc__ or "").splitlines()[0]})
    soak(outcome, FULL, CONTROL, ROWS)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    outcome.publish(target)
    if target is not None:
        plot(outcome, target / f"{outcome.name}.png")

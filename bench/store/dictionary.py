"""The cost of a term in the dictionary beside its text, and the speed of turning ids into strings.

Terms are LSBench-shaped IRIs, added in pieces as a load adds them. Bytes a term are the growth of the process's
resident memory, so they hold everything: room for growth, allocator, and memory that growing leaves behind. Python's
own structure for this, a dict[int, str], is measured beside it.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np

from wukongs.bench.harness import Report, median_cpu_seconds
from wukongs.bench.memory import resident_bytes
from wukongs.store.dictionary import Dictionary, split_texts
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import TermTable

PIECE = 100_000
GATHERED = 1_000_000
_SHAPES = (
    b"<http://www.ins.cwi.nl/sib/post/po",
    b"<http://www.ins.cwi.nl/sib/photo/pho",
    b"<http://www.ins.cwi.nl/sib/user/u",
)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def make_terms(first: int, count: int) -> TermTable:
    """Return `count` distinct terms, numbered from `first`, whose ids are spread like hashes."""
    texts = [b"%b%d>" % (_SHAPES[number % 3], number) for number in range(first, first + count)]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, count), out=offsets[1:])
    return TermTable(make_ids(np.arange(first, first + count)), offsets, np.frombuffer(b"".join(texts), np.uint8))


def make_ids(numbers: Int64Array) -> Int64Array:
    """Return the ids of the terms with these numbers: the multiplication is a bijection of 64 bits."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX
    ids: Int64Array = ((mixed >> np.uint64(2)) << np.uint64(1)).astype(np.int64)
    return ids


def measure(found: Report, quick: bool) -> None:
    """Fill a dictionary; measure on the way, and look up ids in it at each size."""
    sizes = [20_000, 50_000] if quick else [1_000_000, 2_000_000, 5_000_000, 10_000_000]
    piece = 10_000 if quick else PIECE
    rng = np.random.default_rng(3)
    _check(found, piece)
    gc.collect()
    before = resident_bytes()
    dictionary = Dictionary()
    text_bytes, add_s = 0, 0.0
    slot_bytes = dictionary.index_bytes
    for first in range(0, sizes[-1], piece):
        terms = make_terms(first, piece)
        began = time.thread_time()
        refused = dictionary.add(terms)
        add_s += time.thread_time() - began
        assert not len(refused)
        text_bytes += len(terms.text)
        count = first + piece
        del terms
        grown, slot_bytes = dictionary.index_bytes != slot_bytes, dictionary.index_bytes
        if grown or count in sizes or count % (sizes[-1] // 20) == 0:
            resident = resident_bytes() - before
            row = {
                "terms": count,
                "text bytes a term": text_bytes / count,
                "overhead bytes a term": (resident - text_bytes) / count,
                "of it in arrays": (dictionary.size_bytes - text_bytes) / count,
                "index just grown": grown,
            }
            found.add("memory", row)
        if count in sizes:
            found.add("speed", _speed(dictionary, count, add_s, rng, quick))
    found.add("memory of a dict[int, str]", _measure_dict(sizes[0]))


def _check(found: Report, count: int) -> None:
    terms = make_terms(0, count)
    dictionary = Dictionary()
    dictionary.add(terms)
    order = np.random.default_rng(5).permutation(count)
    texts = terms.texts()
    found.check("texts of ids in random order", [texts[place] for place in order], dictionary.texts(terms.ids[order]))
    found.checks[-1]["value"] = count


def _speed(dictionary: Dictionary, count: int, add_s: float, rng: np.random.Generator, quick: bool) -> dict[str, float]:
    ids = make_ids(rng.integers(0, count, 1_000 if quick else GATHERED))
    view = dictionary.view()
    gather_s = median_cpu_seconds(lambda: view.gather(ids), 1 if quick else 3)
    strings_s = median_cpu_seconds(lambda: split_texts(*view.gather(ids)), 1 if quick else 3)
    return {
        "terms": count,
        "added M/s": count / add_s / 1e6,
        "id -> UTF-8 M/s": len(ids) / gather_s / 1e6,
        "id -> str M/s": len(ids) / strings_s / 1e6,
    }


def _measure_dict(count: int) -> dict[str, float]:
    gc.collect()
    before = resident_bytes()
    held: dict[int, str] = {}
    text_bytes = 0
    for first in range(0, count, 10_000):
        terms = make_terms(first, 10_000)
        text_bytes += len(terms.text)
        held.update(zip(terms.ids.tolist(), terms.texts(), strict=True))
    return {"terms": count, "overhead bytes a term": (resident_bytes() - before - text_bytes) / len(held)}


def plot(found: Report, path: Path) -> None:
    """Draw bytes a term against the number of terms."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = found.tables["memory"]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    counts = [row["terms"] / 1e6 for row in rows]
    axes.plot(counts, [row["overhead bytes a term"] for row in rows], label="resident memory, without the text")
    axes.plot(counts, [row["of it in arrays"] for row in rows], label="arrays, without the text", linestyle="--")
    grown = [row for row in rows if row["index just grown"]]
    axes.plot(
        [row["terms"] / 1e6 for row in grown],
        [row["overhead bytes a term"] for row in grown],
        "o",
        markersize=4,
        label="index just grown",
    )
    (python,) = found.tables["memory of a dict[int, str]"]
    axes.axhline(24, color="grey", linewidth=0.8)
    axes.annotate("target: 24", (counts[0], 24), textcoords="offset points", xytext=(2, 3), color="grey")
    axes.set(xlabel="terms (millions)", ylabel="bytes a term", ylim=(0, 40))
    axes.set_title(
        f"Dictionary overhead (a dict[int, str]: {python['overhead bytes a term']:.0f} bytes a term)", fontsize=10
    )
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)

"""How fast does N-Triples become ids and strings, and a file a store that answers?

Encoding is tokenising, checking, canonical form, hash or inlining, and the table of distinct terms. CPU time of one
thread; loading is wall time of everything from the file to the first answer.
"""

from __future__ import annotations

import io
import tempfile
import time
from pathlib import Path

import xxhash

from wukongs import Engine
from wukongs.bench.harness import Report, median_cpu_seconds
from wukongs.bench.lsbench.data import find_folder, generate_lsbench, read_lsbench
from wukongs.store.encoder import encode_columns, encode_ntriples
from wukongs.store.rdf_files import CHUNK_BYTES


def measure(found: Report, quick: bool) -> None:
    """Encode LSBench-shaped lines in pieces as a load reads them, as columns as a push brings them, and load them."""
    import pyarrow as pa

    folder = find_folder(None)
    data = read_lsbench(folder) if folder is not None and not quick else generate_lsbench()
    lines = data.stored if quick else data.copies_of_stored(3_000_000)
    _check(found, data.stored[:200_000])
    chunk_bytes = 100_000 if quick else CHUNK_BYTES
    chunks, start = [], 0
    while start < len(lines):
        stop = lines.find(b"\n", min(start + chunk_bytes, len(lines) - 1)) + 1
        chunks.append(memoryview(lines)[start:stop])
        start = stop
    count, repeats = lines.count(b"\n"), 1 if quick else 3
    seconds = median_cpu_seconds(lambda: [encode_ntriples(chunk, b"scope") for chunk in chunks], repeats)
    size = {"lines": count, "bytes a line": len(lines) / count}
    found.add("encode", {"what": "N-Triples lines", **size, "M lines/s": count / seconds / 1e6})
    stream = next(iter(data.streams.values()))
    table = stream.table()
    seconds = median_cpu_seconds(
        lambda: encode_columns(*(pa.chunked_array(table.column(at)) for at in range(4)), scope=b"scope"), repeats
    )
    size = {"lines": len(stream), "bytes a line": len(stream.lines) / len(stream)}
    found.add("encode", {"what": "Arrow columns", **size, "M lines/s": len(stream) / seconds / 1e6})
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "lines.nt"
        path.write_bytes(lines)
        _load_and_ask(lines[: lines.index(b"\n") + 1])
        with Engine() as engine:
            began, cpu_began = time.perf_counter(), time.process_time()
            engine.load(path)
            rows = len(list(engine.query(_FIRST_QUERY)))
            wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
            found.check("rows of the first answer", 1, rows)
    rates = {"M triples/s": count / wall_s / 1e6, "M triples/s of CPU": count / cpu_s / 1e6}
    found.add("file to first answer", {"lines": count, **rates})


_FIRST_QUERY = "SELECT ?s WHERE { ?s ?p ?o } LIMIT 1"


def _load_and_ask(lines: bytes) -> None:
    """Compile what the measured load needs."""
    with Engine() as engine:
        engine.load(io.BytesIO(lines), format="nt")
        list(engine.query(_FIRST_QUERY))


def _check(found: Report, lines: bytes) -> None:
    """The ids of the lines' IRIs are what another library hashes, and nothing is set aside."""
    lines = lines[: lines.rindex(b"\n") + 1]
    encoded, malformed = encode_ntriples(lines, b"scope")
    found.check("malformed lines", 0, len(malformed))
    found.check("lines", lines.count(b"\n"), len(encoded))
    subjects = [line[: line.index(b" ")] for line in lines.splitlines()]
    expected = [xxhash.xxh64_intdigest(subject, 42) >> 2 << 1 for subject in subjects]
    found.check("ids of the subjects", expected, encoded.subjects.tolist())
    found.checks[-1]["value"] = len(expected)


def plot(found: Report, path: Path) -> None:
    """Draw the rates."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    bars = [(row["what"], row["M lines/s"]) for row in found.tables["encode"]]
    bars += [("file to first answer", found.tables["file to first answer"][0]["M triples/s"])]
    figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
    drawn = axes.barh([name for name, _ in bars], [rate for _, rate in bars])
    axes.bar_label(drawn, fmt="%.2f", padding=3)
    axes.invert_yaxis()
    axes.axvline(3, color="grey", linewidth=0.8)
    axes.set(xlabel="million lines/s (target for encoding: 3)")
    figure.savefig(path, dpi=120)
    plt.close(figure)

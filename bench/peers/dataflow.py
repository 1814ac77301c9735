"""Differential dataflow as a peer of live views and rules: a Rust program of ours (dd/), built by cargo where it is
there. Changes of both are compared by the hashes of their rows."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wukongs.bench.peers import PeerFailed, PeerMissing
from wukongs.bench.peers.fetching import cache

NAME = "differential-dataflow"
VERSION = "0.26.0"
HERE = Path(__file__).parent / "dd"
_SOURCES = ("Cargo.toml", "Cargo.lock", "src/main.rs", "src/views.rs")
_BUILD_S = 1800.0


class Change(NamedTuple):
    """The change of a view that follows from a batch.

    rows: of the change.
    checksum: the sum of their hashes times their weights, modulo 2 ** 64."""

    rows: int
    checksum: int

    @staticmethod
    def of(firsts: NDArray[np.uint64], seconds: NDArray[np.uint64], weights: NDArray[np.int64]) -> Change:
        """Return the change of rows of two numbers, which may repeat."""
        order = np.lexsort((seconds, firsts))
        firsts, seconds, weights = firsts[order], seconds[order], weights[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (np.diff(firsts) != 0) | (np.diff(seconds) != 0)
        places = np.flatnonzero(is_first)
        sums = np.add.reduceat(weights, places) if len(places) else weights
        places, sums = places[sums != 0], sums[sums != 0]
        hashes = _hashes(firsts[places], seconds[places]) * sums.astype(np.uint64)
        return Change(len(places), int(hashes.sum(dtype=np.uint64)))


def numbers_of(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the numbers of a column of terms: nodes, whose IRI has no other digits, or integers."""
    encoded = pa.chunked_array([chunk for chunk in column.chunks if len(chunk)], column.type).combine_chunks()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    found = [_numbers_of(chunk) for chunk in chunks]
    return np.concatenate([np.empty(0, np.uint64), *found])


def _numbers_of(column: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_dictionary(column.type):
        found = _numbers_of(column.dictionary)[column.indices.to_numpy(zero_copy_only=False)]
    else:
        digits = pc.replace_substring_regex(column, r"^\D*(\d+).*$", r"\1")
        found = digits.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    return np.asarray(found, np.uint64)


def _hashes(firsts: NDArray[np.uint64], seconds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash rows as dd/src/main.rs does."""
    mixed = (firsts * np.uint64(0x9E3779B97F4A7C15)) ^ (seconds * np.uint64(0xC2B2AE3D27D4EB4F))
    hashes: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return hashes


def program(may_build: bool = True) -> Path:
    """Return the program. may_build: by cargo, if need be, which takes minutes. Raises PeerMissing."""
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _SOURCES)).hexdigest()[:12]
    folder = cache() / f"dd-{digest}"
    built = folder / "release" / "wukongs-dd-peer"
    if built.exists():
        return built
    if not may_build:
        raise PeerMissing(f"{NAME}: it is not built yet: a run without --quick builds it")
    if shutil.which("cargo") is None:
        raise PeerMissing(f"{NAME}: install Rust with cargo, which builds it: https://rustup.rs")
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", str(HERE / "Cargo.toml")]
    try:
        done = subprocess.run(
            [*command, "--target-dir", str(folder)], capture_output=True, text=True, check=False, timeout=_BUILD_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"{NAME}: cargo did not build it: {error}") from None
    if done.returncode:
        raise PeerMissing(f"{NAME}: cargo did not build it: {done.stderr.strip()[-300:]}")
    return built


@dataclass(slots=True)
class Dataflow:
    """Views that are kept by one worker in a process of its own."""

    process: subprocess.Popen[str]

    @staticmethod
    def start(*views: str, may_build: bool = True) -> Dataflow:
        """views: names that dd/src/views.rs has. Raises PeerMissing."""
        command = [str(program(may_build)), ",".join(views)]
        return Dataflow(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def apply(self, lines: Iterable[str]) -> tuple[float, list[Change]]:
        """Take a batch of changes, lines as the program has them; return the milliseconds from its first update to the
        last row, and the change of each view. Raises PeerFailed."""
        assert self.process.stdin is not None, self.process
        assert self.process.stdout is not None, self.process
        try:
            self.process.stdin.writelines(lines)
            self.process.stdin.write(".\n")
            self.process.stdin.flush()
            taken_ns, *found = map(int, self.process.stdout.readline().split())
        except (OSError, ValueError) as error:
            raise PeerFailed(f"{NAME}: it has ended, or answered what is no answer: {error}") from None
        return taken_ns / 1e6, [Change(*one) for one in zip(found[::2], found[1::2], strict=True)]

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None, self.process
        with contextlib.suppress(OSError):  # it has ended before
            self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

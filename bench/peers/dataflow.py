"""Differential dataflow as a peer of live views: a Rust program of ours (dd/), built by cargo where it is there."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wukongs.bench.peers import PeerFailed, PeerMissing
from wukongs.bench.peers.fetching import cache

NAME = "differential-dataflow"
VERSION = "0.26.0"
HERE = Path(__file__).parent / "dd"
_SOURCES = ("Cargo.toml", "Cargo.lock", "src/main.rs")
_BUILD_S = 1800.0


class Change(NamedTuple):
    """What a batch has changed in a view.

    taken_ns: from its first update to the last row.
    rows: of the change.
    checksum: the sum of their hashes times their weights, modulo 2 ** 64."""

    taken_ns: int
    rows: int
    checksum: int


def program() -> Path:
    """Return the program, built if need be. Raises PeerMissing."""
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _SOURCES)).hexdigest()[:12]
    folder = cache() / f"dd-{digest}"
    built = folder / "release" / "wukongs-dd-peer"
    if built.exists():
        return built
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
    """One view, kept by one worker in a process of its own."""

    process: subprocess.Popen[str]

    @staticmethod
    def start(view: str) -> Dataflow:
        """view: hop, two-hops, paths or triangles. Raises PeerMissing."""
        return Dataflow(
            subprocess.Popen([str(program()), view], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )

    def apply(self, lines: Iterable[str]) -> Change:
        """Take a batch of changes, lines as the program has them; return what it has changed. Raises PeerFailed."""
        assert self.process.stdin is not None, self.process
        assert self.process.stdout is not None, self.process
        try:
            self.process.stdin.writelines(lines)
            self.process.stdin.write(".\n")
            self.process.stdin.flush()
            return Change(*map(int, self.process.stdout.readline().split()))
        except (OSError, TypeError, ValueError) as error:
            raise PeerFailed(f"{NAME}: it has ended, or answered what is no answer: {error}") from None

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None, self.process
        self.process.stdin.close()
        self.process.wait(timeout=60)

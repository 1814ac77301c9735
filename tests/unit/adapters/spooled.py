"""A reader with its spool, without engine and planner: what has arrived, and what was said."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.wire.conftest import wait_until
from wukongs.adapters.feeds.decoder import Decoder
from wukongs.adapters.feeds.feed import WAITS, Inlet, Reader, Waits
from wukongs.adapters.feeds.spool import Spool, read_range, starts_of
from wukongs.adapters.feeds.spool_feed import SpoolFeed
from wukongs.adapters.run_config import TimestampedSource
from wukongs.store.disk import Disk

Message = tuple[str, dict[str, str | None]]
"""Its text and its cells."""


@dataclass
class Spooled:
    feed: SpoolFeed
    spool: Spool
    said: list[str] = field(default_factory=list)

    def messages(self) -> list[Message]:
        """Return what is in the spool, read as a worker reads it. Raises what the reader has raised."""
        self.feed.look()
        found: list[Message] = []
        for rows in self.spool.ranges(self.spool.first_row, self.spool.end_row, 0):
            for frame in read_range(self.spool.folder, rows):
                starts, data = starts_of(frame.lengths).tolist(), bytes(frame.data)
                for at, (begin, end) in enumerate(pairwise(starts)):
                    cells = {name: texts[at] for name, texts in frame.cells.items()}
                    found.append((data[begin:end].decode("utf-8", "backslashreplace"), cells))
        return found

    def texts(self) -> list[str]:
        return [text for text, _ in self.messages()]

    def wait_for(self, count: int) -> list[Message]:
        wait_until(lambda: len(self.messages()) >= count, f"{count} messages")
        return self.messages()

    def wait_until_said(self, part: str) -> None:
        wait_until(lambda: any(part in text for text in self.said), part)

    @property
    def is_ended(self) -> bool:
        return not self.feed.look().is_open


@contextmanager
def spooled(
    folder: Path,
    reader: Reader,
    disk: Disk | None = None,
    bytes_max: int = 1 << 30,
    begin: int = 0,
    waits: Waits = WAITS,
) -> Iterator[Spooled]:
    """Let a reader read into the spool of a folder until the block ends. begin: up to where the nodes have its rows."""
    spool = Spool(folder, 0, bytes_max, disk)
    said: list[str] = []
    decoder = Decoder("part", "part", TimestampedSource(paths=()))
    feed = SpoolFeed("http://ex/s", reader, spool, decoder, waits, said.append)
    feed.begin(begin)
    try:
        yield Spooled(feed, spool, said)
    finally:
        feed.close()


@dataclass
class Putter:
    """A reader that puts what it is given, and then waits. safe: those that were said to be in the spool."""

    texts: list[str]
    safe: list[str] = field(default_factory=list)
    put_count: int = 0

    def run(self, inlet: Inlet) -> None:
        for text in self.texts:
            inlet.put(text.encode(), {"cell": text[:1]}, {"last": text}, partial(self.safe.append, text))
            self.put_count += 1
        while not inlet.wait(0.01):
            pass


def certificate(folder: Path) -> tuple[str, str]:
    """Make a certificate that signs itself, for 127.0.0.1."""
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return cert, key

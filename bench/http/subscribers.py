"""`python -m wukongs.bench.http.subscribers ADDRESS COUNT QUERY...`: many subscribers of windows in one process.

Subscriber n reads the server-sent events of query n modulo their number. Once all are there it prints a line; when its
standard input ends it prints what came, as JSON: for each subscriber the ids with the clock's time, and the windows of
the first subscriber of each query.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(slots=True)
class Subscriber:
    """came: (id, time.time()); windows: data of windows by id, if they are kept."""

    query: str
    keeps: bool
    came: list[tuple[int, float]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Events that are no windows."""
    windows: dict[int, Any] = field(default_factory=dict)

    async def read(self, address: str, ready: asyncio.Semaphore) -> None:
        parts = urlsplit(address)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 24)
        request = f"GET /queries/{self.query}/windows?after=now HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        writer.write(request.encode() + b"Accept: text/event-stream\r\n\r\n")
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"a subscriber of {self.query} was answered {status!r}")
        number, kind = 0, b""
        ready.release()
        while line := await reader.readline():
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"event: "):
                kind = line[7:].strip()
            elif line.startswith(b"data: "):
                if kind != b"window":
                    self.others.append(kind.decode())
                    continue
                self.came.append((number, time.time()))
                if self.keeps:
                    self.windows[number] = json.loads(line[6:])


async def run(address: str, count: int, queries: Sequence[str]) -> None:
    ready = asyncio.Semaphore(0)
    subscribers = [Subscriber(queries[at % len(queries)], at < len(queries)) for at in range(count)]
    reading = [asyncio.ensure_future(one.read(address, ready)) for one in subscribers]
    for _ in range(count):
        await asyncio.wait((asyncio.ensure_future(ready.acquire()), *reading), return_when=asyncio.FIRST_COMPLETED)
        for one in reading:
            if one.done():
                one.result()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for one in reading:
        one.cancel()
    print(
        json.dumps([{"query": s.query, "came": s.came, "others": s.others, "windows": s.windows} for s in subscribers])
    )


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))

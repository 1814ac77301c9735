"""Calls with more than one answer: results in chunks, files in parts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from wukongs.errors import DataError, WukongsError
from wukongs.query.output.results import Result
from wukongs.remote.columns import Incoming
from wukongs.remote.connection import Connection, Joined, raise_failure
from wukongs.remote.kinds import ANSWER, BYTES, RELEASE, ROWS
from wukongs.store.disk import storage_errors
from wukongs.wire.packets import Packet

RELEASE_S = 1.0
"""The time that a release may take after an error. Otherwise it is freed with the session."""


def receive_result(
    connection: Connection, joined: Joined, first: Packet, source: Mapping[str, Any], text: str, *, keep: bool = False
) -> Result:
    """Return a result whose head and first chunk have come. source: how the node calls it, for the others; text: of the
    query; keep: it is released by other means. Raises DataError (a node that lies), SessionLost."""
    head = first.fields.get("head")
    if not isinstance(head, dict):
        raise DataError(f"{joined.address}: expected the head of a result, found {head!r}")
    incoming = Incoming(head, joined.address)
    with nullcontext() if keep else _released_on_error(joined, source):
        incoming.add(first.arrays)
        if incoming.is_complete:
            return incoming.result(text)
        while not incoming.is_complete:
            answer = connection.ask(joined, ROWS, {**source, "start": incoming.missing_from})
            incoming.add(_expect(answer, ROWS, joined).arrays)
    if not keep:
        _expect(connection.ask(joined, RELEASE, source), ANSWER, joined)
    return incoming.result(text)


def receive_file(connection: Connection, joined: Joined, number: object, path: str | os.PathLike[str]) -> None:
    """Write a file of the node to one of this machine. Raises StorageError, SessionLost."""
    advice = "What was written is incomplete: make room, or dump to a file that can be written"
    with (
        _released_on_error(joined, {"file": number}),
        storage_errors(f"cannot write {path}", advice),
        Path(path).open("wb") as file,
    ):
        while True:
            answer = _expect(connection.ask(joined, BYTES, {"file": number, "start": file.tell()}), BYTES, joined)
            part = answer.arrays.get("bytes")
            if part is None or not len(part):
                break
            file.write(part.tobytes())
    connection.ask(joined, RELEASE, {"file": number})


@contextmanager
def _released_on_error(joined: Joined, source: Mapping[str, Any]) -> Iterator[None]:
    """Have the node let go of a result or file after an error, if it hears of that soon; the error is the same."""
    try:
        yield
    except BaseException:
        with suppress(WukongsError):
            joined.channel.ask(Packet(RELEASE, {**source, "session": joined.token}), RELEASE_S)
        raise


def _expect(answer: Packet, kind: str, joined: Joined) -> Packet:
    raise_failure(answer, joined.address)
    if answer.kind != kind:
        raise DataError(f"{joined.address}: expected an answer '{kind}', found {answer.kind!r}")
    return answer

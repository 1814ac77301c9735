"""Standard input, line by line (`kind = "stdin"`); for `wukongs push` files as well, one after the other."""

from __future__ import annotations

import os
import select
import sys
import zlib
from dataclasses import dataclass

from wukongs.adapters.feeds.feed import Inlet, Kind
from wukongs.adapters.feeds.lines import LineCutter, opened
from wukongs.adapters.mapping.mapping import Csv
from wukongs.errors import DataError
from wukongs.settings.toml_reader import TableReader

READ_BYTES = 1 << 20
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class StdinOptions:
    """paths: files to read, also .gz; "-" is standard input."""

    paths: tuple[str, ...] = ("-",)


class StdinReader:
    def __init__(self, options: StdinOptions, csv: Csv | None) -> None:
        self._paths, self._csv = options.paths, csv

    def run(self, inlet: Inlet) -> None:
        for path in self._paths:
            if path == "-":
                self._read_stdin(inlet)
            else:
                self._read_file(path, inlet)

    def _read_stdin(self, inlet: Inlet) -> None:
        if sys.stdin is None:
            raise DataError("standard input is closed: expected lines", "stdin")
        if sys.stdin.isatty():
            inlet.say("reading lines from the terminal; Ctrl-D ends them")
        cutter = LineCutter(inlet, self._csv, "stdin")
        data = b"more"
        while data and not inlet.is_stopped:
            ready, _, _ = select.select([0], [], [], LOOK_S)
            if ready:
                data = os.read(0, READ_BYTES)
                cutter.take(data, is_end=not data)

    def _read_file(self, path: str, inlet: Inlet) -> None:
        cutter = LineCutter(inlet, self._csv, path, is_file=True)
        try:
            with opened(path) as file:
                while not inlet.is_stopped:
                    data = file.read(READ_BYTES)
                    cutter.take(data, is_end=not data)
                    if not data:
                        return
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"cannot be read ({getattr(error, 'strerror', None) or error})", path) from None


def _options(reader: TableReader) -> StdinOptions:
    return StdinOptions()


KIND = Kind(options=_options, reader=StdinReader, name=lambda options: "stdin")

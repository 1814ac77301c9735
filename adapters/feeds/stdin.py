"""Standard input, or another open file, line by line (`kind = "stdin"`)."""

from __future__ import annotations

import os
import select
import sys
from dataclasses import dataclass

from wukongs.adapters.feeds.feed import Inlet, Kind
from wukongs.adapters.feeds.lines import LineCutter
from wukongs.adapters.mapping.mapping import Csv
from wukongs.settings.toml_reader import TableReader

READ_BYTES = 1 << 20
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class StdinOptions:
    """descriptor: of the open file."""

    descriptor: int = 0


class StdinReader:
    def __init__(self, options: StdinOptions, csv: Csv | None) -> None:
        self._descriptor, self._csv = options.descriptor, csv

    def run(self, inlet: Inlet) -> None:
        if self._descriptor == 0 and sys.stdin is not None and sys.stdin.isatty():
            inlet.say("reading lines from the terminal; Ctrl-D ends them")
        cutter = LineCutter(inlet, self._csv, "stdin")
        while not inlet.is_stopped:
            ready, _, _ = select.select([self._descriptor], [], [], LOOK_S)
            if not ready:
                continue
            data = os.read(self._descriptor, READ_BYTES)
            cutter.take(data, is_end=not data)
            if not data:
                return


def _options(reader: TableReader) -> StdinOptions:
    return StdinOptions()


KIND = Kind(options=_options, reader=lambda options, csv: StdinReader(options, csv), name=lambda options: "stdin")

"""A bound for how deeply JSON nests: the parser of JSON-LD ends the process at some thousands of brackets."""

from __future__ import annotations

import re
from typing import IO, cast

import numpy as np

DEPTH_MAX = 256
_BRACKETS = b"{[]}"
_OTHERS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = np.array([(one in b"{[") - (one in b"]}") for one in range(256)], np.int8)
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"|(")(?:[^"\\]|\\.)*+(\\?)\Z', re.DOTALL)


def bounded_json(file: IO[bytes]) -> IO[bytes]:
    """Return a file of JSON to read from, which raises ValueError where it nests too deeply."""
    return cast("IO[bytes]", _BoundedJson(file))


class _BoundedJson:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._depth = 0
        self._rest = b""
        """How a text that goes on has begun, as far as that matters."""

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        outside, quote, rest = _TEXT.sub(rb"\1\2", self._rest + data).partition(b'"')
        self._rest = quote + rest
        brackets = outside.translate(None, _OTHERS)
        if brackets:
            depths = self._depth + np.cumsum(_STEPS[np.frombuffer(brackets, np.uint8)], dtype=np.int64)
            if depths.max() > DEPTH_MAX:
                raise ValueError(f"expected JSON with at most {DEPTH_MAX} brackets in each other, found more")
            self._depth = int(depths[-1])
        return data

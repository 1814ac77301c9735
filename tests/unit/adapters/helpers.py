"""Shared by the tests of the adapters: reading encoded tuples back, and where the real data is."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from wukongs.adapters.source import NO_TIME, PreparedSource, Rows, SourceIndex, StreamSource
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.term_ids import is_inlined, unpack

PROJECT = Path(__file__).resolve().parents[3]
SCOPE = b"http://ex/stream"


def shared(*parts: str) -> Path:
    """The path of real data kept beside the project; skips the test where it is not."""
    folder = Path(os.environ.get("WUKONGS_SHARED_DATA", PROJECT.parent / "shared" / "data"))
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs the real data, {path} is not there")
    return path


def texts_of(encoded: Encoded, column: Int64Array) -> list[str]:
    """The canonical forms of a column of ids, read from the term table and the inlined literals."""
    known = dict(zip(encoded.terms.ids.tolist(), encoded.terms.texts(), strict=True))
    inlined = np.unique(column[is_inlined(column)])
    text, offsets = unpack(inlined)
    raw = text.tobytes()
    for number, identifier in enumerate(inlined.tolist()):
        known[identifier] = raw[offsets[number] : offsets[number + 1]].decode()
    return [known[identifier] for identifier in column.tolist()]


def triples_of(encoded: Encoded) -> list[tuple[str, str, str]]:
    columns = [texts_of(encoded, column) for column in (encoded.subjects, encoded.predicates, encoded.objects)]
    return list(zip(*columns, strict=True))


def read_all(source: StreamSource, index: SourceIndex) -> Rows:
    return source.read(index.range(0, len(index)), SCOPE, 62)


def prepared(stream: str, pair: tuple[StreamSource, SourceIndex]) -> PreparedSource:
    return PreparedSource(stream, *pair)


def lines_of(path: Path) -> list[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


__all__ = ["NO_TIME", "PROJECT", "SCOPE", "lines_of", "prepared", "read_all", "shared", "texts_of", "triples_of"]

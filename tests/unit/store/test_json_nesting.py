"""JSON that nests too deeply is refused, wherever the file is cut, and whatever its texts hold."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import wukongs
from tests.unit.store.test_rdf_parser import Slow
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.adapters.run_config import RdfSource
from wukongs.adapters.sources.mapped_rows import Place
from wukongs.adapters.sources.rdf_messages import MessageParser
from wukongs.errors import DataError
from wukongs.store.json_ld_text import DEPTH_MAX, Contexts, JsonLdText

pytestmark = pytest.mark.nojit


def nested(depth: int) -> bytes:
    return b'{"@id":"http://ex/a","http://ex/b":' * depth + b"1" + b"}" * depth


def is_read(data: bytes, rng: random.Random) -> bool:
    pieces = Slow(data, rng.choice((1, 5, 64, 1 << 20)))
    file = JsonLdText(pieces, "", None, Contexts(), lambda base, reference: reference)  # type: ignore[arg-type]
    read = b""
    try:
        while part := file.read(rng.choice((1, 2, 3, 7, 100, 1000))):
            read += part
    except ValueError:
        return False
    assert read == data
    return True


@pytest.mark.parametrize("seed", range(20))
def test_brackets_count_outside_of_texts_alone(seed: int) -> None:
    rng = random.Random(seed)
    texts = ["".join(rng.choices('[]{}"\\a\u00e9\n', k=rng.randrange(12))) for _ in range(200)] + ["[" * 1000]
    for depth, expected in ((DEPTH_MAX, True), (DEPTH_MAX + 1, False)):
        value: object = rng.choice(texts)
        for _ in range(depth):
            value = rng.choice(([*rng.choices(texts, k=3), value], {rng.choice(texts): value}))  # type: ignore[arg-type]
        assert is_read(json.dumps(value, ensure_ascii=False).encode(), rng) is expected


def test_a_file_that_nests_too_deeply_is_refused(tmp_path: Path) -> None:
    """Its parser would end the process."""
    (tmp_path / "deep.jsonld").write_bytes(nested(10_000))
    (tmp_path / "flat.jsonld").write_bytes(nested(100))
    with wukongs.Engine() as engine:
        with pytest.raises(DataError, match="at most 256 brackets in each other"):
            engine.load(tmp_path / "deep.jsonld")
        engine.load(tmp_path / "flat.jsonld")
        assert engine.stats()["stored_triples"] == 2


def test_a_message_that_nests_too_deeply_is_set_aside() -> None:
    parser = MessageParser("m", RdfSource(paths=(), predicate="", time_format=TimeFormat(), format="jsonld"), "jsonld")
    messages = [nested(10_000), nested(2)]
    rows = parser.rows(
        messages, [1, 2], np.arange(2), -1, lambda row: Place("m", row + 1, row, None, ""), b"http://ex/s", 62
    )
    assert [one.line for one in rows.malformed] == [1]
    assert len(rows.encoded) == 2


@pytest.mark.parametrize(("format", "depth"), [("nt", 2000), ("ttl", 500)])
def test_triple_terms_that_nest_too_deeply_are_malformed(format: str, depth: int, tmp_path: Path) -> None:
    line = "<a:a> <a:b> " + "<<( <a:a> <a:b> " * depth + "<a:a>" + " )>>" * depth + " .\n"
    (tmp_path / f"deep.{format}").write_text(line)
    with (
        wukongs.Engine() as engine,
        pytest.raises(DataError, match=r"not a valid triple term|at most 100 triple terms"),
    ):
        engine.load(tmp_path / f"deep.{format}", strict=True)


@pytest.mark.parametrize("depth", [101, 600])
def test_a_message_of_nested_triple_terms_is_set_aside(depth: int) -> None:
    parser = MessageParser("m", RdfSource(paths=(), predicate="", time_format=TimeFormat(), format="ttl"), "ttl")
    line = b"<a:a> <a:b> " + b"<<( <a:a> <a:b> " * depth + b"<a:a>" + b" )>>" * depth + b" ."
    rows = parser.rows([line], [1], np.arange(1), -1, lambda row: Place("m", 1, 0, None, ""), b"http://ex/s", 62)
    assert len(rows.malformed) == 1

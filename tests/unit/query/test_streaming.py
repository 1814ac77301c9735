"""Results written in chunks: their text is never in memory as a whole, and what goes wrong on the way is said."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow
import pytest

from tests.fuzz import first_and_slow
from tests.unit.query.result_rows import ask, columns_of, construct, select
from wukongs.csparql.terms import XSD
from wukongs.errors import DataError, SettingsError, StorageError
from wukongs.query.output.results import Result
from wukongs.query.output.serialize import serialize, text_chunks
from wukongs.store.dictionary import join_texts
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array

LONG = 70_000
"""Rows of many chunks."""


class Counting:
    """Terms made from their ids on demand: nothing is held."""

    def texts(self, ids: Int64Array) -> list[str]:
        return [f"<http://ex/{number}>" if number % 2 else f'"{number}"^^<{XSD}integer>' for number in ids.tolist()]

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        return join_texts(self.texts(ids))


def many(count: int) -> Result:
    """Two columns of distinct terms; every hundredth cell of the second is unbound."""
    first = np.arange(count)
    second = np.where(first % 100 == 0, UNBOUND, first + count)
    return Result("select", ("x", "y"), (first, second), Counting(), 7)


class Measure(io.RawIOBase):
    """A file that forgets, counting bytes and calls."""

    size = calls = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.size += len(data)
        self.calls += 1
        return len(data)


@pytest.mark.parametrize("format", ["json", "xml", "csv", "tsv", "arrow"])
def test_the_text_is_never_in_memory_as_a_whole(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.query.output.results._CHUNK_ROWS", 512)
    result, file = many(LONG), Measure()
    many(1).serialize(format, cast(BinaryIO, Measure()))  # whatever is imported late
    tracemalloc.start()
    try:
        result.serialize(format, cast(BinaryIO, file))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert file.size > 1_500_000
    assert file.calls > 100
    assert peak < 750_000, f"{peak} bytes"


@pytest.mark.parametrize("format", ["table", "json", "xml", "csv", "tsv"])
def test_chunks_join_to_what_one_chunk_gives(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, columns = columns_of([("<http://ex/a>", None), (None, '"b"'), ('"c,"', "_:d"), (None, None)] * 5, 2)
    result = Result("select", ("x", "y"), columns, reader, 7)
    whole = serialize(result, format)
    monkeypatch.setattr("wukongs.query.output.results._CHUNK_ROWS", 3)
    assert len(list(text_chunks(result, format))) > 7
    assert serialize(result, format) == whole


def test_a_long_result_is_written_like_a_short_one() -> None:
    text = many(LONG).serialize("tsv")
    rows = text.splitlines()
    assert len(rows) == LONG + 1
    assert rows[0] == "?x\t?y"
    for number in (0, 1, 8191, 8192, LONG - 1):
        x, y = (Counting().texts(np.array([at]))[0] for at in (number, number + LONG))
        assert rows[number + 1] == f"{x}\t{'' if number % 100 == 0 else y}"


def test_record_batches_make_the_table() -> None:
    result = many(LONG)
    schema, batches = result.batches()
    first = next(batches)
    assert first.num_rows == 8192
    assert pyarrow.Table.from_batches([first, *batches], schema) == result.arrow()
    assert pyarrow.ipc.open_stream(result.serialize("arrow")).read_all() == result.arrow()
    for small in (ask(True), construct([("<http://ex/a>", "<http://ex/p>", '"1"')]), select("x", [])):
        assert pyarrow.ipc.open_stream(small.serialize("arrow")).read_all() == small.arrow()


def test_triples_of_one_subject_stand_together_within_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    triples = [(f"<http://ex/{at % 2}>", "<http://ex/p>", f'"{at}"') for at in range(4)]
    assert construct(triples).serialize("ttl").count("<http://ex/p>") == 2
    monkeypatch.setattr("wukongs.query.output.results._CHUNK_ROWS", 2)
    assert construct(triples).serialize("ttl").count("<http://ex/p>") == 4


@pytest.mark.parametrize("format", ["json", "csv", "table", "arrow"])
def test_a_destination_gets_what_is_returned_without_one(format: str, tmp_path: Path) -> None:
    result = select("x y", [("<http://ex/é>", None), ('"日本"', '"2"')])
    expected = result.serialize(format)
    content = expected if isinstance(expected, bytes) else expected.encode()
    file = io.BytesIO()
    assert result.serialize(format, file) is None
    assert file.getvalue() == content
    assert not file.closed
    for path in (tmp_path / "a", str(tmp_path / "b")):
        result.serialize(format, path)
        assert Path(path).read_bytes() == content


def test_prefixes_go_to_a_destination_too() -> None:
    file = io.BytesIO()
    construct([("<http://ex/a>", "<http://ex/p>", '"1"')]).serialize("ttl", file, prefixes={"ex": "http://ex/"})
    assert b'ex:a ex:p "1"' in file.getvalue()


def test_a_wrong_format_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("old")
    with pytest.raises(SettingsError, match="format = 'ttl'"):
        select("x", []).serialize("ttl", file)
    assert file.read_text() == "old"


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        select("x", []).serialize("csv", tmp_path / "no" / "file")
    assert str(caught.value) == (
        f"{tmp_path / 'no' / 'file'}: cannot be written: No such file or directory; give another path"
    )


class Full(Measure):
    """A disk with room for so many bytes."""

    name = "full.csv"

    def write(self, data: Any) -> int:
        if self.size + len(data) > 100_000:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_named_and_the_partial_file_said() -> None:
    with pytest.raises(StorageError) as caught:
        many(LONG).serialize("csv", cast(BinaryIO, Full()))
    assert str(caught.value).startswith("full.csv: No space left on device, after about ")
    assert str(caught.value).endswith("what was written is incomplete; make room or write elsewhere")


def test_what_xml_cannot_hold_says_that_the_file_is_incomplete(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the character U\+0001") as caught:
        select("x", [('"a\x01"',)]).serialize("xml", tmp_path / "x.xml")
    assert caught.value.__notes__[0].startswith(f"{tmp_path / 'x.xml'} is incomplete")


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("data") / "many.nt"
    file.write_text("".join(f"<http://ex/{at}> <http://ex/p> <http://ex/o{at}> .\n" for at in range(20_000)))
    return str(file)


def command(data: str, format: str = "csv") -> list[str]:
    question = "SELECT * { ?s ?p ?o }"
    return [sys.executable, "-m", "wukongs", "query", "--data", data, "--format", format, question]


def test_a_reader_that_leaves_ends_the_command_quietly(data: str) -> None:
    child = subprocess.Popen(command(data), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == b"s,p,o\r\n"
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()
    assert (child.wait(60), err) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("format", first_and_slow(["csv", "arrow", "table"]))
def test_a_full_disk_under_standard_output_is_named(data: str, format: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command(data, format), stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith(b"wukongs: standard output: No space left on device, after about ")
    assert done.stderr.count(b"\n") == 1

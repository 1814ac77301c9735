"""The format of a data folder's log: an older one opens, and what this version does not know is refused by name.

folders/format_1.zip was written before there were updates: a load, then a stream with a query of [RANGE 1s STEP 500ms]
of which no window was read, tuples at 100, 450 and 730 ms, a checkpoint, tuples at 1200 and 1400 ms, a load, a crash.

folders/format_2.zip was written when a chunk of a load or update was a piece of a stream without name: the same, with
an update behind the first load, two updates and a chunk of a load that was not committed before the crash.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import rows
from wukongs.durable.log_records import CHANGE
from wukongs.store.wal import WriteAheadLog

FOLDERS = Path(__file__).parent / "folders"
ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
QUERY = "REGISTER QUERY all AS SELECT * FROM STREAM <http://ex/s> [RANGE 1s STEP 500ms] WHERE { ?s ?p ?o }"


def windows(query: Any) -> dict[int, list[str]]:
    return {window.end_ms: sorted(" ".join(row) for row in rows(window)) for window in query.results(timeout_s=0)}


@pytest.mark.parametrize(
    ("format", "of_a", "named"),
    [
        (1, [" a p b", " a p one"], ["g late p b"]),
        (2, [" a p z", " a p two"], ["h d p loaded", "h s2e6976a6a9d74cc7xx p b"]),
    ],
)
def test_a_folder_of_a_format_before_opens_and_goes_on(
    tmp_path: Path, format: int, of_a: list[str], named: list[str]
) -> None:
    def stored(engine: wukongs.Engine) -> list[str]:
        return sorted(" ".join(row) for row in rows(engine.query(ALL)))

    with zipfile.ZipFile(FOLDERS / f"format_{format}.zip") as archive:
        archive.extractall(tmp_path)
    assert {path.read_bytes()[:8] for path in tmp_path.glob("log/*.log")} == {b"WKLOG%03d" % format}
    with wukongs.Engine(tmp_path) as engine:
        assert stored(engine) == sorted([*of_a, " b p c", *named, " d p c"])
        engine.update("DELETE WHERE { <http://ex/a> ?p ?o }")
    # Now the log has segments of both formats, the last one's head being the only record that is new.
    with wukongs.Engine(tmp_path) as engine:
        stream = engine.stream("http://ex/s", timing=["http://ex/seen"], batch_ms=100)
        query = engine.register(QUERY)
        stream.advance(2000)
        engine.settle(timeout_s=60)
        assert windows(query) == {
            500: ["a seen c", "b p c"],
            1000: ["a seen c", "b p c", "b seen 1"],
            1500: ["b seen 1", "d p c", "d seen c"],
            2000: ["d p c", "d seen c"],
        }
        assert stored(engine) == [" b p c", " d p c", *named]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_newer_format_is_refused_by_its_name(tmp_path: Path, is_last: bool) -> None:
    folder = tmp_path / "db"
    with wukongs.Engine(tmp_path / "0", settings=wukongs.Settings(log_segment_bytes=1 << 10)) as engine:
        for number in range(9):
            engine.update(f"INSERT DATA {{ <http://ex/a> <http://ex/p> 'triple {number}' }}")
        shutil.copytree(tmp_path / "0", folder)  # as a crash leaves it
    segments = sorted(folder.glob("log/*.log"))
    path = segments[-1 if is_last else 0]
    content = path.read_bytes()
    assert (content[:8], len(segments) > 1) == (b"WKLOG006", True)
    path.write_bytes(b"WKLOG007" + content[8:])
    with pytest.raises(wukongs.StorageError) as caught:
        wukongs.Engine(folder)
    assert str(caught.value) == (
        f"{path}: written in format 7, and this version of wukongs reads logs of format 1 to 6. Open the folder with "
        "the version that wrote it, or a newer one"
    )
    path.write_bytes(content)
    with wukongs.Engine(folder) as engine:
        assert engine.stats()["stored_triples"] == 9


@pytest.mark.parametrize("kind", ["record", "change"])
def test_an_unknown_record_is_refused_by_its_name(tmp_path: Path, kind: str) -> None:
    with wukongs.Engine(tmp_path) as engine:
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    wal = WriteAheadLog(tmp_path / "log")
    head, *_ = wal.read(wal.segments()[-1])
    wal.begin(head.kind, [head.payload], head.sn)
    appended = {
        "record": (9, [b"{}"], "kind 9"),
        "change": (CHANGE, [json.dumps({"op": "vacuum"}).encode()], "the change 'vacuum'"),
    }
    number, payload, what = appended[kind]
    lsn = wal.append(number, payload, head.sn)
    wal.close()
    for _ in range(2):
        with pytest.raises(wukongs.StorageError) as caught:
            wukongs.Engine(tmp_path)
        assert str(caught.value) == (
            f"{wal.folder}: record {lsn} is of {what}, which this version of wukongs does not know. Open the folder "
            "with the version that wrote it, or a newer one"
        )

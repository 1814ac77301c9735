"""The format of a data folder's log: an older one opens, and what this version does not know is refused by name.

folders/format_1.zip was written before there were updates: a load, then a stream with a query of [RANGE 1s STEP 500ms]
of which no window was read, tuples at 100, 450 and 730 ms, a checkpoint, tuples at 1200 and 1400 ms, a load, a crash.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import rows
from wukongs.live.journal import CHANGE, MESSAGE, load_piece, pack_frames
from wukongs.store.encoded import Encoded, TermTable
from wukongs.store.wal import WriteAheadLog
from wukongs.wire.messages import to_frames

OLD = Path(__file__).parent / "folders" / "format_1.zip"
ALL = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
QUERY = "REGISTER QUERY all AS SELECT * FROM STREAM <http://ex/s> [RANGE 1s STEP 500ms] WHERE { ?s ?p ?o }"


def windows(query: Any) -> dict[int, list[str]]:
    return {window.end_ms: sorted(" ".join(row) for row in rows(window)) for window in query.results(timeout_s=0)}


def test_a_folder_of_the_format_before_opens_and_goes_on(tmp_path: Path) -> None:
    with zipfile.ZipFile(OLD) as archive:
        archive.extractall(tmp_path)
    assert {path.read_bytes()[:8] for path in tmp_path.glob("log/*.log")} == {b"WKLOG001"}
    stored = [" a p b", " a p one", " b p c", "g late p b"]
    with wukongs.Engine(tmp_path) as engine:
        assert sorted(" ".join(row) for row in rows(engine.query(ALL))) == sorted([*stored, " d p c"])
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
        assert sorted(" ".join(row) for row in rows(engine.query(ALL))) == [" b p c", " d p c", "g late p b"]


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
    assert (content[:8], len(segments) > 1) == (b"WKLOG002", True)
    path.write_bytes(b"WKLOG003" + content[8:])
    with pytest.raises(wukongs.StorageError) as caught:
        wukongs.Engine(folder)
    assert str(caught.value) == (
        f"{path}: written in format 3, and this version of wukongs reads logs of format 1 and 2. Open the folder with "
        "the version that wrote it, or a newer one"
    )
    path.write_bytes(content)
    with wukongs.Engine(folder) as engine:
        assert engine.stats()["stored_triples"] == 9


@pytest.mark.parametrize("kind", ["record", "change", "share"])
def test_an_unknown_record_is_refused_by_its_name(tmp_path: Path, kind: str) -> None:
    with wukongs.Engine(tmp_path) as engine:
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    wal = WriteAheadLog(tmp_path / "log")
    head, *_ = wal.read(wal.segments()[-1])
    wal.begin(head.kind, [head.payload], head.sn)
    nothing = np.empty(0, np.int64)
    encoded = Encoded(nothing, nothing, nothing, nothing, nothing, TermTable.empty())
    share = pack_frames(to_frames(replace(load_piece(1, encoded), piece=2), 0))
    appended = {
        "record": (9, [b"{}"], "kind 9"),
        "change": (CHANGE, [json.dumps({"op": "vacuum"}).encode()], "the change 'vacuum'"),
        "share": (MESSAGE, share, "share 2 of a load"),
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

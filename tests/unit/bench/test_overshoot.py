"""The benchmark of bad queries at a tiny size: it reports how each ended, how late, and how much memory it took."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import wukongs
from wukongs.bench.__main__ import main
from wukongs.bench.oneshot import overshoot
from wukongs.bench.oneshot.bad_queries import PREFIX, QUERIES, UPDATES
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update


@pytest.mark.slow
def test_a_quick_run_reports_time_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overshoot", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "overshoot.json").read_text(encoding="utf-8"))
    times, memory = found["tables"].values()
    asked = [query.name for query in (*QUERIES, *UPDATES)[:: overshoot.QUICK.every]]
    assert [row["query"] for row in times] == [row["query"] for row in memory] == asked
    late = [row for row in times if row["ended by"] == "deadline"]
    assert len(late) > len(asked) / 2
    assert all(row["worst ms"] >= row["median ms"] > 0 for row in late)
    assert memory[0]["ended by"] == "budget", "a product meets any budget of bytes"
    assert memory[0]["MiB"] > 1


def test_memory_that_cannot_be_read_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise OSError("no clear_refs")

    monkeypatch.setattr(overshoot, "QUICK", replace(overshoot.QUICK, every=100))
    monkeypatch.setattr(overshoot, "reset_peak", fail)
    assert overshoot.main(tmp_path, quick=True) == 1
    assert capsys.readouterr().err.endswith("wukongs: bench overshoot: no clear_refs\n")
    assert not list(tmp_path.iterdir())


def test_what_ends_by_itself_has_no_overshoot(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([overshoot.ANSWER, overshoot.DEADLINE, overshoot.BUDGET])
    monkeypatch.setattr(overshoot, "_end", lambda *_: next(ends))
    with wukongs.Engine() as engine:
        row = overshoot.overshoot_of(engine, QUERIES[0], -0.5, 3)
    assert row["ended by"] == "answer, budget, deadline"
    assert 500 <= row["median ms"] == row["worst ms"] < 60_000


def test_memory_that_is_taken_and_given_back_is_seen() -> None:
    before = overshoot.reset_peak()
    del (held := bytearray(64 * overshoot.MEBIBYTE))[:]
    del held
    assert overshoot.status_bytes("VmHWM") - before > 60 * overshoot.MEBIBYTE
    assert overshoot.reset_peak() - before < 30 * overshoot.MEBIBYTE
    with pytest.raises(OSError, match="no VmNothing in /proc/self/status"):
        overshoot.status_bytes("VmNothing")


@pytest.mark.parametrize("query", [*QUERIES, *UPDATES], ids=lambda query: query.name)
def test_bad_queries_are_well_formed(query: overshoot.BadQuery) -> None:
    assert (parse_update if query.is_update else parse_query)(PREFIX + query.text)


def test_data_are_what_they_are_said_to_be() -> None:
    with wukongs.Engine() as engine:
        engine.load(overshoot.io.BytesIO(overshoot.make_data(10)), format="nt")
        count = "PREFIX : <http://ex/> SELECT (COUNT(*) AS ?n) { ?s ?p ?o FILTER(?p IN (%s)) }"
        numbers = [engine.query(count % part).texts()[0][0].split('"')[1] for part in (":p", ":in", ":to", ":n, :text")]
    assert numbers == ["10", "10", "30", "20"]

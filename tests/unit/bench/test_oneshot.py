"""The one-shot benchmark on tiny data: three systems with equal answers, estimates beside actual rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wukongs.bench.__main__ import main
from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.oneshot import run
from wukongs.bench.oneshot.estimates import q_error
from wukongs.bench.oneshot.queries import S_QUERIES
from wukongs.bench.oneshot.run import BUDGET_S, _compare, _in_turns


@pytest.mark.slow
def test_a_quick_run_compares_answers_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oneshot", "--quick", "--report", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "oneshot.json").read_text(encoding="utf-8"))
    terms, texts, estimates, parts, *values = found["tables"].values()
    for times in (terms, texts):
        assert {"S1", "S6", "optional", "construct", "ask", "geometric mean"} <= {row["query"] for row in times}
        assert all(row["pyoxigraph / wukongs"] > 0 for row in times)
    for times in values:
        assert {"year", "values-undef", "contains-product", "geometric mean"} <= {row["query"] for row in times}
        assert sum(row["rows"] > 0 for row in times[:-1]) > 25, "queries without rows would measure nothing"
    checked = [check["what"] for check in found["checks"]]
    assert "S6, rows as pyoxigraph has them" in checked
    assert "order-all, rows as rdflib has them" in checked
    assert sum(row["rows"] > 0 for row in terms[:-1]) > 25, "queries without rows would measure nothing"
    assert (tmp_path / "oneshot.png").stat().st_size > 0
    assert {row["step"] for row in estimates if row["query"] == "S3"} == {1, 2, 3}
    assert {row["part"] for row in parts} >= {"parse (with tokens)", "plan", "all"}


def test_q_error_counts_both_ways_and_less_than_a_row_as_one() -> None:
    assert [q_error(10, 5), q_error(5, 10), q_error(0.01, 0), q_error(3, 0)] == [2, 2, 1, 3]


def test_answers_that_differ_are_no_answers() -> None:
    bag, ordered = S_QUERIES[0], replace(S_QUERIES[0], compared="sequence")
    report = Report("oneshot", {})
    a, b = ("a",), ("b",)
    _compare(report, bag, "pyoxigraph", [a, b], [b, a])
    _compare(report, replace(bag, compared="count"), "pyoxigraph", [a], [b])
    for query, ours, theirs in ((bag, [a, a, b], [a, b, b]), (bag, [a], [a, a]), (ordered, [a, b], [b, a])):
        with pytest.raises(WrongAnswer):
            _compare(report, query, "pyoxigraph", ours, theirs)


def test_what_the_first_call_compiles_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    calls: list[str] = []

    def answer(text: str) -> None:
        clock[0] += 0.001 if calls else 2 * BUDGET_S
        calls.append(text)

    monkeypatch.setattr(run.time, "perf_counter", lambda: clock[0])
    samples = _in_turns("ask", {"wukongs": answer}, repeats=5)
    assert [round(sample, 6) for sample in samples["wukongs"]] == [0.001] * 5
    assert calls == ["ask"] * 6

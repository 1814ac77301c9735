"""Two runs beside each other, and the command that compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bench.result_folders import measured, skipped, write_folder
from wukongs.bench.report.reading import ResultsError
from wukongs.bench.report.two_runs import Comparison, compare_runs
from wukongs.cli import main

BASE = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06]
Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    def run(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run


def times(factor: float) -> list[float]:
    return [factor * value for value in BASE]


def compared(folder: Path, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Comparison:
    return compare_runs(write_folder(folder / "before", before), write_folder(folder / "after", after))


def test_what_got_slower_and_quicker(tmp_path: Path) -> None:
    before = [measured(query, "wukongs", BASE) for query in ("L1", "L2", "L3")]
    after = [measured("L1", "wukongs", times(1.5)), measured("L2", "wukongs", times(0.5))]
    after += [measured("L3", "wukongs", times(1.001))]
    found = compared(tmp_path, before, after)
    assert {one.after.query: one.verdict for one in found.changes} == {"L1": "worse", "L2": "better", "L3": "the same"}
    slower = found.changes[0]
    assert slower.ratio is not None
    assert slower.ratio.low is not None
    assert slower.ratio.high is not None
    assert slower.ratio.value == pytest.approx(1.5)
    assert 1.5 / 1.06 <= slower.ratio.low < 1.5 < slower.ratio.high <= 1.5 * 1.06
    assert [one.after.query for one in found.worse_than(1.4)] == ["L1"]
    assert found.worse_than(1.6) == []


def test_more_a_second_is_better(tmp_path: Path) -> None:
    rate = {"metric": "throughput", "unit": "queries/s"}
    found = compared(
        tmp_path,
        [measured(query, "wukongs", BASE, **rate) for query in ("L1", "L2")],
        [measured("L1", "wukongs", times(2.0), **rate), measured("L2", "wukongs", times(0.5), **rate)],
    )
    assert [one.verdict for one in found.changes] == ["better", "worse"]
    assert [one.after.query for one in found.worse_than(1.9)] == ["L2"]


def test_counts_of_work_are_compared_exactly(tmp_path: Path) -> None:
    count = {"metric": "probes", "unit": "probes"}
    before = [measured(query, "wukongs", [value], **count) for query, value in (("L1", 1000), ("L2", 1000), ("L3", 0))]
    before += [measured("L4", "wukongs", [7], **count)]
    after = [measured(query, "wukongs", [value], **count) for query, value in (("L1", 1001), ("L2", 999), ("L3", 5))]
    after += [measured("L4", "wukongs", [7], **count)]
    found = compared(tmp_path, before, after)
    assert [one.verdict for one in found.changes] == ["worse", "better", "worse", "the same"]
    assert [one.after.query for one in found.worse_than(1.0)] == ["L1", "L3"], "one single probe, and some after none"
    assert [one.after.query for one in found.worse_than(1.1)] == ["L3"]


def test_counts_that_go_by_the_clock_are_no_change_of_the_work(tmp_path: Path) -> None:
    of_nodes = {"experiment": "nodes", "unit": "messages", "case": {"nodes": 2}}
    metrics = ("all messages", "requests")
    before = [measured("L1", "wukongs", [100], metric=metric, **of_nodes) for metric in metrics]
    after = [measured("L1", "wukongs", [130], metric=metric, **of_nodes) for metric in metrics]
    found = compared(tmp_path, before, after)
    assert {one.after.metric: one.verdict for one in found.changes} == {"all messages": "open", "requests": "worse"}
    assert [one.after.metric for one in found.worse_than(1.1)] == ["requests"], "the protocol speaks with the time"


def test_one_sample_tells_nothing_of_times(tmp_path: Path) -> None:
    found = compared(tmp_path, [measured("L1", "wukongs", [1.0])], [measured("L1", "wukongs", [9.0])])
    assert [one.verdict for one in found.changes] == ["open"]
    assert found.worse_than(1.0) == []
    assert "Without an interval" in found.to_text()


def test_units_may_differ(tmp_path: Path) -> None:
    after = measured("L1", "wukongs", times(1000.0), unit="us")
    assert [one.verdict for one in compared(tmp_path, [measured("L1", "wukongs", BASE)], [after]).changes] == [
        "the same"
    ]


def test_what_only_one_has_is_told_with_the_reason(tmp_path: Path) -> None:
    before = [measured("L1", "wukongs", BASE), measured("L2", "größer", BASE, busy=0.4)]
    after = [measured("L1", "wukongs", BASE, rows=8), measured("L3", "wukongs", BASE)]
    after += [skipped("L2", "größer", "too slow for the time given")]
    write_folder(tmp_path / "before", before, versions={"python": "3.12.1"})
    write_folder(tmp_path / "after", after, '{"torn', is_complete=False)
    found = compare_runs(tmp_path / "before" / "run.json", tmp_path / "after")
    assert [key[:3] for key in found.only_before] == [("latency", "L2", "größer")]
    assert [key[:3] for key in found.only_after] == [("latency", "L3", "wukongs")]
    text = found.to_text()
    assert "not measured there: too slow for the time given" in text
    assert f"PARTIAL: {tmp_path / 'after'}" in text
    assert "line 4, is not whole and was left out" in text
    assert f"BUSY MACHINE: 1 of 2 figures of {tmp_path / 'before'}" in text
    assert "another versions: python 3.12.1 and 3.11.7" in text
    assert "machine" not in text
    assert "Answers with another number of rows" in text


def test_runs_without_a_common_figure_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="have no figure in common: compare runs of the same benchmark"):
        compared(tmp_path, [measured("L1", "wukongs", BASE)], [measured("L2", "wukongs", BASE)])


def test_the_command_tells_and_fails_if_it_is_asked_to(tmp_path: Path, ran: Ran) -> None:
    before = write_folder(tmp_path / "before", [measured("L1", "wukongs", BASE), measured("L2", "wukongs", BASE)])
    after = write_folder(tmp_path / "after", [measured("L1", "wukongs", times(1.5)), measured("L2", "wukongs", BASE)])
    status, out, err = ran("bench", "compare", before, after)
    assert (status, err) == (0, "")
    assert "Slower, or takes more" in out
    assert "The same: 1 of 2 figures." in out
    status, out, err = ran("bench", "compare", before, after, "--fail-above", "1.1")
    assert status == 1
    assert err == "wukongs: bench compare: one figure is worse by more than 1.1 times, see above\n"
    assert ran("bench", "compare", after, before, "--fail-above", "1.1")[0] == 0


def test_the_command_names_wrong_arguments(tmp_path: Path, ran: Ran) -> None:
    folder = write_folder(tmp_path / "before", [measured("L1", "wukongs", BASE)])
    status, _, err = ran("bench", "compare", folder, tmp_path / "nowhere")
    assert (status, err.count("\n")) == (1, 1)
    assert "nowhere: no such folder" in err
    for ratio in ("0.9", "nan", "much"):
        status, _, err = ran("bench", "compare", folder, folder, "--fail-above", ratio)
        assert status == 2
        assert f"expected a number from 1 on, such as 1.1, found '{ratio}'" in err


def test_the_report_command_writes_both_files(tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.bench.report.can_draw", lambda: False)
    folder = write_folder(tmp_path / "run", [measured("L1", "wukongs", BASE)])
    status, out, err = ran("bench", "report", folder / "run.json")
    assert (status, out) == (0, "")
    assert err == f"{folder / 'report.html'}, {folder / 'report.md'}\n"
    assert (folder / "report.md").stat().st_size > 0
    assert (folder / "report.html").stat().st_size > 0
    status, _, err = ran("bench", "report", tmp_path)
    assert status == 1
    assert "no run.json in it" in err

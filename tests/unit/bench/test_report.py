"""Reports of made-up runs: what they say first, their figures recomputed, and what is left out."""

from __future__ import annotations

import html.parser
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.unit.bench.result_folders import measured, skipped, write_folder
from wukongs.bench.harness import bootstrap_medians, interval
from wukongs.bench.report import pictures, write_report
from wukongs.bench.report.reading import ResultsError, convert, is_count, is_rate, ratio_of, read_results

FAST = [0.040, 0.042, 0.044, 0.046, 0.048, 0.050, 0.052]
SLOW = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15]


class Page(html.parser.HTMLParser):
    """The tables of a page, and every address and script in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self._is_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = self._is_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.rows[-1][-1] += data


def reported(folder: Path) -> tuple[str, Page]:
    write_report(folder)
    return (folder / "report.md").read_text(encoding="utf-8"), Page(
        (folder / "report.html").read_text(encoding="utf-8")
    )


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.bench.report.can_draw", lambda: False)


# --- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 6, 25, 40])
def test_bootstrapped_medians_are_those_of_resamples(count: int) -> None:
    random = np.random.default_rng(count)
    samples = random.lognormal(0, 0.5, count)
    naive = np.median(samples[random.integers(0, count, (40_000, count))], axis=1)
    drawn = bootstrap_medians(samples.tolist())
    for share in (0.025, 0.25, 0.5, 0.75, 0.975):
        place = np.searchsorted(np.sort(naive), np.quantile(drawn, share), side="left") / len(naive)
        upper = np.searchsorted(np.sort(naive), np.quantile(drawn, share), side="right") / len(naive)
        assert place - 0.02 <= share <= upper + 0.02, (count, share, place, upper)
    assert interval(drawn) == interval(bootstrap_medians(samples.tolist())), "of the same samples always the same"


def test_units() -> None:
    assert convert(1.5, "ms", "us") == pytest.approx(1500)
    assert convert(2.0, "MiB", "bytes") == 2 * 2**20
    assert convert(1.0, "ms", "bytes") is None
    assert convert(3.0, "probes", "probes") == 3.0
    assert [is_count(unit) for unit in ("rows", "bytes", "probes", "ms", "MB", "tuples/s", "MB/min", "%")] == [
        True,
        True,
        True,
        *[False] * 5,
    ]
    assert [is_rate(unit) for unit in ("tuples/s", "MB/min", "ms")] == [True, False, False]


def test_a_ratio_of_other_units_and_its_interval(tmp_path: Path) -> None:
    lines = [measured("L1", "wukongs", FAST), measured("L1", "a peer", [1000 * one for one in SLOW], unit="us")]
    ours, theirs = read_results(write_folder(tmp_path, lines)).figures.values()
    ratio = ratio_of([(ours, theirs)])
    assert ratio is not None
    assert ratio.value == pytest.approx(0.046 / 0.125)
    random = np.random.default_rng(3)
    medians = [
        np.median(np.asarray(one)[random.integers(0, len(one), (50_000, len(one)))], axis=1) for one in (FAST, SLOW)
    ]
    low, high = np.percentile(medians[0] / medians[1], (2.5, 97.5))
    assert ratio.low == pytest.approx(low, rel=0.05)
    assert ratio.high == pytest.approx(high, rel=0.05)


def test_too_few_samples_have_no_interval(tmp_path: Path) -> None:
    lines = [measured("L1", "wukongs", [2.0]), measured("L1", "a peer", [4.0, 4.0, 4.0])]
    ours, theirs = read_results(write_folder(tmp_path, lines)).figures.values()
    assert (ours.low, theirs.high) == (None, None)
    ratio = ratio_of([(ours, theirs)])
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high) == (0.5, None, None)


def test_bounds_stand_in_for_samples(tmp_path: Path) -> None:
    lines = [
        measured("L1", "wukongs", [2.0], low=1.0, high=3.0) | {"values": [], "count": 500},
        measured("L1", "a peer", [4.0], low=2.0, high=6.0) | {"values": [], "count": 500},
    ]
    ratio = ratio_of([tuple(read_results(write_folder(tmp_path, lines)).figures.values())])  # type: ignore[list-item]
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high) == (0.5, 1 / 6, 1.5)


# --- what a report says -----------------------------------------------------------------------------------------------


def test_figures_peers_and_published_ones_stand_together(tmp_path: Path, without_pictures: None) -> None:
    lines = [measured("L4", "pyoxigraph", SLOW), measured("L4", "wukongs", FAST)]
    text, page = reported(write_folder(tmp_path, lines))
    head = next(row for row in page.rows if row[:2] == ["query", "engine"])
    found = {row[1]: dict(zip(head, row, strict=True)) for row in page.rows if len(row) == len(head)}
    assert found["wukongs"]["median"] == "0.046"
    assert "p99" not in head, "of seven samples it would be the greatest"
    assert (found["wukongs"]["samples"], found["wukongs"]["rows"]) == ("7", "7")
    assert found["pyoxigraph"]["ratio"] == "0.368"  # 0.046 / 0.125
    assert re.fullmatch(r"0\.\d+ to 0\.\d+", found["pyoxigraph"]["its interval"])
    paper = next(value for name, value in found.items() if re.fullmatch(r"Wukong\+S \(\d+\)", name))
    assert (paper["median"], paper["ratio"]) == ("1.19", "0.0387")  # Table 2; 0.046 / 1.19
    assert paper["its interval"] == "0.0336 to 0.0437"  # 0.040 / 1.19, 0.052 / 1.19
    here = next(value for name, value in found.items() if "measured here" in name)
    assert here["median"] in ("1.8", "3.7"), "microseconds of its source as milliseconds"
    assert list(found).index("wukongs") < list(found).index("pyoxigraph")
    for told in ("SOSP 2017, Table 2", "Xeon E5-2650 v4", "118 M stored triples", "median of 100 runs"):
        assert told in " ".join(text.split())
    for told in ("a processor", "memory gib 24.0", "0123abc", "pyoxigraph 0.5.1", "stored 209336", "repeat 5"):
        assert any(told in cell for row in page.rows for cell in row), told


def test_p99_is_told_from_a_hundred_samples_on(tmp_path: Path, without_pictures: None) -> None:
    lines = [measured("L1", "wukongs", [1.0] * 100, p99=1.75), measured("L2", "wukongs", [1.0] * 99, p99=1.25)]
    _, page = reported(write_folder(tmp_path, lines))
    at = next(row for row in page.rows if row[:2] == ["query", "engine"]).index("p99")
    assert {row[0]: row[at] for row in page.rows if row[0] in ("L1", "L2") and row[1] == "wukongs"} == {
        "L1": "1.75",
        "L2": "",
    }


def test_a_geometric_mean_needs_all_queries(tmp_path: Path, without_pictures: None) -> None:
    values = {f"L{number}": [number * one for one in FAST] for number in range(1, 7)}
    lines = [measured(query, "wukongs", samples) for query, samples in values.items()]
    lines += [measured(f"L{number}", "a peer", SLOW) for number in (*range(1, 6), 7)]
    text, page = reported(write_folder(tmp_path, lines))
    assert "The geometric mean is that of L1, L2, L3, L4, L5, L6.\n" in text, "and not that of L7"
    at = next(place for place, row in enumerate(page.rows) if row[0] == "geometric mean")
    mean = math.exp(sum(math.log(number * 0.046) for number in range(1, 7)) / 6)
    assert page.rows[at][1:3] == ["wukongs", f"{mean:.3g}"]
    beside = {
        row[1].split(" (")[0]: row for row in page.rows[at + 1 :] if len(row) == len(page.rows[at]) and not row[0]
    }
    assert beside["Wukong+S"][2] == "0.48"
    at = next(row for row in page.rows if row[:2] == ["query", "engine"]).index("ratio")
    assert float(beside["Wukong+S"][at]) == pytest.approx(mean / 0.48, rel=0.01)
    assert "a peer" not in beside, "it has no L6"


def test_a_published_figure_stands_beside_the_case_that_fits(tmp_path: Path, without_pictures: None) -> None:
    lines = [
        measured(
            "L4", "wukongs", [rate * one for one in FAST], experiment="rate", metric="latency", case={"rate": rate}
        )
        for rate in (1.0, 4.0, 8.0)
    ]
    text, _ = reported(write_folder(tmp_path, lines))
    part = text.split("Case: rate 4.")[1].split("##")[0]
    assert "Wukong+S, one core a node" in part
    assert "8.5" in part
    assert "Case: rate 8" not in text, "figures that nothing stands beside are in one table"
    assert "| rate 8 | 0.368 (0.32 to 0.416) |" in text


def test_a_partial_run_is_said_first(tmp_path: Path, without_pictures: None) -> None:
    folder = write_folder(
        tmp_path, [measured("L1", "wukongs", FAST)], '{"experiment": "lat', ended=None, is_complete=False
    )
    text, page = reported(folder)
    first = text.split("\n\n")[1]
    assert first.startswith("**⚠ PARTIAL: this run did not do all that it was to do; it has not ended")
    assert "results.jsonl, line 2, is not whole and was left out" in text.replace("\\", "")
    assert any("wukongs" in row for row in page.rows)
    whole, _ = reported(write_folder(tmp_path / "whole", [measured("L1", "wukongs", FAST)]))
    assert "PARTIAL" not in whole
    assert "BUSY" not in whole
    assert "NOT CHECKED" not in whole


def test_busy_and_unchecked_figures_are_marked(tmp_path: Path, without_pictures: None) -> None:
    lines = [measured("L1", "wukongs", FAST, busy=0.34), measured("L2", "wukongs", FAST, checked=None)]
    lines += [measured("L1", "wukongs", [5.0], metric="probes", unit="probes", checked=None)]
    text, page = reported(write_folder(tmp_path, lines))
    assert "⚠ BUSY MACHINE: others took more than 5 % of the cores, up to 34 %, while 1 of 3 figures" in text
    assert "⚠ NOT CHECKED: the answers behind 1 of 3 figures" in text, "a count of work answers nothing"
    remarks = {row[0]: row[-1] for row in page.rows if len(row) > 4 and row[1] == "wukongs" and "⚠" in row[-1]}
    assert remarks == {"L1": "⚠ busy 34 %", "L2": "⚠ not checked"}
    checks = [row for row in page.rows if row[:2] == ["latency", "wukongs"]]
    assert ["latency", "wukongs", "L2", "⚠ nothing"] in checks


def test_what_was_not_measured_and_why(tmp_path: Path, without_pictures: None) -> None:
    why = "answers otherwise: 3 rows expected, 2 found, first difference <http://e/a|b> & *c*"
    lines = [measured(query, "wukongs", FAST) for query in ("L1", "L2", "L10")] + [measured("L1", "a peer", SLOW)]
    lines += [skipped("L2", "a peer", why), skipped("L1", "bytewax", "missing: pip install bytewax")]
    text, page = reported(write_folder(tmp_path, lines))
    assert ["latency", "a peer", "L2", "rate 1, users 1,000", why] in page.rows
    assert ["latency", "bytewax", "L1", "rate 1, users 1,000", "missing: pip install bytewax"] in page.rows
    gap = ["latency", "a peer", "L10", "rate 1, users 1,000", "⚠ no figure, and no reason given"]
    assert [row for row in page.rows if row[-1].startswith("⚠ no figure")] == [gap]
    assert "&lt;http://e/a\\|b> &amp; \\*c\\*" in text
    assert "Experiments of the papers that are not in this run: composite" in text


def test_later_lines_win(tmp_path: Path) -> None:
    lines = [measured("L1", "wukongs", SLOW), skipped("L1", "a peer", "missing"), measured("L1", "wukongs", FAST)]
    lines += [measured("L1", "a peer", SLOW), skipped("L2", "a peer", "missing")]
    found = read_results(write_folder(tmp_path, lines))
    assert [figure.median for figure in found.figures.values()] == [0.046, 0.125]
    assert [one.query for one in found.skipped.values()] == ["L2"], "a figure takes the place of a reason"


def test_aims_stand_beside_what_was_reached(tmp_path: Path, without_pictures: None) -> None:
    lines = [
        measured("L1", "wukongs", [20.0] * 9, unit="us"),
        measured("L2", "wukongs", [0.010, 0.012, 0.014, 0.016, 0.018]),
        measured("L3", "wukongs", [0.5] * 9, busy=0.5),
        measured("L4", "wukongs", [2.0] * 100, metric="latency", p99=2.5),
    ]
    streams = {"experiment": "one-shot-with-streams", "unit": "ms"}
    lines += [
        measured("S1", "wukongs", [value] * 9, case={"users": 1000, "streams": way}, **streams)
        for way, value in (("off", 1.0), ("on", 1.02))
    ]
    text, page = reported(write_folder(tmp_path, lines, data={"stored": 12_000_000}))
    verdicts = {row[0]: row[2:] for row in page.rows if len(row) == 6 and row[2].startswith("at ")}
    case = "rate 1, users 1,000"
    assert verdicts["L1, execution, over 10 M stored and more"] == ["at most 30 us", "20 us", case, "reached"]
    assert verdicts["L2, execution, over 10 M stored and more"][1:] == ["14 (10 to 18) us", case, "open"]
    assert verdicts["L3, execution, over 10 M stored and more"][1:] == ["500 us", case, "⚠ missed, busy 50 %"]
    assert verdicts["L4, last advance to columns ready"][3] == "⚠ missed"
    assert verdicts["L4, last advance to columns ready, p99"][1:] == ["2.5 ms", case, "reached"]
    slowed = verdicts["S1 slowed by streams and continuous queries"]
    assert slowed == ["at most 3 %", "2 %", "streams on, users 1,000", "reached"]
    assert "Aims that this run has no figure for" in text
    assert ["restart with 95 M triples, cold cache", "", "at most 4 s"] in page.rows


def test_an_aim_is_not_judged_with_less_data_than_it_speaks_of(tmp_path: Path, without_pictures: None) -> None:
    lines = [measured("L1", "wukongs", [20.0] * 9, unit="us")]
    for name, data, said in (
        ("small", {"stored": 2831}, "not judged: stored 2,831"),
        ("unknown", {}, "not judged: stored not known"),
    ):
        _, page = reported(write_folder(tmp_path / name, lines, data=data, settings={"is_quick": True}))
        assert [row[-1] for row in page.rows if row[0].startswith("L1, execution")] == [said]
    assert "⚠ QUICK: tiny sizes" in (tmp_path / "small" / "report.md").read_text(encoding="utf-8")


# --- pictures ---------------------------------------------------------------------------------------------------------


def everything(folder: Path) -> Path:
    """A run with enough for each kind of picture."""
    random = np.random.default_rng(1)
    lines = [
        measured(query, engine, (scale * random.lognormal(0, 0.2, 30)).tolist(), case={"users": users, "rate": 1.0})
        for users in (1000, 100_000)
        for query in ("L1", "Größe $x$_1", "城市")
        for engine, scale in (("wukongs", 0.05), ("ein Gegenüber", 30.0))
    ]
    lines += [
        measured(
            "L1-L6",
            "wukongs",
            [400.0 + minute],
            experiment="memory",
            metric="resident",
            unit="MB",
            case={"minute": minute},
        )
        for minute in range(1, 31)
    ]
    return write_folder(folder, lines)


def test_pictures_are_in_the_page_and_beside_the_text(tmp_path: Path) -> None:
    text, page = reported(everything(tmp_path))
    names = sorted(path.name for path in (tmp_path / "report-pictures").glob("*.svg"))
    assert names == [
        "latency-execution-distribution.svg",
        "latency-execution-medians.svg",
        "latency-execution-over-users.svg",
        "memory-resident-over-minute.svg",
    ]
    assert sorted(re.findall(r"report-pictures/([^)]*)\)", text)) == names
    assert page.tags.count("svg") == 4
    assert "script" not in page.tags
    assert all(address.startswith("#") for address in page.addresses), "nothing comes from elsewhere"
    for name in names:
        svg = (tmp_path / "report-pictures" / name).read_text(encoding="utf-8")
        ElementTree.fromstring(svg)
        assert "currentColor" in svg
        assert "prefers-color-scheme:dark" in svg
    medians = (tmp_path / "report-pictures" / names[1]).read_text(encoding="utf-8")
    for label in ("Größe $x$_1", "城市", "ein Gegenüber", "execution, median with its 95 % interval, ms", "published"):
        assert label in medians, label
    assert [row for row in page.rows if row[:1] == ["minute 30"]] == [["minute 30", "430"]]
    assert "12 of 30 cases; results.jsonl has all." in text


def test_a_metric_in_two_units_has_pictures_of_both(tmp_path: Path) -> None:
    lines = [
        measured(query, "wukongs", [value], metric="cost", unit=unit)
        for unit, value, queries in (("ms", 1.0, ("L1", "L2")), ("MB", 2.0, ("L3", "L4")))
        for query in queries
    ]
    text, _ = reported(write_folder(tmp_path, lines))
    found = {path.name: path.read_text("utf-8") for path in (tmp_path / "report-pictures").glob("*.svg")}
    assert sorted(found) == ["latency-cost-medians-2.svg", "latency-cost-medians.svg"]
    assert "interval, ms" in found["latency-cost-medians.svg"]
    assert "interval, MB" in found["latency-cost-medians-2.svg"]
    assert "### cost, ms" in text
    assert "### cost, MB" in text


@pytest.mark.slow
def test_a_curve_is_of_a_case_that_has_something_to_show(tmp_path: Path) -> None:
    lines = [
        measured("protocol", "wukongs", [said], experiment="nodes", metric="messages", case=case)
        for nodes, said in ((1, 0.0), (2, 7.0))
        for case in ({"nodes": nodes, "streams": 1}, {"nodes": nodes, "streams": 5})
    ]
    text, _ = reported(write_folder(tmp_path, lines))
    assert "Over streams: nodes 2]" in text, "one node alone says nothing"


def test_a_report_is_the_same_when_it_is_written_again(tmp_path: Path) -> None:
    folder = everything(tmp_path)
    write_report(folder)
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "report-pictures" / "gone.svg").write_text("of an earlier report", encoding="utf-8")
    write_report(folder / "run.json")
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_without_matplotlib_a_report_has_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures.importlib.util, "find_spec", lambda name: None)
    text, page = reported(write_folder(tmp_path, [measured("L1", "wukongs", FAST), measured("L2", "wukongs", SLOW)]))
    assert "pip install 'wukongs[plots]'" in text.replace("\\", "")
    assert "svg" not in page.tags
    assert not (tmp_path / "report-pictures").exists()
    assert any("0.046" in row for row in page.rows)


# --- folders that are none --------------------------------------------------------------------------------------------


def test_a_run_that_has_measured_nothing_yet_has_a_report(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, [], ended=None, is_complete=False)
    (folder / "results.jsonl").unlink()
    text, page = reported(folder)
    assert "⚠ Nothing was measured." in text
    assert "svg" not in page.tags


def test_folders_without_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"nowhere: no such folder: expected the folder of a run"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "file").write_text("text")
    with pytest.raises(ResultsError, match="file: not a folder"):
        write_report(tmp_path / "file")
    with pytest.raises(ResultsError, match=r"no run\.json in it: expected the folder of a run"):
        write_report(tmp_path)
    folder = write_folder(tmp_path / "old", [], version=0)
    with pytest.raises(ResultsError, match=r"run\.json: version 0: expected a run of version 1; measure again"):
        write_report(folder)
    with pytest.raises(ResultsError, match=r"run\.json: data is \[1\]: expected an object"):
        write_report(write_folder(tmp_path / "old", [], data=[1]))
    (folder / "run.json").write_text("{")
    with pytest.raises(ResultsError, match=r"run\.json: .*: expected JSON, as a run writes it"):
        write_report(folder)
    (write_folder(tmp_path / "csv", []) / "results.jsonl").write_text("a,b\n1,2\n")
    with pytest.raises(ResultsError, match=r"results\.jsonl: none of its 2 lines is JSON"):
        write_report(tmp_path / "csv")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"median": "fast"}, "median 'fast'"),
        ({"median": None}, "median None"),
        ({"values": [1.0, math.inf]}, "values that are no numbers"),
        ({"query": 4}, "query 4"),
        ({"case": {"users": [1]}}, "case {'users': [1]}"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    folder = write_folder(tmp_path, [measured("L1", "wukongs", FAST), measured("L2", "wukongs", FAST) | change])
    with pytest.raises(ResultsError) as error:
        read_results(folder)
    assert f"results.jsonl, line 2: {said}: expected a result" in str(error.value)


def test_a_line_without_a_metric_is_named(tmp_path: Path) -> None:
    line = measured("L1", "wukongs", FAST)
    del line["metric"]
    folder = write_folder(tmp_path, [])
    (folder / "results.jsonl").write_text(json.dumps(line) + "\n[1]\n")
    with pytest.raises(ResultsError, match="line 1: 'metric' is missing"):
        read_results(folder)


# --- reckoned beyond one machine --------------------------------------------------------------------------------------


def test_work_of_many_nodes_is_reckoned_from_that_of_few(tmp_path: Path, without_pictures: None) -> None:
    """Made by the laws that are assumed, so that they are found again; what falls is taken as flat."""

    def line(query: str, metric: str, nodes: int, value: float, **case: int) -> dict[str, Any]:
        case = {"users": 1000, "nodes": nodes, **case}
        return measured(query, "wukongs", [value], experiment="nodes", metric=metric, unit="ms", case=case)

    lines = []
    for nodes in (1, 2, 4, 8):
        told, cpu_ms = 20 * (nodes - 1), 10 + 20 * (nodes - 1)
        spoken = nodes * cpu_ms / 10  # by all nodes, for a stream batch
        lines.append(line("tuples", "CPU", nodes, 0.004 + 0.008 * (nodes - 1) / nodes + spoken / 4000))
        lines.append(line("tuples", "all moved", nodes, 60.0 - nodes))
        lines.append(line("protocol", "messages", nodes, told, streams=5))
        lines.append(line("protocol", "bytes", nodes, 250 * told * (nodes - 1), streams=5))
        lines.append(line("protocol", "CPU", nodes, cpu_ms, streams=5))
        lines.append(line("protocol", "messages", nodes, 1e6, streams=20))
        lines += [line(query, "CPU", nodes, 2.0 + 0.5 * (nodes - 1) + spoken) for query in ("L1", "L4")]
    _, page = reported(write_folder(tmp_path / "run", lines, data={"tuples_per_s": 40_000}))
    table = page.rows[next(at for at, row in enumerate(page.rows) if "tuple: CPU, us" in row) :]
    rows = [dict(zip(table[0], row, strict=True)) for row in table[1:9]]
    assert [row["nodes"] for row in rows] == ["1", "2", "4", "8", "16", "32", "64", "100"]
    last = rows[-1]
    assert float(last["tuple: CPU, us"]) == pytest.approx(11.92, abs=0.1)
    assert float(last["cores busy with tuples"]) == pytest.approx(133_000 * 11.92e-6, rel=0.01)
    assert float(last["of a node, %"]) == pytest.approx(1.585, rel=0.01)
    assert [float(row["tuple: bytes"]) for row in rows] == pytest.approx([59] * 8, abs=0.1)
    told = [float(row["protocol of a node: messages/s"]) for row in rows]
    assert told == [0, 20, 60, 140, 200, 200, 200, 200]  # three others at a pulse, however many there are
    assert float(last["KB/s"].replace(",", "")) == pytest.approx(200 * 99 * 0.25, rel=0.01)
    reports = 200 * 99 - 140 * 7
    assert float(last["CPU, %"]) == pytest.approx((150 + 60 * 1.0 + 0.025 * reports) / 10, rel=0.01)
    assert float(last["firing: CPU of all, ms"]) == pytest.approx(51.5, rel=0.01)
    assert "firing: KB" not in last
    only_one = reported(write_folder(tmp_path / "one", [line("tuples", "CPU", 1, 0.004)]))[0]
    assert "reckoned" not in only_one

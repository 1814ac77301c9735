"""The first minutes with each tool: the parts, with nothing to install."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from wukongs.bench.first_minutes import QUERY, Times, Tool, check, main, measure, table, tools, write_data
from wukongs.bench.harness import WrongAnswer

WUKONGS = f"WUKONGS_KERNELS=interpret {shlex.quote(sys.executable)} -m wukongs"  # nothing is compiled behind it
SAYS = "import time; print('made', flush=True); time.sleep(1); print('answer', flush=True)"


@pytest.mark.slow
def test_wukongs_answers_over_the_data(tmp_path: Path) -> None:
    tool = Tool("wukongs", [], f"{WUKONGS} query --data data.nt --format csv '{QUERY}'")
    found = measure(tool, tmp_path)
    assert found.failed == ""
    assert found.install_s < found.first_s
    assert found.second_s > 0


def test_a_command_that_goes_on_has_parts(tmp_path: Path) -> None:
    tool = Tool("made", [], shlex.join([sys.executable, "-c", SAYS]), begun="made", answered="answer")
    found = measure(tool, tmp_path)
    assert found.failed == ""
    assert 0.1 < found.first_s < found.second_s


def test_what_fails_says_why(tmp_path: Path) -> None:
    found = measure(Tool("none", ["echo no such package >&2; false"], "true"), tmp_path)
    assert found.failed == "echo: no such package"
    assert measure(Tool("empty", [], "true"), tmp_path).failed.startswith("expected ")


def test_settings_of_benchmarks_do_not_reach_the_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WUKONGS_KERNELS", "compile")
    asked = f"test -z $WUKONGS_KERNELS && {WUKONGS} --version"
    assert measure(Tool("none", [asked], "true"), tmp_path).failed.startswith("expected ")


def test_an_answer_names_all_and_no_others(tmp_path: Path) -> None:
    friends = write_data(tmp_path)
    assert len(friends) > 3
    check(" ".join(friends), friends)
    for wrong in (friends[1:], [*friends, "http://www.ins.cwi.nl/sib/user/u999"]):
        with pytest.raises(WrongAnswer):
            check(" ".join(wrong), friends)


def test_the_table_has_a_row_for_each_tool() -> None:
    one, other = tools(7878)[2], tools(7878)[3]
    lines = table([Times(one, 4, 0.5, 0.25, load=0.1), Times(other, failed="curl is absent", load=0.2)])
    assert lines[0].startswith("| tool | install, s | first answer, s | together, s | second answer, s | commands |")
    assert lines[2] == "| Oxigraph, its server | 4.0 | 0.5 | 4.5 | 0.2 | 5 | streams, standing queries | 0.1 |"
    assert lines[3].startswith("| DuckDB, a table of the triples | - | - | - | - | 3 | curl is absent |")


def test_a_word_that_no_tool_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nosuch"])
    assert "no tool has a name with nosuch" in capsys.readouterr().err

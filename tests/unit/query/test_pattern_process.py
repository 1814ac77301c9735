"""Patterns matched in another process: the same answers, in whatever pieces; ended at the deadline or over budget."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.expression_text import result
from wukongs.query.functions import pattern_process, patterns
from wukongs.query.functions.pattern_parser import translate
from wukongs.query.limits import Limits, current
from wukongs.query.terms.arrow_texts import TEXT

TEXTS = ["", "abab", "äöü€𝄞a", "line\nline", "x" * 50]
HEAVY = "(a|b)*a(a|b){900}c"
"""RE2 takes 15 s to find that it is not in two million characters, if no 900 of them come again soon."""


@pytest.fixture(autouse=True)
def no_idle_process() -> Iterator[None]:
    """Each test has processes of its own."""
    held = list(pattern_process._idle)
    pattern_process._idle.clear()
    yield
    while pattern_process._idle:
        pattern_process._idle.pop().end()
    pattern_process._idle.extend(held)


def end_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of a query end a fifth of a second after a process has been told what to match, however long that
    took."""
    read, told = pattern_process._Worker._read, list[Limits]()

    def reading(worker: pattern_process._Worker) -> bytes:
        limits = current()
        if limits not in told:
            told.append(limits)
            limits.deadline_s = time.monotonic() + 0.2
        return read(worker)

    monkeypatch.setattr(pattern_process._Worker, "_read", reading)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("engine", ["re", "re2"])
def test_both_engines_answer_as_re_does(
    engine: pattern_process.Engine, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_process, "_PIECE", piece)
    for pattern in ("a|€", "(.)(.)", "^line$", "zz"):
        found = pattern_process.search(engine, pattern, TEXTS)
        assert found == [re.search(pattern, text) is not None for text in TEXTS]
        for text in TEXTS:
            replaced = pattern_process.replace(engine, pattern, text, ["<\\", 0, "ß>"])
            assert replaced == re.sub(pattern, lambda match: f"<\\{match[0]}ß>", text)
    assert len(pattern_process._idle) == 1, "one process has done it all"


def test_groups_are_put_where_the_replacement_has_them() -> None:
    assert pattern_process.replace("re", "(a)|(b)", "xaby", [2, "-", 1]) == "x-ab-y"
    assert pattern_process.replace("re2", "(a)|(b)", "xaby", [2, "-", 1]) == "x-ab-y"


def test_long_texts_are_matched_by_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that one call would take too long for, and no others."""
    asked: list[list[str]] = []
    search = pattern_process.search

    def noted(engine: pattern_process.Engine, pattern: str, texts: Any) -> list[bool]:
        asked.append(list(texts))
        return search(engine, pattern, texts)

    monkeypatch.setattr(pattern_process, "search", noted)
    monkeypatch.setattr(patterns, "PART_STEPS", 21 * 8)  # eight characters, for a pattern of one
    assert patterns.matches(["a" * 8, "b" * 9, "b" * 8, "ba", "a"], "a", "") == [True, False, False, True, True]
    assert asked == [["b" * 9]]


@pytest.mark.parametrize(
    "call", ["'aXbXXc', 'X', '-'", "'aXbXXc', '([a-c])X', '$1$1'", "'aXbXXc', '(X)\\\\1', ''", "'.a.', '.', '$', 'q'"]
)
def test_replace_gives_the_same_in_the_process(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = result(f"REPLACE({call})")
    assert expected is not None
    monkeypatch.setattr(patterns, "PART_STEPS", 1)
    monkeypatch.setattr(patterns, "SHORT_RESULT", 0)
    assert result(f"REPLACE({call})") == expected


@pytest.mark.parametrize("call", ["REGEX(?x, '{}')", "REPLACE(?x, '{}', '') = ''"])
def test_a_heavy_pattern_is_ended_at_the_deadline(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    end_in_the_process(monkeypatch)
    ended = []
    end = pattern_process._Worker.end

    def noted(worker: pattern_process._Worker) -> None:
        end(worker)
        ended.append(worker._process.poll())

    monkeypatch.setattr(pattern_process._Worker, "end", noted)
    doubled = " ".join(f"BIND(CONCAT(?x{step}, ?x{step}) AS ?x{step + 1})" for step in range(10))
    start = "".join(Random(1).choices("ab", k=2048))
    query = f"ASK {{ BIND('{start}' AS ?x0) {doubled} BIND(?x10 AS ?x) FILTER({call.format(HEAVY)}) }}"
    with wukongs.Engine() as engine:
        assert engine.query("ASK { BIND('ab' AS ?x) FILTER(CONCAT(?x, ?x) = 'abab') }").boolean  # kernels are compiled
        with pytest.raises(wukongs.QueryTimeout, match="at last in FILTER"):
            engine.query(query, timeout_s=60)
    assert ended == [-9], "the process that was at it is killed"
    assert not pattern_process._idle


@pytest.mark.parametrize("engine", ["re", "re2"])
def test_a_result_over_the_budget_is_refused_before_it_is_made(engine: pattern_process.Engine) -> None:
    with Limits(bytes_max=4000), pytest.raises(wukongs.BudgetExceeded, match=r"REPLACE would take [0-9]+ bytes beside"):
        pattern_process.replace(engine, "a", "a" * 100, ["x" * 50])
    with Limits(bytes_max=4000):
        assert pattern_process.replace(engine, "a", "a" * 100, ["x"]) == "x" * 100


def test_short_texts_with_long_replacements_are_refused_too() -> None:
    """70 thousand characters are no long text, but each of them becomes a hundred thousand."""
    text, by = "a" * 70_000, "b" * 100_000
    with Limits(bytes_max=1 << 30), pytest.raises(wukongs.BudgetExceeded, match="REPLACE would take 28000"):
        patterns._replaced(text, translate("a", ""), [by])


def test_results_for_many_texts_are_counted_together() -> None:
    """Each would fit into what is left, all of them do not."""
    with Limits(bytes_max=100_000), pytest.raises(wukongs.BudgetExceeded, match="REPLACE would take"):
        patterns.replaced(pa.array(["aa"] * 100, TEXT), "(a)\\1", "x" * 2000)
    with Limits(bytes_max=1_000_000) as limits:
        made = patterns.replaced(pa.array(["aa"] * 100, TEXT), "(a)\\1", "x" * 2000)
        assert made is not None
        assert limits.held < 1.1 * made.nbytes


def test_a_process_that_dies_is_a_named_error() -> None:
    assert pattern_process.search("re", "a", ["a"]) == [True]
    pattern_process._idle[0]._process.kill()
    pattern_process._idle[0]._process.wait()
    with pytest.raises(wukongs.BudgetExceeded, match="the process that matches the pattern of REGEX or REPLACE ended"):
        pattern_process.search("re", "a", ["a"])
    assert pattern_process.search("re", "a", ["b"]) == [False], "another one takes its place"


def test_a_deadline_that_has_passed_ends_before_anything_is_sent() -> None:
    with Limits(deadline_s=time.monotonic() - 1, timeout_s=0.1), pytest.raises(wukongs.QueryTimeout):
        pattern_process.search("re", "a", ["a"])


@pytest.mark.parametrize(
    ("pattern", "states"),
    [("abc", 3), ("[a-z]*b?", 2), ("(a|b){10}", 20), ("((ab){0,3}c){5,}", 35), ("(a{2}){0}", 2), ("\\p{L}{900}", 900)],
)
def test_states_are_counted_with_their_repetitions(pattern: str, states: int) -> None:
    assert translate(pattern, "").state_count == states

"""The lines of a log: what a message names first is a field of its JSON."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from wukongs.cli.logs import add_log_options, begin_logs


@pytest.fixture
def _loggers() -> Iterator[None]:
    """The loggers are as before when a test is over."""
    names = ("", "wukongs", "wukongs.access")
    before = [(logger := logging.getLogger(name), logger.level, [*logger.handlers]) for name in names]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers = handlers


def begun(*given: str, node: int | None = None) -> None:
    parser = argparse.ArgumentParser()
    add_log_options(parser)
    begin_logs(parser.parse_args(given), node)


@pytest.mark.usefixtures("_loggers")
def test_fields_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    begun("--log-format", "json", "--log-level", "info", node=2)
    log = logging.getLogger("wukongs")
    log.debug("not told")
    log.warning("query %s: %d rows\nin two lines", "q", 3)
    log.info("stream %s: late", "http://ex/s")
    log.info("node %d: silent", 1)
    try:
        raise ValueError("no number")
    except ValueError:
        log.exception("a failure", extra={"request": "r"})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["level"], one["logger"], one["node"]) for one in lines] == [
        ("warning", "wukongs", 2),
        ("info", "wukongs", 2),
        ("info", "wukongs", 1),
        ("error", "wukongs", 2),
    ]
    assert (lines[0]["query"], lines[0]["message"]) == ("q", "query q: 3 rows\nin two lines")
    assert lines[1]["stream"] == "http://ex/s"
    assert (lines[3]["request"], "ValueError: no number" in lines[3]["error"]) == ("r", True)


@pytest.mark.usefixtures("_loggers")
def test_text_has_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    begun("--log-format", "text")
    logging.getLogger("wukongs").info("not told")
    logging.getLogger("wukongs").warning("told")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.split(" ", 1)[1] == "WARNING wukongs: told"


def test_a_level_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        begun("--log-level", "loud")
    assert "invalid choice: 'loud'" in capsys.readouterr().err
    assert sys.stderr is not None

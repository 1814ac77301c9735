"""docs/api.md: every call that it lists is there, with these arguments and defaults, and no public one is missing."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import wukongs
from wukongs.cli import COMMANDS
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.stream import Stream
from wukongs.query.output.results import Result, WindowResult
from wukongs.remote.query import RemoteQuery, RemoteView
from wukongs.remote.stream import RemoteStream

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text("utf-8")
CLASSES = {
    "Engine": wukongs.Engine,
    "Stream": Stream,
    "ContinuousQuery": ContinuousQuery,
    "LiveView": wukongs.LiveView,
    "Result": Result,
}
REMOTE = {
    "Engine": wukongs.RemoteEngine,
    "Stream": RemoteStream,
    "ContinuousQuery": RemoteQuery,
    "LiveView": RemoteView,
}
OTHERWISE = ("Engine", "Engine.listen", "Engine.link", "Engine.declared")
"""A client is not made by its class, asks for no address, and has no engine in its process."""
CALLS = [line for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def as_written(call: object, name: str, skipped: int = 1) -> str:
    """A call as the page writes it: without types, and without self."""
    assert callable(call)
    signature = inspect.signature(call)
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()][skipped:]
    return name + str(signature.replace(parameters=parameters, return_annotation=signature.empty))


@pytest.mark.parametrize("line", CALLS)
def test_each_call_is_as_the_page_says(line: str) -> None:
    name = line.partition("(")[0]
    owner, _, method = name.partition(".")
    if not method and owner not in CLASSES:
        assert as_written(getattr(wukongs, name), name, skipped=0) == line
        return
    assert as_written(getattr(CLASSES[owner], method or "__init__"), name) == line
    if owner in REMOTE and name not in OTHERWISE:
        assert as_written(getattr(REMOTE[owner], method or "__init__"), name) == line


@pytest.mark.parametrize("owner", ["Engine", "Stream"])
def test_no_call_is_missing(owner: str) -> None:
    public = {
        name for name in vars(CLASSES[owner]) if not name.startswith("_") and callable(getattr(CLASSES[owner], name))
    }
    assert public == {line.partition("(")[0].partition(".")[2] for line in CALLS if line.startswith(owner + ".")}


def test_functions_attributes_and_errors() -> None:
    flat = " ".join(PAGE.split())
    for name in ("restore", "parse_query", "parse_update", "connect"):
        assert as_written(getattr(wukongs, name), name, skipped=0) in flat, name
    for error in (getattr(wukongs, name) for name in wukongs.__all__ if name.endswith("Error")):
        assert f"`{error.__name__}`" in PAGE
        assert issubclass(error, wukongs.WukongsError)
    own = set(inspect.signature(WindowResult).parameters) - set(inspect.signature(Result).parameters)
    assert all(f"`{name}`" in PAGE for name in own), own
    assert all(f"`{name}`" in PAGE for name in COMMANDS)

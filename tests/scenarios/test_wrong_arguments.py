"""What people give by mistake is refused by name, on every face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import wukongs
from tests.faces import Face

S = "http://ex/s"
TEXT = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"


@pytest.mark.parametrize(
    "call",
    [
        lambda engine, given: engine.query("ASK {}", timeout_s=given),
        lambda engine, given: engine.update("INSERT DATA {}", timeout_s=given),
        lambda engine, given: engine.settle(given),
        lambda engine, given: engine.stream("http://ex/t", timeout_s=given),
        lambda engine, given: next(engine.queries()[0].results(given)),
    ],
    ids=["query", "update", "settle", "stream", "results"],
)
def test_a_timeout_is_seconds(engine: Any, call: Callable[[Any, Any], Any]) -> None:
    engine.stream(S, batch_ms=100)
    engine.register(TEXT)
    for given in ("x", [1], True):
        with pytest.raises(wukongs.SettingsError, match=r"timeout_s = .*: expected seconds"):
            call(engine, given)


@pytest.mark.parametrize("given", [("<http://ex/a>", "<http://ex/p>", '"x"', 5), "<http://ex/a>"])
def test_one_tuple_is_no_list_of_tuples(face: Face, given: Any) -> None:
    stream = face.open().stream(S, batch_ms=100)
    with pytest.raises(wukongs.StreamError, match=r"expected a list of tuples, found (one tuple|a text): push\(\[\("):
        stream.push(given)
    assert stream.push((("<http://ex/a>", "<http://ex/p>", '"x"', 5),)) == 1


@pytest.mark.faces("embedded")
def test_settings_are_options(face: Face) -> None:
    with wukongs.Engine(settings={"rows_max": 5}) as engine:
        assert engine.settings.rows_max == 5
    with pytest.raises(wukongs.SettingsError, match="row_max = 5: expected one of the options batch_ms"):
        wukongs.Engine(settings={"row_max": 5})
    with pytest.raises(wukongs.SettingsError, match=r"settings = 5: expected wukongs\.Settings, or a dictionary"):
        wukongs.Engine(settings=5)  # type: ignore[arg-type]

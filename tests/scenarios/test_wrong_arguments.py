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


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "query base": (lambda engine, given: engine.query("ASK {}", base=given), (5, b"x")),
    "update base": (lambda engine, given: engine.update("INSERT DATA {}", base=given), (5,)),
    "query text": (lambda engine, given: engine.query(given), (None, 5)),
    "bindings": (lambda engine, given: engine.query("ASK {}", bindings=given), (5, [1])),
    "default_graphs": (
        lambda engine, given: engine.query("ASK {}", default_graphs=given),
        (None, 5, "http://ex/g", [5]),
    ),
    "named_graphs": (lambda engine, given: engine.update("CLEAR ALL", named_graphs=given), (None, [None])),
    "stream": (lambda engine, given: engine.stream(given), (None, 5, [S], b"x")),
    "timing": (lambda engine, given: engine.stream("http://ex/t", timing=given), (5, "http://ex/p", 2.5)),
    "on_late": (lambda engine, given: engine.stream("http://ex/t", on_late=given), (5, "a\0b", "\ud800")),
    "drop_stream": (lambda engine, given: engine.drop_stream(given), (None, 5, [1])),
    "push_many": (lambda engine, given: engine.push_many(given), (None, 5, [S])),
    "push_many of": (lambda engine, given: engine.push_many({S: given}), (5, "x", [1], object())),
    "kill": (lambda engine, given: engine.kill(given), (None, [1], "x")),
    "dump": (lambda engine, given: engine.dump(given), (None, 2.5, "a\0b", "\ud800")),
    "load": (lambda engine, given: engine.load(given), ("a\0b", "\ud800", None)),
    "backup": (lambda engine, given: engine.backup(given), (None, [1], "a\0b")),
    "restore": (lambda engine, given: engine.restore(given), (None, [1])),
    "replace": (lambda engine, given: engine.queries()[0].replace(TEXT, base=given), (5,)),
    "timeout": (lambda engine, given: engine.query("ASK {}", timeout_s=given), (float("nan"), b"x", 10 + 1j)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_value_of_another_type_is_refused_by_name_and_changes_nothing(engine: Any, name: str) -> None:
    call, wrong = CALLS[name]
    engine.stream(S, batch_ms=100)
    engine.register(TEXT)
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    for given in wrong:
        with pytest.raises(wukongs.WukongsError) as caught:
            call(engine, given)
        assert len(str(caught.value)) > 20
    assert engine.streams() == [S]
    assert [query.name for query in engine.queries()] == ["q"]
    assert len(engine.query("SELECT * { ?s ?p ?o }")) == 1

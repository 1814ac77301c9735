"""The network of the demo: a small one where kernels are not compiled yet, unless its size is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from wukongs import Engine
from wukongs.adapters.demo import demo_config, small_network
from wukongs.adapters.lsbench_generator import NetworkSettings, generate_network
from wukongs.adapters.replay import replay
from wukongs.cli.demo import main as demo
from wukongs.wire.link import IngestLink


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[NetworkSettings]:
    """The networks of demos that are begun."""
    found = list[NetworkSettings]()
    monkeypatch.setattr("wukongs.adapters.demo.main", lambda settings, **_: found.append(settings))
    return found


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.store.jit.are_kernels_interpreted", lambda: True)
    monkeypatch.setattr("wukongs.store.jit.is_compiled_behind", lambda: True)


def test_compiled_kernels_have_the_whole_network(
    made: list[NetworkSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wukongs.store.jit.are_kernels_interpreted", lambda: False)
    monkeypatch.setattr("wukongs.store.jit.are_kernels_compiled", lambda: True)
    demo(["--no-browser", "--seconds", "5"])
    assert made == [NetworkSettings(users=1000, duration_ms=5000)]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("interpreted")
def test_interpreted_kernels_have_a_small_one(made: list[NetworkSettings], capsys: pytest.CaptureFixture[str]) -> None:
    demo(["--no-browser", "--seconds", "5", "--seed", "7"])
    assert made == [small_network(5, 7)]
    assert (made[0].users, made[0].duration_ms, made[0].posts_per_s) == (40, 5000, 12.0)
    assert capsys.readouterr().err == (
        "kernels are being compiled behind this, once (about two minutes): until then 40 users and a tenth of the "
        "tuples; the next run has 1,000 users\n"
    )


@pytest.mark.usefixtures("interpreted")
def test_a_size_is_taken_as_given(made: list[NetworkSettings]) -> None:
    demo(["--no-browser", "--users", "200", "--seconds", "5"])
    assert made == [NetworkSettings(users=200, duration_ms=5000)]


@pytest.mark.usefixtures("interpreted")
def test_kernels_that_nobody_compiles_are_said(
    made: list[NetworkSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wukongs.store.jit.is_compiled_behind", lambda: False)
    demo(["--no-browser"])
    assert made == [small_network(20, 1)]
    assert capsys.readouterr().err.startswith("kernels are interpreted, since WUKONGS_KERNELS=interpret: so 40 users")


def test_every_query_has_rows_in_the_small_network(tmp_path: Path) -> None:
    config = demo_config(generate_network(tmp_path, small_network(4, 1)))
    with Engine() as engine:
        for stored in config.stored:
            engine.load(stored.file)
        for stream in config.streams:
            engine.stream(stream.iri, timing=stream.timing, batch_ms=stream.batch_ms)
        queries = [engine.register(query.text) for query in config.queries]
        with IngestLink([engine.listen()]) as link:
            assert replay(config.streams, link).finished
        engine.settle()
        rows = {query.name: sum(len(window) for window in query.results(timeout_s=0)) for query in queries}
    assert len(rows) == 7
    assert [name for name, count in rows.items() if not count] == []

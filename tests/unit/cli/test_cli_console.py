"""The console beside a run and the demo."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.server.asking import Client
from wukongs.cli.console import console, has_browser
from wukongs.cli.demo import main as demo
from wukongs.cli.run import main as run
from wukongs.engine import Engine
from wukongs.errors import SettingsError


def test_a_browser_is_shown_the_windows_and_the_console_stays_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, said, waited = list[str](), list[str](), list[bool]()

    def wait(_: threading.Event) -> None:
        waited.append(Client(opened[0].partition("/#")[0]).ask("GET", "/").status == 200)
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    with Engine() as engine, console(0, True)(engine, said.append) as stay:
        assert said == [f"console: {opened[0].removesuffix('/#live')}"]
        with monkeypatch.context() as patched:
            patched.setattr("wukongs.cli.console.threading.Event.wait", wait)
            stay()
    assert waited == [True]


@pytest.mark.parametrize("opens", [True, False])
def test_without_a_browser_it_ends_with_the_run(opens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    with Engine() as engine, console(0, opens)(engine, lambda _: None) as stay:
        stay()  # returns


def test_a_port_that_is_taken_is_said() -> None:
    with Engine() as engine, console(0, False)(engine, lambda _: None):
        pass
    said = list[str]()
    with (
        Engine() as engine,
        console(0, False)(engine, said.append),
        pytest.raises(SettingsError, match="Address already in use"),
        console(int(said[0].rpartition(":")[2]), False)(engine, said.append),
    ):
        pass


@pytest.mark.parametrize(("command", "option"), [(run, "--http"), (demo, "--port")])
def test_a_port_that_is_none_is_refused(
    command: Callable[[list[str]], int], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system would take another one in its place."""
    with pytest.raises(SystemExit):
        command([option, "99999", *(["run.toml"] if command is run else [])])
    assert "expected an integer from 0 to 65535, found '99999'" in capsys.readouterr().err


def test_nobody_looks_where_output_goes_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    assert not has_browser()


def test_a_run_serves_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.nt").write_text("<http://ex/a> <http://ex/p> 'one' .\n".replace("'", '"'))
    config = tmp_path / "run.toml"
    config.write_text('[[stored]]\nfile = "a.nt"\n\n[[ask]]\nname = "all"\ntext = "SELECT * { ?s ?p ?o }"\n')
    found = list[int]()

    def beside(port: int, opens_browser: bool) -> object:
        assert not opens_browser
        made = console(port, opens_browser)
        return lambda engine, say: made(engine, lambda text: found.append(Client(text[9:]).ask("GET", "/stats").status))

    monkeypatch.setattr("wukongs.cli.console.console", beside)
    assert run([str(config), "--http", "0", "--plain"]) == 0
    assert found == [200]
    with pytest.raises(SystemExit):
        run([str(config), "--http", "0", "--server", "tcp://127.0.0.1:1"])


def test_the_demo_opens_a_browser_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, bool]]()
    monkeypatch.setattr("wukongs.adapters.demo.main", lambda **_: 0)
    monkeypatch.setattr("wukongs.cli.console.has_browser", lambda: True)
    monkeypatch.setattr("wukongs.cli.console.console", lambda port, opens: asked.append((port, opens)))
    assert demo([]) == demo(["--no-browser", "--port", "7480"]) == 0
    assert asked == [(0, True), (7480, False)]

"""The console beside a run: its engine over HTTP, and a browser that shows it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from wukongs.engine import Engine

Say = Callable[[str], None]
Stay = Callable[[], None]
"""Waits until Ctrl-C, as long as somebody may be looking."""


def console(port: int, opens_browser: bool) -> Callable[[Engine, Say], AbstractContextManager[Stay]]:
    """Return what serves an engine on loopback while a run lasts. port: 0 is a free one; opens_browser: show the
    console in a browser, and stay until Ctrl-C when the run is over. Raises SettingsError (the port is taken)."""

    @contextmanager
    def beside(engine: Engine, say: Say) -> Iterator[Stay]:
        from wukongs.server.http_server import HttpServer, HttpSettings

        server = HttpServer(engine, HttpSettings(port=port))
        try:
            say(f"console: {server.address}")
            is_open = opens_browser and _open(f"{server.address}/#live")

            def stay() -> None:
                if is_open:
                    say(f"the console stays at {server.address} until Ctrl-C")
                    with suppress(KeyboardInterrupt):
                        threading.Event().wait()

            yield stay
        finally:
            server.close()

    return beside


def has_browser() -> bool:
    """Tell whether a person is there who sees windows of this machine."""
    has_windows = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return has_windows and sys.stdout.isatty() and sys.stderr.isatty()


def _open(address: str) -> bool:
    import webbrowser

    with suppress(webbrowser.Error, OSError):
        return webbrowser.open(address)
    return False

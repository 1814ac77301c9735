"""A folder whose files are renamed while they are looked at: each line once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from wukongs.adapters.feeds import folder
from wukongs.adapters.feeds.folder import FolderOptions, FolderReader

pytestmark = pytest.mark.nojit


class _Inlet:
    """Keeps the lines; what was said is an error."""

    is_stopped, is_heard = False, True

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.taken: list[str] = []

    def lines(self, data: bytes, state: dict[str, Any] | None = None, **_place: Any) -> None:
        self.taken += data.decode().split()
        for key, value in (state or {}).items():
            if value is None:
                del self.state[key]
            else:
                self.state[key] = value

    def put(self, *_arguments: Any, **_named: Any) -> None:
        raise AssertionError("lines only")

    def say(self, text: str) -> None:
        raise AssertionError(text)

    def wait(self, _seconds: float) -> bool:
        return False


def _read(path: Path, inlet: _Inlet) -> list[str]:
    FolderReader(FolderOptions(str(path), follow=False), None).run(inlet)
    return inlet.taken


def _rotating(path: Path, begin_anew: str | None) -> Callable[[str | Path], BinaryIO]:
    """Open files; before the first one is opened it is renamed, and another one takes its place if there is a text."""
    opened, is_rotated = folder.opened, False

    def rotate_and_open(file: str | Path) -> BinaryIO:
        nonlocal is_rotated
        if not is_rotated:
            is_rotated = True
            (path / "app").rename(path / "app.1")
            if begin_anew is not None:
                (path / "app").write_text(begin_anew)
        return opened(file)

    return rotate_and_open


@pytest.mark.parametrize("begin_anew", [None, "", "c\n"])
def test_a_file_that_is_renamed_before_it_is_opened_is_read_once(
    begin_anew: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app").write_text("a\nb\n")
    inlet = _Inlet()
    monkeypatch.setattr(folder, "opened", _rotating(tmp_path, begin_anew))
    assert sorted(_read(tmp_path, inlet)) == ["a", "b", *(begin_anew or "").split()]
    with (tmp_path / "app.1").open("a") as file:
        file.write("d\n")
    assert sorted(_read(tmp_path, inlet)) == ["a", "b", *(begin_anew or "").split(), "d"]


def test_a_file_that_a_look_misses_is_not_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a folder may miss a file that is renamed meanwhile."""
    (tmp_path / "app").write_text("a\nb\n")
    looks, scandir = 0, os.scandir

    def miss_once(path: str) -> list[os.DirEntry[str]]:
        nonlocal looks
        looks += 1
        return [] if looks == 2 else list(scandir(path))

    monkeypatch.setattr(os, "scandir", miss_once)
    inlet = _Inlet()
    assert _read(tmp_path, inlet) == ["a", "b"]
    assert looks == 2
    assert _read(tmp_path, inlet) == ["a", "b"]

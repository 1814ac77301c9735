"""Fixtures of the command line's tests: small files, and a way to run a command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import wukongs
from wukongs import cli

DATA = """@prefix ex: <http://ex/> .
ex:a ex:knows ex:b ; ex:age 041 .
ex:b ex:knows ex:c .
"""


@pytest.fixture
def data(tmp_path: Path) -> str:
    file = tmp_path / "data.ttl"
    file.write_text(DATA)
    return str(file)


@pytest.fixture
def more(tmp_path: Path) -> str:
    file = tmp_path / "more.nt"
    file.write_text("<http://ex/c> <http://ex/knows> <http://ex/d> .\n")
    return str(file)


class Ran:
    """The output and the status of a command."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        status = cli.main(list(arguments))
        out, err = self._capsys.readouterr()
        return status, out, err


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    # Whether kernels have to be compiled depends on what ran before; one test looks at it by itself.
    monkeypatch.setattr("wukongs.store.jit.are_kernels_compiled", lambda: True)
    return Ran(capsys)


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    """An engine in memory that is closed again."""
    with wukongs.Engine() as engine:
        yield engine

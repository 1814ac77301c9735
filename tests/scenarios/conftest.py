"""Each scenario runs over every face of tests/faces.py, in an engine of its own.

A test says where it holds by marks:
* `@pytest.mark.faces("embedded", "durable")`: on these faces only, since the others promise something else;
* `@pytest.mark.differs("cluster-1", "cluster-3", reason="...")`: a known defect on these faces, which fails there;
* `@pytest.mark.slow_on("cluster-3")`: takes seconds on these faces, so it is left to the slow tier there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces import FACES, Face

CONNECTED = ("cluster-3", "connect", "cluster-1")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "face" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("faces")
    metafunc.parametrize("face", [_param(metafunc, name) for name in (only.args if only else FACES)], indirect=True)


def _param(metafunc: pytest.Metafunc, name: str) -> Any:
    marks = [
        pytest.mark.xfail(strict=True, **differs.kwargs)
        for differs in metafunc.definition.iter_markers("differs")
        if name in differs.args
    ]
    if any(name in slow.args for slow in metafunc.definition.iter_markers("slow_on")):
        marks.append(pytest.mark.slow)
    is_tiny = name == "embedded" and not metafunc.definition.get_closest_marker("slow_on")
    return pytest.param(name, marks=[*marks, pytest.mark.nojit] if is_tiny else marks)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tier has every case of a scenario embedded, and in a data folder the first case that comes; over
    connect() half of the scenarios go to an engine, a cluster of one or a cluster of three, a third of them to each."""
    seen: set[tuple[Path, str, str]] = set()
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        face = item.callspec.params.get("face")
        if face is None or face == "embedded":
            continue
        scenario = item.path, item.originalname, face
        place = zlib.crc32(item.originalname.encode()) % 6
        is_left_out = face in CONNECTED and (place >= 3 or face != CONNECTED[place])
        if scenario in seen or is_left_out:
            item.add_marker(pytest.mark.slow)
        seen.add(scenario)


@pytest.fixture
def face(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    folder: Path = tmp_path_factory.mktemp("face", numbered=True)
    face = Face(request.param, request.node.originalname, folder)
    with face.stack:
        yield face


@pytest.fixture
def engine(face: Face) -> Any:
    """An engine with the ordinary settings."""
    return face.open()

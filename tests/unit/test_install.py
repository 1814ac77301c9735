"""tools/install_packages.py: uv is told what pip is told, and pip takes its place where it fails."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_packages", PROJECT / "tools" / "install_packages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_uv_is_told_what_pip_is_told(tool: ModuleType) -> None:
    told = "\n".join(
        [
            ":env:.default-timeout='30'",
            ":env:.index-url='https://one.example/simple'",
            "global.cert='/a/cert.pem'",
            "global.extra-index-url='\\nhttps://two.example/simple\\nhttps://three.example/simple'",
            "global.find-links='/a /b'",
            "global.index-url='https://none.example/simple'",
            "install.trusted-host='one.example'",
            "list.format='columns'",
        ]
    )
    assert tool.uv_variables(told, {}) == {
        "UV_DEFAULT_INDEX": "https://one.example/simple",
        "UV_INDEX": "https://two.example/simple https://three.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INSECURE_HOST": "one.example",
        "UV_HTTP_TIMEOUT": "30",
        "SSL_CERT_FILE": "/a/cert.pem",
    }
    assert tool.uv_variables("", {}) == {}


def test_what_uv_itself_is_told_wins(tool: ModuleType) -> None:
    told = "global.index-url='https://pip.example/simple'\nglobal.find-links='/a'"
    assert tool.uv_variables(told, {"UV_INDEX_URL": "https://uv.example/simple"}) == {"UV_FIND_LINKS": "/a"}


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ("requirements-uv.lock", "uv cannot be installed (no network): pip installs the packages"),
        ("uv", "uv cannot install the packages (no network): pip installs the packages"),
    ],
)
def test_pip_takes_the_place_of_uv(
    tool: ModuleType,
    broken: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran = list[str]()

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        text = " ".join(command)
        ran.append(text)
        fails = text.endswith(broken) or f"/{broken} " in text
        return subprocess.CompletedProcess(command, int(fails), "", "error:\nno network\n")

    monkeypatch.setattr(tool.subprocess, "run", run)
    monkeypatch.setattr(tool.sys, "prefix", str(tmp_path))
    assert tool.main() == 0
    assert line in capsys.readouterr().err
    by_pip = [text.partition("-m pip ")[2] for text in ran if "-m pip install" in text]
    quiet = "install --quiet --disable-pip-version-check"
    assert by_pip[-2:] == [
        f"{quiet} --require-hashes --no-deps -r requirements.lock",
        f"{quiet} --no-deps --no-build-isolation --editable .",
    ]


def test_the_hashes_of_uv_are_locked() -> None:
    lines = (PROJECT / "requirements-uv.lock").read_text().splitlines()
    assert lines[0].startswith("uv==")
    assert len(lines) > 1
    assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])

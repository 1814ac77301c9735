"""Peers that are fetched: what arrives is checked, what does not is told, and half of it is not taken for all."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from wukongs.bench.peers.fetching import FetchError, Jars, Packages, cache, read_jars
from wukongs.bench.peers.known import KNOWN

CONTENT = {"org/a/a-1.jar": b"one", "org/b/b-2.jar": b"two"}
REFUSING_NPM = "#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n"
HALF_NPM = "#!/bin/sh\nmkdir node_modules && touch node_modules/half\nexit 1\n"
NPM = "#!/bin/sh\nmkdir node_modules && cp package-lock.json node_modules/seen\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WUKONGS_PEERS", str(folder))
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of jars in a folder."""
    folder = tmp_path / "repository"
    for path, content in CONTENT.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(content)
    monkeypatch.setenv("WUKONGS_MAVEN", folder.as_uri())
    monkeypatch.setattr("wukongs.bench.peers.fetching.TRIES", 1)
    return folder


@pytest.fixture
def jars(tmp_path: Path) -> Jars:
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path}" for path, content in CONTENT.items()]
    (tmp_path / "jars.txt").write_text("\n".join(["# two", *lines, ""]))
    return Jars("two", tmp_path / "jars.txt", "6 B")


def test_jars_are_fetched_once(jars: Jars, repository: Path, own_cache: Path) -> None:
    told: list[str] = []
    assert not jars.are_there()
    jars.fetch(told.append)
    assert jars.are_there()
    assert jars.folder.parent == own_cache
    assert {file.name: file.read_bytes() for file in jars.folder.iterdir()} == {"a-1.jar": b"one", "b-2.jar": b"two"}
    assert told[0] == f"two: 2 jars from {repository.as_uri()}"
    assert [text[:13] for text in told[1:]] == ["two: 1 of 2: ", "two: 2 of 2: "]
    for path in CONTENT:
        (repository / path).unlink()
    jars.fetch(told.append)
    assert len(told) == 3, "nothing was to be fetched"


def test_a_jar_that_is_another_is_refused_and_the_next_fetch_brings_what_is_missing(
    jars: Jars, repository: Path
) -> None:
    (repository / "org/b/b-2.jar").write_bytes(b"evil")
    digests = {path: digest for digest, path in read_jars(jars.listed)}
    expected = f"org/b/b-2.jar from {repository.as_uri()}: expected the SHA-256 {digests['org/b/b-2.jar']}, found "
    with pytest.raises(FetchError, match=re.escape(expected)):
        jars.fetch(lambda text: None)
    assert [file.name for file in jars.folder.iterdir()] == ["a-1.jar"]
    assert not jars.are_there()
    (repository / "org/b/b-2.jar").write_bytes(b"two")
    told: list[str] = []
    jars.fetch(told.append)
    assert told[-1] == "two: 1 of 1: b-2.jar"
    assert jars.are_there()


def test_a_jar_that_was_changed_in_the_cache_is_fetched_again(jars: Jars, repository: Path) -> None:
    jars.fetch(lambda text: None)
    (jars.folder / "a-1.jar").write_bytes(b"half")
    jars.fetch(lambda text: None)
    assert (jars.folder / "a-1.jar").read_bytes() == b"one"


@pytest.mark.parametrize("where", ["file:///nowhere", "http://127.0.0.1:1", "no address"])
def test_a_repository_that_does_not_answer_is_told(
    jars: Jars, repository: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("WUKONGS_MAVEN", where)
    with pytest.raises(FetchError, match=rf"cannot be fetched from {where} \(.*\): WUKONGS_MAVEN names another"):
        jars.fetch(lambda text: None)


def packages_of(folder: Path) -> Packages:
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    (folder / "package-lock.json").write_text('{"lock": 1}')
    return Packages("some", folder, "1 B")


def npm_that_does(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(script)
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_packages_that_npm_cannot_fetch_are_told_and_leave_nothing(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = packages_of(tmp_path / "locked")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match=r"^some: npm is not there: install Node\.js"):
        packages.fetch(lambda text: None)
    npm_that_does(REFUSING_NPM, tmp_path / "bin", monkeypatch)
    with pytest.raises(FetchError, match=r"^some: npm cannot fetch it \(npm error code ENOTFOUND\)"):
        packages.fetch(lambda text: None)
    npm_that_does(HALF_NPM, tmp_path / "bin", monkeypatch)
    with pytest.raises(FetchError):
        packages.fetch(lambda text: None)
    assert list(own_cache.iterdir()) == []
    npm_that_does(NPM, tmp_path / "bin", monkeypatch)
    packages.fetch(lambda text: None)
    assert packages.are_there()
    assert (packages.folder / "node_modules" / "seen").read_text() == '{"lock": 1}'


def test_another_list_is_another_folder(tmp_path: Path) -> None:
    packages = packages_of(tmp_path / "locked")
    before = packages.folder
    (tmp_path / "locked" / "package-lock.json").write_text('{"lock": 2}')
    assert packages.folder != before


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WUKONGS_PEERS", "/some/where")
    assert cache() == Path("/some/where")
    monkeypatch.delenv("WUKONGS_PEERS")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache() == Path("/xdg/wukongs/peers")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache() == Path("/home/me/.cache/wukongs/peers")


def test_lists_are_locked_and_name_no_registry() -> None:
    lists = [one.fetched for one in KNOWN.values() if one.fetched is not None]
    assert len(lists) == 2
    for fetched in lists:
        if isinstance(fetched, Jars):
            jars = read_jars(fetched.listed)
            assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest, _ in jars)
            assert all(re.fullmatch(r"[\w./-]+\.jar", path) for _, path in jars)
            assert len({Path(path).name for _, path in jars}) == len(jars)
        else:
            lock = (fetched.listed / "package-lock.json").read_text("utf-8")
            assert '"resolved"' not in lock
            assert lock.count('"integrity"') == lock.count('"node_modules/')

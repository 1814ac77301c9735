"""How the JVM of a local session is started, ended, and refused; how its start is interrupted."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from tests.unit.adapters.helpers import PROJECT
from wukongs.adapters.spark import daemon, jvm, session
from wukongs.adapters.spark.jvm import Jvm, archive_path, command_for, is_plain, java_command
from wukongs.adapters.spark.session import StartingSession
from wukongs.errors import SettingsError

SETTINGS = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": '-XX:+UseSerialGC "-Dx=a b"'}


@pytest.fixture
def no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jvm, "archive_path", lambda: tmp_path / "classes.jsa")
    return tmp_path / "classes.jsa"


def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'version "17.0.1"\' >&2; exit; fi\n{script}\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_the_command_is_java_itself_with_the_settings_as_properties() -> None:
    command = java_command(SETTINGS)
    assert command[0].endswith("java")
    assert command[-1] == "org.apache.spark.api.python.PythonGatewayServer"
    assert {"-Xmx512m", "-XX:+UseSerialGC", "-Dx=a b", "-Dspark.driver.memory=512m"} <= set(command)
    assert not any("Archive" in one for one in command)


def test_the_archive_of_classes_is_used_only_where_there_is_one(
    no_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"-XX:SharedArchiveFile={no_archive}" not in command_for(SETTINGS)
    no_archive.touch()
    assert f"-XX:SharedArchiveFile={no_archive}" in command_for(SETTINGS)
    monkeypatch.setenv("WUKONGS_SPARK_ARCHIVE", str(no_archive))
    assert f"-XX:ArchiveClassesAtExit={no_archive}" in command_for(SETTINGS)


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = archive_path()
    _java(tmp_path, monkeypatch, "exit 1")
    assert archive_path() != here


def test_an_environment_that_is_reached_by_a_link_has_the_same_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = archive_path()
    (tmp_path / "linked").symlink_to(Path(pyspark.__file__).parent)
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "linked" / "__init__.py"))
    assert archive_path() == here


@pytest.mark.slow
def test_an_archive_that_does_not_fit_is_passed_over(no_archive: Path, tmp_path: Path) -> None:
    no_archive.write_text("no archive")
    started = Jvm(command_for(SETTINGS), tmp_path / "log")
    try:
        assert started.address()[0] > 0
    finally:
        started.end()
    assert started.process.returncode == 0  # it ends with its standard input


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"])
def test_a_spark_that_its_user_has_set_up_is_left_to_pyspark(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_plain()
    monkeypatch.setenv(name, "x")
    assert not is_plain()


def test_a_jvm_that_does_not_start_is_told_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path, monkeypatch, "echo no room for a heap >&2; exit 3")
    starting = StartingSession()
    with pytest.raises(SettingsError, match=r"does not start \(status 3\). It said: no room for a heap"):
        starting.session()
    assert not session._scratch


def test_a_start_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path, monkeypatch, "exec sleep 600")
    starting = StartingSession()
    assert not starting.is_up(0.05)
    starting.close()
    starting.close()
    assert starting._jvm is not None
    assert starting._jvm.process.poll() is not None
    assert not session._scratch


@pytest.mark.slow
def test_the_jvm_ends_when_its_driver_is_killed(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from wukongs.adapters.spark.jvm import Jvm, java_command

started = Jvm(java_command({SETTINGS!r}), Path({str(tmp_path / "log")!r}))
started.address()
print(started.process.pid, flush=True)
sys.stdin.read()
"""
    driver = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pid = int(driver.stdout.readline())
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 60
    while _runs(pid):
        assert time.monotonic() < deadline, "the JVM outlives its driver"
        time.sleep(0.05)


def test_a_process_that_only_plans_imports_only_its_module() -> None:
    assert daemon.modules_for("pyspark.sql.worker.create_data_source") == ("pyspark.sql.worker.create_data_source",)
    assert "wukongs.adapters.push" in daemon.modules_for("pyspark.worker")


def _daemon_of_spark(folder: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHON_WORKER_FACTORY_SECRET": "s",
        daemon.EARLY_AT: str(folder),
        "LONG": "x" * 100_000,
    }
    command = [sys.executable, "-m", "wukongs.adapters.spark.daemon", "pyspark.worker"]
    return subprocess.Popen(command, env=environment, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _worker_of(started: subprocess.Popen[bytes]) -> int:
    """Ask a daemon for a worker, as Spark does; return the process that has forked it."""
    assert started.stdout is not None
    port = int.from_bytes(started.stdout.read(4), "big")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        worker = int.from_bytes(connection.recv(4), "big")
        return int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])


def _long_folder(tmp_path: Path) -> Path:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    return folder


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells parents by /proc")
@pytest.mark.parametrize("is_early", [True, False])
def test_an_early_daemon_does_the_work_of_the_one_that_spark_starts(is_early: bool, tmp_path: Path) -> None:
    folder, log = _long_folder(tmp_path), tmp_path / "log"
    early = daemon.start_daemon(folder, log, str(PROJECT)) if is_early else None
    if early is not None:
        _wait_for(lambda: any(folder.iterdir()), log)
    started = _daemon_of_spark(folder)
    try:
        assert _worker_of(started) == (started.pid if early is None else early.pid)
        assert not any(folder.iterdir())
        assert started.stdin is not None
        started.stdin.close()
        started.wait(60)
        if early is not None:
            early.wait(60)
    finally:
        started.kill()
        started.wait()
        if early is not None:
            jvm.end_with_input(early)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells parents by /proc")
def test_an_early_daemon_that_dies_while_it_imports_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as dying:
        dying.bind("daemon.sock")
        dying.listen(1)
        started = _daemon_of_spark(tmp_path)
        try:
            dying.accept()[0].close()
            assert _worker_of(started) == started.pid
        finally:
            started.kill()
            started.wait()


def test_an_early_daemon_that_nobody_needs_ends_with_its_session(tmp_path: Path) -> None:
    early = daemon.start_daemon(tmp_path, tmp_path / "log", str(PROJECT))
    jvm.end_with_input(early)
    assert early.returncode == 0, (tmp_path / "log").read_text()


def test_an_early_daemon_ends_when_its_driver_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"""
import sys
from pathlib import Path
from wukongs.adapters.spark.daemon import start_daemon

print(start_daemon(Path({str(tmp_path)!r}), Path({str(log)!r}), {str(PROJECT)!r}).pid, flush=True)
sys.stdin.read()
"""
    driver = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pid = int(driver.stdout.readline())
    assert _runs(pid)
    driver.kill()
    driver.wait()
    _wait_for(lambda: not _runs(pid), log)


def _wait_for(is_so: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False

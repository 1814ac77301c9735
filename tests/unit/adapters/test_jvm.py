"""How the JVM of a local session is started, ended, and refused; how its start is interrupted."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False

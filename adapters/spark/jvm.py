"""The JVM of a local Spark session: started by `java` itself, with an archive of loaded classes.

pyspark starts a shell, the shell a first JVM that only prints a command, and then the JVM. Here the command is written
down, and the JVM is the first process. A machine with a Spark set up by its user is left to pyspark: is_plain tells.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from wukongs.errors import SettingsError

JAVA_MIN = 17
ARCHIVE_TO_MAKE = "WUKONGS_SPARK_ARCHIVE"
_USERS_OWN = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_SUBMIT_OPTS",
    "SPARK_TESTING",
)
"""Variables by which a user tells pyspark how to start the JVM."""

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""The packages of Java that Spark looks into, as its launcher opens them."""


def java_path() -> str:
    """Return the `java` to use: that of JAVA_HOME, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def check_java() -> None:
    """Raises: SettingsError (no Java, or an old one)."""
    java = java_path()
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    found = re.search(r'version "(\d+)', answer)
    if found is None or int(found[1]) < JAVA_MIN:
        raise SettingsError(
            f"the pipeline needs Java {JAVA_MIN} or newer, found {f'Java {found[1]}' if found else 'none'} at {java}. "
            "Install it (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at one"
        )


def is_plain() -> bool:
    """Tell whether the user has set up nothing of Spark's start: then the JVM may be started without pyspark."""
    return os.name == "posix" and not any(os.environ.get(name) for name in _USERS_OWN) and _jars().is_dir()


def java_command(settings: dict[str, str], archive: Path | None = None, make_archive: bool = False) -> list[str]:
    """Return the command of a JVM that Python drives. archive: of loaded classes, to use or, with make_archive, to
    write when the JVM ends."""
    option = "ArchiveClassesAtExit" if make_archive else "SharedArchiveFile"
    shared = [] if archive is None else [f"-XX:{option}={archive}"]
    return [
        java_path(),
        *shared,
        "-Xshare:auto",  # an archive that does not fit is passed over
        "-Xlog:disable",
        "-cp",
        class_path(),
        f"-Xmx{settings['spark.driver.memory']}",
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        "--enable-native-access=ALL-UNNAMED",
        "-Dderby.connection.requireAuthentication=false",
        *shlex.split(settings["spark.driver.extraJavaOptions"]),
        *(f"-D{name}={value}" for name, value in settings.items()),
        "org.apache.spark.api.python.PythonGatewayServer",
    ]


def class_path() -> str:
    """Return pyspark's jars, in a fixed order: an archive of classes fits one class path only."""
    return ":".join(str(jar) for jar in sorted(_jars().glob("*.jar")))


def archive_path() -> Path:
    """Return where the archive of this Java and this pyspark is kept, beside the kernels; it need not be there."""
    digest = hashlib.sha256(f"{os.path.realpath(java_path())} {class_path()}".encode())
    for path in (Path(os.path.realpath(java_path())), *sorted(_jars().glob("*.jar"))):
        with suppress(OSError):
            digest.update(f"{path.stat().st_size} {path.stat().st_mtime_ns} ".encode())
    base = os.environ.get("WUKONGS_KERNEL_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "wukongs", "kernels"
    )
    return Path(base) / f"spark-classes-{digest.hexdigest()[:16]}.jsa"


def command_for(settings: dict[str, str]) -> list[str]:
    """Return the command that `java_command` gives, with the archive of classes if there is one.

    WUKONGS_SPARK_ARCHIVE names a file into which the JVM is to write one when it ends, as `make setup` does."""
    if os.environ.get(ARCHIVE_TO_MAKE):
        return java_command(settings, Path(os.environ[ARCHIVE_TO_MAKE]), make_archive=True)
    archive = archive_path()
    return java_command(settings, archive if archive.exists() else None)


class Jvm:
    """A JVM that starts beside this process and ends with it: it reads its standard input, and stops at its end."""

    def __init__(self, command: list[str], log: Path, variables: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.mkdtemp(prefix="jvm-", dir=log.parent)
        self._told, self._log = Path(self._folder, "address"), log
        environment = {
            **os.environ,
            **(variables or {}),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told),
        }
        try:
            with log.open("wb") as file:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=file,
                    env=environment,
                    process_group=0,  # Ctrl-C is for Python alone
                )
        except OSError as error:
            raise SettingsError(f"Spark's JVM does not start ({error})") from None

    def address(self) -> tuple[int, str]:
        """Wait until the JVM listens; return its port and its secret. Raises: SettingsError (it has ended)."""
        while not self._told.exists():
            try:
                self.process.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
            if not self._told.exists():
                tail = self._log.read_text("utf-8", "replace")[-500:]
                raise SettingsError(f"Spark's JVM does not start (status {self.process.returncode}). It said: {tail}")
        content = self._told.read_bytes()
        length = int.from_bytes(content[4:8], "big")
        return int.from_bytes(content[:4], "big"), content[8 : 8 + length].decode()

    def end(self) -> None:
        """Let the JVM end, and wait; kill it if it does not."""
        end_with_input(self.process)


def end_with_input(process: subprocess.Popen[bytes], timeout_s: float = 10.0) -> None:
    """Close the standard input of a process that ends with it, and wait; kill it if it does not end."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent.resolve() / "jars"  # the archive is of this path

# mypy: ignore-errors
"""Check, before anything is installed, that this machine can run wukongs; say in one line what is missing.

Every version of Python has to read this file: no annotations and no f-strings here, which old ones do not know.
"""

import os
import re
import shutil
import subprocess
import sys

PYTHON_MIN = (3, 11)
JAVA_MIN = 17


def java_version():
    """Return the major version of the Java that Spark would start, or None where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java:
        return None
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    found = re.search(r'version "(\d+)', said)
    return int(found.group(1)) if found else None


def problems():
    """Return one line for each thing that is missing."""
    if sys.version_info < PYTHON_MIN:
        found = sys.version.split()[0]
        return [
            "Python %d.%d or newer is needed, this is %s: " % (PYTHON_MIN + (found,))  # noqa: RUF005, UP031
            + "install one and call make PYTHON=/path/to/python3"
        ]
    import importlib.util  # absent from the oldest

    lines = []
    if importlib.util.find_spec("ensurepip") is None:
        lines.append("Python's venv and pip are missing: install them (Debian: apt-get install python3-venv)")
    java = java_version()
    if java is None or java < JAVA_MIN:
        found = "none was found" if java is None else "found Java %d" % java  # noqa: UP031
        advice = "install one (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
        lines.append("Java %d or newer is needed for Spark, %s: %s" % (JAVA_MIN, found, advice))  # noqa: UP031
    return lines


if __name__ == "__main__":
    lines = problems()
    for line in lines:
        sys.stderr.write("wukongs: " + line + "\n")
    sys.exit(1 if lines else 0)

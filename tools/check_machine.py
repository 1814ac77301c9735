"""Check, before anything is installed, that this machine can run wukongs; say in one line what is missing."""

import os
import re
import shutil
import subprocess
import sys

PYTHON_MIN = (3, 11)
JAVA_MIN = 17


def java_version() -> int | None:
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
    return int(found[1]) if found else None


def problems() -> list[str]:
    """Return one line for each thing that is missing."""
    found = []
    if sys.version_info < PYTHON_MIN:
        found.append(
            f"Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or newer is needed, this is {sys.version.split()[0]}: "
            "install one and call make PYTHON=/path/to/python3"
        )
    java = java_version()
    if java is None:
        found.append(f"Java {JAVA_MIN} or newer is needed for Spark, none was found: install one, or set JAVA_HOME")
    elif java < JAVA_MIN:
        found.append(f"Java {JAVA_MIN} or newer is needed for Spark, found Java {java}: install one, or set JAVA_HOME")
    return found


if __name__ == "__main__":
    lines = problems()
    for line in lines:
        print(f"wukongs: {line}", file=sys.stderr)
    sys.exit(1 if lines else 0)

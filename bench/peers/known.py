"""The peers that `--peers` knows by name: how each is made, what it needs, which queries it has a part in.

Those of other processes speak the JSON lines of README.md, as an engine of yours would.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wukongs.adapters.spark.jvm import JAVA_MIN, check_java, java_path
from wukongs.bench.peers import Kind, Peer, PeerMissing
from wukongs.bench.peers.external import External
from wukongs.bench.peers.fetching import NODE_MIN, Fetched, Jars, Packages
from wukongs.bench.peers.in_process import OXIGRAPH, RDFLIB, Oxigraph, Rdflib
from wukongs.errors import SettingsError

HERE = Path(__file__).parent
JENA, RSP_JS, SPARK, BYTEWAX = "jena", "rsp-js", "spark", "bytewax"
JENA_JARS = Jars(JENA, HERE / "jena" / "jars.txt", "15 MB")
RSP_JS_PACKAGES = Packages(RSP_JS, HERE / "rsp_js", "50 MB")
NODE_HEAP_MB = 8192
INSTALLED = "nothing more"


@dataclass(frozen=True, slots=True)
class Known:
    """answers, needs: for people. lacks: return what is not here and how to get it, empty if nothing is missing.
    start: make it, if nothing is. abstains: as in Kind."""

    answers: str
    needs: str
    start: Callable[[], Peer]
    lacks: Callable[[], str] = lambda: ""
    abstains: Callable[[str], str] = lambda query: ""
    fetched: Fetched | None = None

    def kind(self, name: str) -> Kind:
        def make() -> Peer:
            lacking = self.lacks()
            if lacking:
                raise PeerMissing(f"{name}: {lacking}")
            return self.start()

        return Kind(make, self.abstains)


def _lacks_java() -> str:
    try:
        check_java()
    except SettingsError:
        return f"install Java {JAVA_MIN} or newer (a JDK), or let JAVA_HOME name one"
    return ""


def _lacks_node() -> str:
    node = shutil.which("node")
    found = None
    if node is not None:
        told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.match(r"v(\d+)", told)
    return "" if found and int(found[1]) >= NODE_MIN else f"install Node.js {NODE_MIN} or newer with npm"


def _lacks(fetched: Fetched) -> str:
    if fetched.are_there():
        return ""
    return f"its files are not here: wukongs bench peers fetch {fetched.name} ({fetched.size} from {fetched.origin})"


def _start_jena() -> Peer:
    program = HERE / "jena" / "JenaPeer.java"
    return External(JENA, shlex.join([java_path(), "-cp", f"{JENA_JARS.folder}/*", str(program)]))


def _start_rsp_js() -> Peer:
    program, folder = HERE / "rsp_js" / "peer.cjs", RSP_JS_PACKAGES.folder
    return External(RSP_JS, shlex.join(["node", f"--max-old-space-size={NODE_HEAP_MB}", str(program), str(folder)]))


def _start_ours(name: str, module: str) -> Peer:
    return External(name, shlex.join([sys.executable, "-m", f"wukongs.bench.peers.{module}"]))


def _only_windows(query: str) -> str:
    return "" if query.startswith(("L", "C")) else "it has continuous queries over windows only"


KNOWN: Mapping[str, Known] = {
    OXIGRAPH: Known("windows as named graphs, one-shot queries", INSTALLED, Oxigraph),
    RDFLIB: Known("windows as named graphs, one-shot queries", INSTALLED, Rdflib),
    JENA: Known(
        "windows as named graphs, one-shot queries: ARQ over graphs in memory",
        f"Java {JAVA_MIN} (a JDK), its jars",
        _start_jena,
        lambda: _lacks_java() or _lacks(JENA_JARS),
        fetched=JENA_JARS,
    ),
    RSP_JS: Known(
        "windows, each as a continuous query in RSP-QL",
        f"Node.js {NODE_MIN}, its packages",
        _start_rsp_js,
        lambda: _lacks_node() or _lacks(RSP_JS_PACKAGES),
        _only_windows,
        RSP_JS_PACKAGES,
    ),
    SPARK: Known(
        "windows, one-shot queries: Spark SQL over tables of triples, but for values",
        f"Java {JAVA_MIN}",
        lambda: _start_ours(SPARK, "spark_peer"),
        _lacks_java,
    ),
    BYTEWAX: Known(
        "counts over one window: L10 and L12",
        "the extra wukongs[peers]",
        lambda: _start_ours(BYTEWAX, "bytewax_peer"),
        lambda: "" if importlib.util.find_spec("bytewax") else 'pip install "bytewax>=0.21", or "wukongs[peers]"',
        lambda query: "" if query in ("L10", "L12") else "it has no joins and no query language: only L10 and L12",
    ),
}

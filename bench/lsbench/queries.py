"""LSBench's queries, read from queries/*.rq: L1-L6 over windows, S1-S6 one-shot, as the Wukong+S paper runs them, and
the six others of the benchmark, L7-L12, over the same windows.

Each pattern is matched where the benchmark says: in the window of its stream, or in the stored graph. A stored pattern
names the default graph by FROM, a window is only reached by GRAPH, so that streams that join the stored graph do not
change an answer. The files have the windows of the paper and the constants of the 1,000-user sample.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wukongs.bench.lsbench.data import IRI

FOLDER = Path(__file__).parent / "queries"
USER, PERSON = "sibu:u864", "sibp:p864"
"""The constants of L1, and of L2 and L3."""
S_CONSTANTS = {"user": "u984", "person": "p781", "other": "p984", "group": "g1"}
"""Those of S1 and S5, S2, S3, and S4."""
_PLACES = {
    "sibu:u984": "sibu:{user}",
    "sibp:p781": "sibp:{person}",
    "sibp:p984": "sibp:{other}",
    "sibg:g1": "sibg:{group}",
}
_STREAM = re.compile(r"FROM NAMED STREAM stream:(\w+) ")
_ONLY_OF_WINDOWS = re.compile(r"(?m)^(?:#|FROM |REGISTER ).*\n")


@dataclass(frozen=True, slots=True)
class BenchQuery:
    """text: that of the file; streams: whose windows it reads, by their short names; is_stored: whether it reads the
    stored graph."""

    name: str
    text: str
    streams: tuple[str, ...]
    is_stored: bool

    def register_text(self, range_: str, step: str, user: str, person: str) -> str:
        """Return the text to register; range_ and step with their units, as `1s`."""
        text = self.text.replace("[RANGE 1s STEP 100ms]", f"[RANGE {range_} STEP {step}]")
        return _with_constants(text, user, person)

    def select_text(self, user: str, person: str) -> str:
        """Return the same as plain SPARQL, with the windows as named graphs."""
        return _with_constants(_ONLY_OF_WINDOWS.sub("", self.text), user, person)


def _with_constants(text: str, user: str, person: str) -> str:
    return text.replace(USER, f"sibu:{user}").replace(PERSON, f"sibp:{person}")


def _read(name: str) -> BenchQuery:
    text = (FOLDER / f"{name}.rq").read_text(encoding="utf-8")
    short = {iri.rpartition("/")[2]: stream for stream, iri in IRI.items()}
    return BenchQuery(name, text, tuple(map(short.__getitem__, _STREAM.findall(text))), "FROM <" in text)


QUERIES = tuple(_read(f"L{number}") for number in range(1, 7))
OTHERS = tuple(_read(f"L{number}") for number in range(7, 13))


def one_shot_bodies() -> dict[str, tuple[str, str]]:
    """Return S1-S6: what each asks, and its text with the constants as {user}, {person}, {other} and {group}."""
    found = {}
    for number in range(1, 7):
        about, _, text = (FOLDER / f"S{number}.rq").read_text(encoding="utf-8").partition("\n")
        for constant, place in _PLACES.items():
            text = text.replace(constant, place)
        found[f"S{number}"] = about.partition(". ")[2].partition(".")[0], text
    return found


def with_constants(text: str, constants: Mapping[str, str]) -> str:
    """Return a one-shot query with its constants."""
    for name, value in constants.items():
        text = text.replace(f"{{{name}}}", value)
    return text

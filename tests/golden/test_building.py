"""The example of sensors in buildings prints what plain Python finds by climbing from each sensor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rdflib

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "building"
BASE = rdflib.Namespace("http://example.org/building/")
READINGS = [("s1", 19), ("s2", 21), ("s3", 23), ("s4", 24), ("s1", 19), ("s3", 22)]


def parts() -> dict[str, str]:
    """Each thing of the file, and the one that it says it is part of."""
    graph = rdflib.Graph().parse(FOLDER / "building.ttl")
    return {str(s).removeprefix(BASE): str(o).removeprefix(BASE) for s, o in graph.subject_objects(BASE.partOf)}


def above(thing: str, part_of: dict[str, str]) -> list[str]:
    found = []
    while thing in part_of:
        thing = part_of[thing]
        found.append(thing)
    return found


def window(end_s: int, part_of: dict[str, str]) -> list[str]:
    found = []
    for building in ("library", "school"):
        degrees = [value for sensor, value in READINGS if building in above(sensor, part_of)]
        if degrees:
            found.append(f"  {end_s} s: {building}: {len(degrees)} readings, at most {max(degrees)} degrees")
    return found


def expected() -> list[str]:
    part_of = parts()
    inferred = sum(len(above(thing, part_of)) - 1 for thing in part_of)
    lines = [f"s1 is part of {place}" for place in sorted(above("s1", part_of))]
    lines += [f"{len(part_of)} explicit part-of triples", f"{inferred} inferred part-of triples", *window(10, part_of)]
    part_of["s3"] = "hall"
    lines += ["s3 moves to the library", *window(20, part_of)]
    del part_of["school-ground"]
    return [*lines, "the ground floor of the school closes", *window(30, part_of), "school is dark"]


def test_the_expected_lines_differ_from_window_to_window() -> None:
    assert expected() == [
        "s1 is part of hall",
        "s1 is part of library",
        "s1 is part of library-ground",
        "11 explicit part-of triples",
        "12 inferred part-of triples",
        "  10 s: library: 3 readings, at most 21 degrees",
        "  10 s: school: 3 readings, at most 24 degrees",
        "s3 moves to the library",
        "  20 s: library: 5 readings, at most 23 degrees",
        "  20 s: school: 1 readings, at most 24 degrees",
        "the ground floor of the school closes",
        "  30 s: library: 5 readings, at most 23 degrees",
        "school is dark",
    ]


def test_the_example_prints_what_is_expected() -> None:
    found = subprocess.run(
        [sys.executable, FOLDER / "live.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines() == expected()

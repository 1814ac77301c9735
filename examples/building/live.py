"""Readings of sensors, asked by building: a rule follows the sensors wherever they are.

Run it in this folder: `python live.py`.
"""

from __future__ import annotations

from pathlib import Path

import wukongs

HERE = Path(__file__).parent
BASE = "http://example.org/building/"
PREFIX = f"PREFIX : <{BASE}>\n"
READINGS = [("s1", 19, 1), ("s2", 21, 2), ("s3", 23, 3), ("s4", 24, 4), ("s1", 19, 6), ("s3", 22, 8)]
"""Sensor, degrees, second: the same ones in each ten seconds. Two of them are equal but for their second."""


def name(term: object) -> str:
    return str(term).removeprefix(BASE)


def reading(sensor: str, degrees: int, time_ms: int) -> list[tuple[str, str, object, int]]:
    """Return the triples of a reading. It is a node of its own: a window is a set, and would hold equal ones once."""
    node = f"<{BASE}{sensor}/{time_ms}>"
    return [(node, f"<{BASE}sensor>", f"<{BASE}{sensor}>", time_ms), (node, f"<{BASE}celsius>", degrees, time_ms)]


def show(window: wukongs.WindowResult) -> None:
    """Print the rows of a window."""
    for building, readings, warmest in window:
        print(f"  {window.end_ms // 1000} s: {name(building)}: {readings} readings, at most {warmest} degrees")


with wukongs.Engine() as engine:
    # 1. Rooms are part of floors, floors of buildings. The file has one step each; the rule makes the others.
    engine.load(HERE / "building.ttl")
    engine.add_rules(HERE / "part-of.rules")
    for (place,) in engine.query(f"{PREFIX}SELECT ?place {{ :s1 :partOf ?place }} ORDER BY ?place"):
        print("s1 is part of", name(place))

    # 2. Explicit and inferred triples are told apart where somebody asks.
    for kind in ("explicit", "inferred"):
        result = engine.query(f"{PREFIX}SELECT ?x ?y FROM <urn:x-wukongs:{kind}> {{ ?x :partOf ?y }}")
        print(len(result.texts()), f"{kind} part-of triples")

    # 3. The registered query says nothing of rooms and floors.
    readings = engine.stream(f"{BASE}readings", batch_ms=1000, timing=True)
    readings.advance(0)
    engine.register((HERE / "by-building.rq").read_text(), on_result=show)

    def ten_seconds(first_s: int) -> None:
        """Push the readings of ten seconds, and let them pass."""
        for sensor, degrees, second in READINGS:
            readings.push(reading(sensor, degrees, 1000 * (first_s + second)))
        readings.advance(1000 * (first_s + 10))
        engine.settle()

    ten_seconds(0)

    # 4. A sensor is carried to another room: what followed from its old place goes with the same snapshot.
    print("s3 moves to the library")
    engine.update(f"{PREFIX}DELETE DATA {{ :s3 :partOf :class-1 }} ; INSERT DATA {{ :s3 :partOf :hall }}")
    ten_seconds(10)

    # 5. A whole floor loses its building, and what stands on it does, too.
    print("the ground floor of the school closes")
    engine.update(f"{PREFIX}DELETE DATA {{ :school-ground :partOf :school }}")
    ten_seconds(20)
    for (building,) in engine.query(f"{PREFIX}SELECT ?building {{ ?building a :Dark }}"):
        print(name(building), "is dark")

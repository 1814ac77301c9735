"""Rules over windows: what they conclude is a stream, and lasts as long as its support."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.faces import Face
from wukongs.cli import DONE, main

EX = "http://ex/"
RULES = f"""PREFIX : <{EX}>
RULE within: CONSTRUCT {{ ?x :in ?z }} WHERE {{ ?x :in ?y . ?y :in ?z }}
RULE hot: CONSTRUCT {{ ?place a :Hot }}
FROM STREAM :readings [RANGE 2s STEP 1s] FROM <urn:x-wukongs:default>
WHERE {{ ?sensor :temperature ?t . ?sensor :in ?place FILTER (?t > 30) }}
RULE alarm: CONSTRUCT {{ ?place a :Alarm }} FROM STREAM <urn:x-wukongs:rule:hot> [RANGE 1s STEP 1s]
WHERE {{ ?place a :Hot FILTER (?place = :house) }}
"""
ASKED = f"""PREFIX : <{EX}> REGISTER QUERY asked AS
SELECT ?place FROM STREAM <urn:x-wukongs:rule:hot> [RANGE 1s STEP 1s] WHERE {{ ?place a :Hot }}"""
HELD = f"PREFIX : <{EX}> INSERT DATA {{ :sensor :in :room . :room :in :house }}"
READINGS = [(500, 35), (1500, 20), (2500, 36), (3500, 20)]
ANSWERS = [
    (1000, ["house", "room"]),
    (2000, ["house", "room"]),
    (3000, ["house", "room"]),
    (4000, ["house", "room"]),
    (5000, []),
]
"""Each reading above 30 holds for the two seconds of its window."""


def push(engine: Any, readings: list[tuple[int, int]], to_ms: int) -> None:
    stream = engine.declared(f"{EX}readings")
    stream.push([(f"<{EX}sensor>", f"<{EX}temperature>", value, time) for time, value in readings])
    stream.advance(to_ms)
    engine.settle(60)


def windows(query: Any) -> list[tuple[int, list[str]]]:
    found = query.results(timeout_s=0)
    return [(one.end_ms, sorted(row[0][1:-1].removeprefix(EX) for row in one.texts())) for one in found]


@pytest.fixture
def engine() -> Any:
    with wukongs.Engine() as found:
        found.stream(f"{EX}readings", timing=True, batch_ms=1000)
        yield found


def test_conclusions_last_as_long_as_their_support(engine: Any) -> None:
    assert engine.add_rules(RULES) == ("within", "hot", "alarm")
    asked = engine.register(ASKED)
    engine.update(HELD)
    push(engine, READINGS, 5000)
    assert windows(asked) == ANSWERS


def test_rules_over_windows_are_named_and_dropped_as_others_are(engine: Any) -> None:
    engine.add_rules(RULES)
    assert [(one.name, one.text.split(":", 2)[0][:6]) for one in engine.rules()] == [
        ("within", "PREFIX"),
        ("hot", "PREFIX"),
        ("alarm", "PREFIX"),
    ]
    again = "\n".join(one.text for one in engine.rules())
    with pytest.raises(wukongs.RuleError, match="rule within, which is there already"):
        engine.add_rules(RULES)
    engine.resume_rules("hot", "within")
    engine.drop_rules("alarm", "within", "hot")
    assert engine.rules() == []
    assert engine.add_rules(again) == ("within", "hot", "alarm")
    with pytest.raises(wukongs.RuleError, match="nothing"):
        engine.drop_rules("nothing")


def test_none_is_added_if_one_cannot_be(engine: Any) -> None:
    with pytest.raises(wukongs.StreamError, match="unknown"):
        engine.add_rules(RULES.replace(":readings", ":unknown"))
    assert engine.rules() == []
    with pytest.raises(wukongs.RuleError, match="is a stream"):
        engine.add_rules(RULES, into=f"{EX}g")
    assert engine.rules() == []
    with pytest.raises(wukongs.QuerySyntaxError, match="line 4"):
        engine.add_rules(RULES.replace("[RANGE 2s STEP 1s]", "[RANGE 2s STEP]"))
    assert engine.rules() == []


def test_a_restart_keeps_them(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path / "data") as engine:
        engine.stream(f"{EX}readings", timing=True, batch_ms=1000)
        engine.add_rules(RULES)
        engine.update(HELD)
        push(engine, READINGS[:2], 2000)
    with wukongs.Engine(tmp_path / "data", rules=RULES) as engine:
        assert [one.name for one in engine.rules()] == ["within", "hot", "alarm"]
        asked = engine.register(ASKED)
        push(engine, READINGS[2:], 5000)
        assert windows(asked)[-3:] == ANSWERS[2:]


def test_over_a_client_and_checked_on_the_command_line(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    face = Face("connect", request.node.name, tmp_path)
    with face.stack:
        client = face.open()
        client.stream(f"{EX}readings", timing=True, batch_ms=1000)
        assert client.add_rules(RULES) == ("within", "hot", "alarm")
        asked = client.register(ASKED)
        client.update(HELD)
        push(client, READINGS, 5000)
        assert windows(asked) == ANSWERS
        assert [one.name for one in client.rules()] == ["within", "hot", "alarm"]
    (tmp_path / "hot.rules").write_text(RULES)
    assert main(["rules", "check", str(tmp_path / "hot.rules")]) == DONE
    assert capsys.readouterr().out == "1 (recursive): within\nover windows: hot, alarm\n"

"""The nearest name, and the cost of asking again: what is found once is not looked for again."""

from __future__ import annotations

import io

import pytest

import wukongs
from wukongs.live import unknown_names
from wukongs.live.unknown_names import nearest_name

KNOWN = ["<http://ex/knows>", "<http://other/knows>", "<http://ex/name>", "<http://ex/age#inYears>", "<urn:x:y>"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("<http://ex/knws>", "<http://ex/knows>"),
        ("<http://other/knwos>", "<http://other/knows>"),
        ("<http://ex/KNOWS>", "<http://ex/knows>"),
        ("<https://ex/name>", "<http://ex/name>"),
        ("<http://ex/age#inyear>", "<http://ex/age#inYears>"),
        ("<http://ex/zzz>", ""),
    ],
)
def test_the_nearest_name(name: str, near: str) -> None:
    assert nearest_name(name, KNOWN) == near


def test_what_was_found_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[object]()
    held = unknown_names._Held
    monkeypatch.setattr(unknown_names, "_Held", lambda *given: looks.append(given) or held(*given))
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(b"<x:s> <x:knows> <x:o> .\n"), format="nt")
        text = "SELECT * { ?s <x:knows> ?o . ?o <x:likes> ?x }"
        assert len(engine.warnings(text)) == len(looks) == 1
        engine.load(io.BytesIO(b"<x:s> <x:likes> <x:o> .\n"), format="nt")
        assert engine.warnings(text) == ()
        assert engine.warnings(text) == ()
        assert len(looks) == 2
        engine.query(text)
        assert len(looks) == 2  # an answer alone asks for nothing


def test_only_so_many_names_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_names, "NEAR_MAX", 1)
    compared = list[int]()
    monkeypatch.setattr(unknown_names, "nearest_name", lambda _, known: compared.append(len(list(known))) or "")
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(b"<x:s> <x:knows> <x:o> .\n<x:s> <x:likes> <x:o> .\n"), format="nt")
        assert engine.warnings("SELECT * { ?s <x:lkes> ?o }") == (
            "nothing has predicate <x:lkes> so far, neither the stored graph nor a stream",
        )
    assert compared == [1]

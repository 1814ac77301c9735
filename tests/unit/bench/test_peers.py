"""The engines behind the interface of the peers: they answer alike, and what goes wrong with one is told."""

from __future__ import annotations

import itertools
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wukongs.bench.peers import CannotSay, Peer, PeerFailed, PeerMissing, TooSlow, at_most, difference
from wukongs.bench.peers.external import External
from wukongs.bench.peers.in_process import Oxigraph, Rdflib, Wukongs

STORED = (
    b'<http://e/a> <http://e/age> "07"^^<http://www.w3.org/2001/XMLSchema#integer> .\n<http://e/a> <http://e/p> _:b .\n'
    b'<http://e/a> <http://e/said> "\\"it\'s\\"\\n\\\\ \\u00e5"@en .\n'
)
WINDOW = {"http://e/g": b"<http://e/a> <http://e/near> <http://e/c> .\n"}


def stub(way: str) -> str:
    return shlex.join([sys.executable, str(Path(__file__).with_name("stub_engine.py")), way])


def external(way: str, answer_s: float = 60.0) -> External:
    return External("stub", stub(way), answer_s)


@pytest.mark.parametrize("make", [Oxigraph, Rdflib, lambda: external("right")])
def test_a_peer_has_stored_triples_and_windows_that_replace_each_other(make: Callable[[], Peer]) -> None:
    peer = make()
    try:
        peer.load(STORED)
        peer.window({"http://e/old": b"<http://e/a> <http://e/near> <http://e/b> .\n"})
        peer.window(WINDOW)
        joined = "SELECT ?age ?c { ?s <http://e/age> ?age GRAPH ?g { ?s <http://e/near> ?c } }"
        integer = "http://www.w3.org/2001/XMLSchema#integer"
        assert difference([(f'"7"^^<{integer}>', "<http://e/c>")], peer.select(joined), "hand") is None
        unbound = peer.select("SELECT ?s ?x { ?s <http://e/age> ?age OPTIONAL { ?s <http://e/none> ?x } }")
        assert unbound == [("<http://e/a>", None)]
        assert peer.select("SELECT ?s { GRAPH <http://e/old> { ?s ?p ?o } }") == []
    finally:
        peer.close()


def test_ctrl_c_while_an_engine_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def interrupted(self: External, message: object, timeout_s: float) -> None:
        started.append(self._process)
        raise KeyboardInterrupt

    monkeypatch.setattr(External, "_ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        External("silent", shlex.join([sys.executable, "-c", "import time; time.sleep(60)"]))
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_wukongs_answers_as_the_peers_do() -> None:
    peers = [Wukongs(), Oxigraph(), Rdflib()]
    for peer in peers:
        peer.load(STORED)
    ours, *others = [peer.select("SELECT ?s ?p ?o { ?s ?p ?o }") for peer in peers]
    assert len(ours) == 3
    assert [difference(ours, rows, "wukongs") for rows in others] == [None, None]
    for peer in peers:
        peer.close()


def test_a_difference_tells_the_counts_and_the_first_row() -> None:
    a, b, c = ("<http://e/a>",), ("<http://e/b>",), ("<http://e/c>",)
    assert difference([b, a, a], [a, b, a], "x") is None, "bags have no order"
    assert difference([], [], "x") is None
    assert difference([c, b, a], [c], "x") == (
        "answers otherwise: 3 rows expected (x), 1 found; first difference, missing: <http://e/a>"
    )
    assert difference([a], [a, a], "x") == (
        "answers otherwise: 1 rows expected (x), 2 found; first difference, not expected: <http://e/a>"
    )
    xsd = "http://www.w3.org/2001/XMLSchema#"
    assert difference([(f'"07"^^<{xsd}int>', "_:a")], [(f'"7"^^<{xsd}integer>', "_:b")], "x") is None
    assert difference([(f'"1.50"^^<{xsd}decimal>',)], [(f'"1.5"^^<{xsd}decimal>',)], "x") is None
    assert difference([(f'"1.5"^^<{xsd}decimal>',)], [(f'"1.5"^^<{xsd}double>',)], "x") is not None
    assert difference([(f'"x"^^<{xsd}int>',)], [(f'"y"^^<{xsd}int>',)], "x") is not None
    assert difference([('"\\u00e5\\t"@en',)], [('"å\t"@en',)], "x") is None
    told = difference([('"1"',)], [('"1"@en',)], "x")
    assert told is not None
    assert told.endswith('missing: "1"')


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("dies", "stub: ended at 'select' with status 1: out of ideas"),
        ("refuses", "stub: select: not today"),
        ("babbles", "stub: expected a JSON object as the answer to 'select', found 'hm\\n'"),
        ("counts", "stub: expected rows, lists of texts and null, found [['<http://e/a>', 1]]"),
    ],
)
def test_an_engine_that_fails_is_told(way: str, told: str) -> None:
    peer = external(way)
    try:
        peer.load(STORED)
        with pytest.raises(PeerFailed, match=re.escape(told)):
            peer.select("SELECT * { ?s ?p ?o }")
    finally:
        peer.close()


def test_an_engine_that_does_not_answer_is_ended() -> None:
    peer = external("sleeps")
    try:
        peer._answer_s = 0.2
        with pytest.raises(TooSlow):
            peer.select("SELECT * { ?s ?p ?o }")
        with pytest.raises(PeerFailed, match=r"^stub: was ended at 'select', which took more than 0\.2 s$"):
            peer.select("SELECT * { ?s ?p ?o }")
    finally:
        peer.close()


def test_an_engine_that_does_not_read_is_ended() -> None:
    peer = external("deaf")
    try:
        peer.load(STORED)
        peer._answer_s = 0.2
        with pytest.raises(TooSlow):
            peer.window({"http://e/g": 10_000 * WINDOW["http://e/g"]})
        with pytest.raises(PeerFailed, match=r"^stub: was ended at 'window', which took more than 0\.2 s$"):
            peer.select("SELECT * { ?s ?p ?o }")
    finally:
        peer.close()


def test_an_engine_is_ended_with_all_that_it_has_started() -> None:
    peer = External("stub", shlex.join(["sh", "-c", f"{stub('sleeps')}; true"]))
    try:
        peer._answer_s = 0.2
        with pytest.raises(TooSlow):
            peer.select("SELECT * { ?s ?p ?o }")
    finally:
        peer.close()
    assert not peer._reader.is_alive(), "somebody still holds its standard output"


def test_an_engine_that_cannot_say_a_query_is_asked_further_ones() -> None:
    peer = external("cannot")
    try:
        for _ in range(2):
            with pytest.raises(CannotSay, match=r"^paths$"):
                peer.select("SELECT * { ?s ?p ?o }")
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("/nowhere/engine", "give a command that starts it, as in --peers 'mine=COMMAND'"),
        ("'", "No closing quotation"),
        (shlex.join([sys.executable, "-c", "raise SystemExit('no licence')"]), "with status 1: no licence"),
    ],
)
def test_an_engine_that_does_not_start_is_missing(command: str, told: str) -> None:
    with pytest.raises(PeerMissing, match=re.escape(told)):
        External("mine", command)


def test_python_code_is_interrupted_after_its_time() -> None:
    with pytest.raises(TooSlow), at_most(0.05):
        for _ in itertools.repeat(None):  # a loop in Python: signals reach no loop inside of C
            pass
    with at_most(60):
        assert sum(range(10)) == 45

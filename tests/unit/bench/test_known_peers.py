"""The peers that `--peers` knows by name. Those that have to be fetched are, by the slow tests only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bench.test_peers import stub
from tests.unit.conftest import Ran
from wukongs.bench.peers import CannotSay, Peer, PeerFailed, PeerMissing, difference
from wukongs.bench.peers.fetching import FetchError
from wukongs.bench.peers.in_process import Oxigraph
from wukongs.bench.peers.known import KNOWN
from wukongs.bench.peers.lines import split_triples
from wukongs.bench.peers.spark_sql import to_sql
from wukongs.csparql.parser import parse_query

BUILD = Path(__file__).resolve().parents[3] / "build"
XSD = "http://www.w3.org/2001/XMLSchema#"
Make = Callable[[str], Peer]

STORED = f"""<http://e/ann> <http://e/knows> <http://e/bob> .
<http://e/ann> <http://e/knows> <http://e/bob> .
<http://e/bob> <http://e/knows> <http://e/cid> .
<http://e/bob> <http://e/name> "B \\"b\\" \\\\ \\n\\u00e9"@en .
<http://e/cid> <http://e/age> "07"^^<{XSD}integer> .
<http://e/cid> <http://e/at> _:place .
""".encode()
POSTS, LIKES = "http://e/stream/posts", "http://e/stream/likes"
WINDOW = {
    POSTS: b"""<http://e/bob> <http://e/wrote> <http://e/p1> .
<http://e/bob> <http://e/wrote> <http://e/p2> .
<http://e/p1> <http://e/tag> "x" .
<http://e/p2> <http://e/tag> "x" .
<http://e/p2> <http://e/tag> "y" .
<http://e/p2> <http://e/tag> "y" .
""",
    LIKES: b"<http://e/cid> <http://e/likes> <http://e/p2> .\n<http://e/ann> <http://e/likes> <http://e/p1> .\n",
}
PREFIXES = f"PREFIX : <http://e/> PREFIX xsd: <{XSD}>\n"
QUESTIONS = {
    "a constant": f"SELECT ?p ?o {{ GRAPH <{POSTS}> {{ :p2 ?p ?o }} }}",
    "a stored one": f"SELECT ?who ?post {{ ?who :knows ?friend . GRAPH <{POSTS}> {{ ?friend :wrote ?post }} }}",
    "within a window": f"SELECT ?a ?b ?tag {{ GRAPH <{POSTS}> {{ ?a :tag ?tag . ?b :tag ?tag }} }}",
    "two windows": f"SELECT ?who ?post {{ GRAPH <{LIKES}> {{ ?who :likes ?post }} "
    f"GRAPH <{POSTS}> {{ ?friend :wrote ?post }} ?friend :knows ?who }}",
    "terms": f"SELECT ?o {{ GRAPH <{POSTS}> {{ ?s :wrote :p1 }} ?x ?p ?o }}",
    "union": f"SELECT DISTINCT ?one {{ {{ GRAPH <{POSTS}> {{ ?one :tag ?tag }} }} "
    f"UNION {{ GRAPH <{LIKES}> {{ ?who :likes ?one }} }} }}",
    "negation": f"SELECT ?who ?post {{ GRAPH <{LIKES}> {{ ?who :likes ?post }} GRAPH <{POSTS}> {{ ?by :wrote ?post }} "
    "FILTER NOT EXISTS { ?by :knows ?who } }",
    "counts": f"SELECT ?tag (COUNT(DISTINCT ?post) AS ?n) {{ GRAPH <{POSTS}> {{ ?post :tag ?tag }} }} GROUP BY ?tag",
    "the most": f"SELECT ?tag (COUNT(DISTINCT ?post) AS ?n) {{ GRAPH <{POSTS}> {{ ?post :tag ?tag }} }} "
    "GROUP BY ?tag ORDER BY DESC(?n) LIMIT 1",
    "nothing": f"SELECT ?s {{ GRAPH <{POSTS}> {{ ?s :never ?o }} }}",
}
STORED_ONLY = "SELECT ?a ?b ?o { ?a :knows ?b OPTIONAL { ?b :age ?o } }"


@pytest.fixture(scope="module")
def made() -> Iterator[Make]:
    """Make a peer, with what it needs in build/ if the user's cache does not have it; skip where it lacks something."""
    peers: dict[str, Peer] = {}
    with pytest.MonkeyPatch.context() as patched:

        def make(name: str) -> Peer:
            if name not in peers:
                known = KNOWN[name]
                if known.fetched is not None and not known.fetched.are_there():
                    patched.setenv("WUKONGS_PEERS", str(BUILD / "peers"))
                    try:
                        known.fetched.fetch(print)
                    except FetchError as error:
                        pytest.skip(str(error))
                try:
                    peers[name] = known.kind(name).make()
                except PeerMissing as missing:
                    pytest.skip(str(missing))
                peers[name].load(STORED)
            peers[name].window(WINDOW)
            return peers[name]

        yield make
    for peer in peers.values():
        peer.close()


@pytest.fixture(scope="module")
def right() -> Iterator[Peer]:
    peer = Oxigraph()
    peer.load(STORED)
    peer.window(WINDOW)
    yield peer
    peer.close()


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["jena", "rsp-js", "spark"])
def test_a_peer_answers_as_pyoxigraph_does(made: Make, right: Peer, name: str, question: str) -> None:
    text = PREFIXES + QUESTIONS[question]
    expected = right.select(text)
    assert bool(expected) == (question != "nothing"), "nothing would be compared"
    assert difference(expected, made(name).select(text), "pyoxigraph") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jena", "rsp-js", "spark"])
def test_a_peer_forgets_the_window_before(made: Make, name: str) -> None:
    peer = made(name)
    peer.window({POSTS: b'<http://e/p9> <http://e/tag> "z" .\n', LIKES: b""})
    assert peer.select(f"SELECT ?s {{ GRAPH <{POSTS}> {{ ?s ?p ?o }} }}") == [("<http://e/p9>",)]
    peer.window({POSTS: b"", LIKES: b""})
    assert peer.select(f"SELECT ?s {{ GRAPH <{POSTS}> {{ ?s ?p ?o }} }}") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jena", "spark"])
def test_a_peer_answers_one_shot_questions(made: Make, right: Peer, name: str) -> None:
    expected = right.select(PREFIXES + STORED_ONLY)
    assert (None in expected[0]) != (None in expected[1]), "one row has no age"
    assert difference(expected, made(name).select(PREFIXES + STORED_ONLY), "pyoxigraph") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jena", "rsp-js", "spark"])
def test_a_query_that_is_none_is_told_and_the_peer_goes_on(made: Make, name: str) -> None:
    peer = made(name)
    with pytest.raises(PeerFailed, match=f"^{name}: select: "):
        peer.select("SELECT nothing")
    assert peer.select(f"SELECT ?s {{ GRAPH <{LIKES}> {{ ?s ?p <http://e/p1> }} }}") == [("<http://e/ann>",)]


@pytest.mark.slow
def test_rsp_js_says_what_it_cannot_say(made: Make) -> None:
    peer = made("rsp-js")
    with pytest.raises(CannotSay, match=r"SELECT \*"):
        peer.select(f"SELECT * {{ GRAPH <{POSTS}> {{ ?s ?p ?o }} }}")
    peer.window({})
    with pytest.raises(CannotSay, match="a query without windows"):
        peer.select("SELECT ?s { ?s ?p ?o }")


@pytest.mark.slow
@pytest.mark.parametrize("question", ["counts", "the most"])
def test_bytewax_counts_as_pyoxigraph_does(made: Make, right: Peer, question: str) -> None:
    peer = made("bytewax")
    text = PREFIXES + QUESTIONS[question]
    assert difference(right.select(text), peer.select(text), "pyoxigraph") is None
    all_of_them = text.replace("SELECT ?tag (COUNT(DISTINCT ?post) AS ?n)", "SELECT (COUNT(?post) AS ?n) ?tag")
    assert all_of_them != text
    assert difference(right.select(all_of_them), peer.select(all_of_them), "pyoxigraph") is None
    peer.window({POSTS: b""})
    assert peer.select(text) == []


@pytest.mark.slow
def test_bytewax_says_what_it_cannot_say(made: Make) -> None:
    peer = made("bytewax")
    refused = {name: text for name, text in QUESTIONS.items() if name not in ("counts", "the most")}
    refused["stored triples"] = "SELECT ?a (COUNT(?b) AS ?n) { ?a :knows ?b } GROUP BY ?a"
    refused["a sum"] = f"SELECT ?a (SUM(?b) AS ?n) {{ GRAPH <{POSTS}> {{ ?a :tag ?b }} }} GROUP BY ?a"
    refused["all rows"] = f"SELECT ?a (COUNT(*) AS ?n) {{ GRAPH <{POSTS}> {{ ?a :tag ?b }} }} GROUP BY ?a"
    refused["any ten"] = f"SELECT ?a (COUNT(?b) AS ?n) {{ GRAPH <{POSTS}> {{ ?a :tag ?b }} }} GROUP BY ?a LIMIT 10"
    for text in refused.values():
        with pytest.raises(CannotSay):
            peer.select(PREFIXES + text)


def test_triples_are_split_once_each_with_their_characters() -> None:
    line = '<http://e/a> <http://e/b> "x . y\\\\u0041 \\u00e9\\U0001F600 \\u0022\\u000A"@en .'
    found = split_triples(f"{line}\n\n{line}\n_:a <http://e/b> _:c .\n")
    literal = '"x . y\\\\u0041 é😀 \\u0022\\u000A"@en'
    assert found == [("<http://e/a>", "<http://e/b>", literal), ("_:a", "<http://e/b>", "_:c")]


# --- SPARQL as Spark SQL ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT ?s { ?s :age ?o FILTER(?o > 1) }", "FILTER of values"),
        ("SELECT ?n { ?s :age ?o BIND(?o + 1 AS ?n) }", "an expression of values"),
        ("SELECT (SUM(?o) AS ?n) { ?s :age ?o }", "SUM of values"),
        ("SELECT ?s { ?s :knows+ ?o }", "PathPattern"),
        ("SELECT ?s { GRAPH ?g { ?s ?p ?o } }", "GRAPH with a variable"),
        ("SELECT ?s { ?s ?p ?o OPTIONAL { ?s :age ?a } ?x :age ?a }", "a join over variables that may be unbound"),
        ("SELECT ?s { ?s ?p ?o OPTIONAL { ?s :age ?a FILTER(?a > 1) } }", "OPTIONAL with FILTER"),
        ("SELECT ?s { ?s ?p ?o } ORDER BY STR(?s)", "ORDER BY an expression"),
        ("ASK { ?s ?p ?o }", "ASK"),
    ],
)
def test_what_spark_cannot_say_is_named(text: str, told: str) -> None:
    with pytest.raises(CannotSay, match=f"^{re.escape(told)}$"):
        to_sql(parse_query(PREFIXES + text), {})


def test_texts_and_names_are_quoted_for_spark() -> None:
    sql = to_sql(parse_query('SELECT ?s { ?s <http://e/\'> "it\'s \\"\\\\" }'), {})
    assert sql == (
        "SELECT `s` FROM (SELECT `s` FROM (SELECT t0.s AS `s` FROM stored t0 "
        "WHERE t0.p = '<http://e/\\'>' AND t0.o = '\"it\\'s \\\\\"\\\\\\\\\"'))"
    )


# --- in a run ---------------------------------------------------------------------------------------------------------


def lines_of(folder: Path, engine: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "results.jsonl").read_text("utf-8").splitlines())
    return [line for line in lines if line["engine"] == engine]


@pytest.fixture
def nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WUKONGS_PEERS", str(tmp_path / "cache"))


def test_a_peer_that_was_not_fetched_is_told_at_once_and_in_the_results(
    tmp_path: Path, ran: Ran, nothing_fetched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.bench.peers.known._lacks_java", lambda: "")
    arguments = ("bench", "lsbench", "--quick", "--queries", "S1", "--experiment", "one-shot", "--peers", "jena")
    status, _, err = ran(*arguments, "--report", str(tmp_path / "run"))
    why = "its files are not here: wukongs bench peers fetch jena (15 MB from Maven Central)"
    assert status == 0
    assert err.splitlines()[0] == f"jena will not be measured: {why}"
    (line,) = lines_of(tmp_path / "run", "jena")
    assert line["skipped"] == f"missing: jena: {why}"


def test_a_peer_that_lacks_java_or_node_is_told(
    tmp_path: Path, ran: Ran, nothing_fetched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    status, out, err = ran("bench", "peers")
    states = {line.split()[0]: line for line in out.splitlines() if not line.startswith(" ")}
    assert (status, err) == (0, "")
    assert list(states) == list(KNOWN)
    assert states["pyoxigraph"].split() == ["pyoxigraph", "here"]
    assert "missing: install Java 17 or newer (a JDK), or let JAVA_HOME name one" in states["jena"]
    assert "missing: install Node.js 18 or newer with npm" in states["rsp-js"]


def test_a_peer_with_no_part_in_a_query_is_not_made_for_it(tmp_path: Path, ran: Ran, nothing_fetched: None) -> None:
    arguments = ("bench", "lsbench", "--quick", "--queries", "S1", "--experiment", "one-shot", "--peers", "rsp-js")
    assert ran(*arguments, "--report", str(tmp_path / "run"))[0] == 0
    (line,) = lines_of(tmp_path / "run", "rsp-js")
    assert line["skipped"] == "it has continuous queries over windows only"


@pytest.mark.slow
def test_a_peer_that_cannot_say_a_query_is_not_measured(tmp_path: Path, ran: Ran) -> None:
    arguments = ("bench", "lsbench", "--quick", "--queries", "L1,L2", "--experiment", "latency")
    assert ran(*arguments, "--peers", f"mine={stub('cannot')}", "--report", str(tmp_path))[0] == 0
    assert [line["skipped"] for line in lines_of(tmp_path, "mine")] == ["cannot say it: paths"] * 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("fetch", "rdflib"), "rdflib cannot be fetched (needs: nothing more): expected some of jena, rsp-js"),
        (("fetch", "tpch"), "tpch cannot be fetched (there is no peer of this name): expected some of jena, rsp-js"),
        (("list", "jena"), "list takes no names, found jena: leave them out, or use fetch"),
    ],
)
def test_only_some_peers_can_be_fetched(ran: Ran, arguments: tuple[str, ...], told: str) -> None:
    status, out, err = ran("bench", "peers", *arguments)
    assert (status, out, err) == (2, "", f"wukongs: {told}\n")


def test_a_fetch_that_fails_is_told(ran: Ran, nothing_fetched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WUKONGS_MAVEN", "file:///nowhere")
    monkeypatch.setattr("wukongs.bench.peers.fetching.TRIES", 1)
    status, _, err = ran("bench", "peers", "fetch", "jena")
    assert status == 1
    assert err.startswith("jena: 27 jars from file:///nowhere\nwukongs: ")
    assert err.endswith("WUKONGS_MAVEN names another repository\n")

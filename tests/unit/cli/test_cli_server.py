"""The commands that talk to a running node: what they print, refuse, and do at the node."""

from __future__ import annotations

import inspect
import io
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wukongs
from tests.engine_helpers import A, at, register_text
from tests.scenarios.test_kill import ENDLESS, until
from tests.unit.conftest import Ran
from wukongs.cluster.node_config import load_node_config
from wukongs.cluster.serving import ServedEngine
from wukongs.remote import watching
from wukongs.remote.watching import watched

SELECT = "PREFIX ex: <http://ex/> SELECT ?a ?b WHERE { ?a ex:knows ?b } ORDER BY ?a"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "node.toml"
    file.write_text('[[node]]\nclients = "tcp://127.0.0.1:*"\n')
    node = ServedEngine(load_node_config(file))
    yield node.address
    node.close()


def test_load_query_and_update(ran: Ran, server: str, data: str, more: str) -> None:
    status, out, err = ran("load", "--server", server, data, more)
    assert (status, err) == (0, "")
    assert out == "files: 2 loaded, 0 refused\nmalformed lines: 0 set aside\nsnapshot 2\n"
    status, out, err = ran("query", "--server", server, "--format", "csv", SELECT)
    assert (status, err) == (0, "")
    expected = ["a,b", "http://ex/a,http://ex/b", "http://ex/b,http://ex/c", "http://ex/c,http://ex/d"]
    assert out.splitlines() == expected
    assert ran("update", "--server", server, "DELETE WHERE { <http://ex/a> ?p ?o }") == (0, "", "snapshot 3\n")
    assert ran("update", "--server", server, "--quiet", "INSERT DATA { <x:a> <x:p> 1 }") == (0, "", "")
    assert ran("query", SELECT, "--format", "csv", "--server", server)[1].splitlines() == [expected[0], *expected[2:]]
    status, out, err = ran("query", "--server", server, "--explain", "--analyze", SELECT)
    assert status == 0
    assert "http://ex/knows" in out


def test_what_is_refused_there_is_said_here(ran: Ran, server: str, tmp_path: Path) -> None:
    status, out, err = ran("update", "--server", server, "DROP GRAPH <http://ex/none>")
    assert (status, out) == (1, "")
    assert err.startswith("wukongs: cannot DROP graph <http://ex/none>: there is no such graph")
    broken, lines = tmp_path / "broken.ttl", tmp_path / "lines.nt"
    broken.write_text("@prefix : <http://ex/> .\n:a :p ;;; ] .\n")
    lines.write_text("oops\n<http://ex/a> <http://ex/p> <http://ex/b> .\n")
    rejects = tmp_path / "rejects"
    status, out, err = ran("load", "--server", server, str(broken), str(lines), "--rejects", str(rejects))
    assert (status, err) == (1, "")
    assert f"files: 1 loaded, 1 refused\nmalformed lines: 1 set aside, kept in {rejects}\n" in out
    assert f"{lines}, line 1, column 1" in out
    assert f"refused {broken}, line 2" in out
    assert rejects.read_text().startswith(f"# {lines}, line 1, column 1: ")
    assert ran("load", "--server", server, str(lines))[0] == 3
    assert ran("load", "--server", server, "--allow-malformed", str(lines))[::2] == (0, "")
    status, out, err = ran("load", "--server", server, "--strict", str(lines))
    assert (status, out) == (1, "")
    assert f"{lines}, line 1" in err


def test_a_load_from_standard_input(ran: Ran, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"<http://ex/a> <http://ex/knows> <http://ex/b> .\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(line)))
    assert ran("load", "--server", server, "-")[0] == 0
    assert ran("query", "--server", server, "--format", "csv", SELECT)[1].count("\n") == 2


def test_register_and_watch(ran: Ran, server: str, tmp_path: Path) -> None:
    file = tmp_path / "q.rq"
    file.write_text(register_text("RANGE 100ms STEP 100ms"))
    assert ran("streams", "--server", server) == (0, "", "")
    with wukongs.connect(server) as client:
        stream = client.stream(A, batch_ms=100)
        assert ran("register", "--server", server, f"@{file}") == (0, "q\n", "")
        assert ran("queries", "--server", server) == (0, "q\n", "")
        assert ran("streams", "--server", server) == (0, f"{A}\n", "")
        stream.push([at("a", 50), at("b", 150), at("c", 250)])
        stream.advance(400)
        client.settle(60)
        assert ran("queries", "--server", server, "--why")[1].startswith("q waits to report the window ending at 500")
        status, out, err = ran("watch", "--server", server, "q", "--windows", "1")
        assert (status, err) == (0, "")
        assert out == "q (0, 100] ms, 1 row\n?s\n─────────────\n<http://ex/a>\n\n"
        status, out, err = ran("watch", "--server", server, "q", "--format", "csv", "--windows", "2")
        assert (status, out.split()) == (0, ["s", "http://ex/a", "s", "http://ex/b"])  # each who watches gets all
        assert err == "q (0, 100] ms, 1 row\nq (100, 200] ms, 1 row\n"
        status, out, err = ran("watch", "--server", server, "q", "--timeout", "0.2")
        assert out.endswith("q (300, 400] ms, 0 rows\n?s\n──\n\n")
        assert (out.count(" row\n"), out.count(" rows\n")) == (3, 1)
        client.queries()[0].close()
    status, out, err = ran("watch", "--server", server, "q")
    assert (status, out) == (1, "")
    assert err == "wukongs: no query named q is registered: register it first. Registered: none\n"


def test_streams_are_declared_and_dropped(ran: Ran, server: str) -> None:
    of = ("--server", server)
    declared = ("http://ex/s", "--batch-ms", "100", "--timing", "http://ex/p", "--timing", "http://ex/q")
    assert ran("streams", "declare", *of, *declared) == (0, "", "")
    assert ran("streams", "declare", *of, *declared) == (0, "", "")
    status, out, err = ran("streams", "declare", *of, "http://ex/s", "--batch-ms", "200")
    assert (status, out) == (1, "")
    assert err.startswith("wukongs: ")
    given = ("--all-timing", "--lateness-ms", "5", "--on-late", "count", "--slice-bytes-max", "1000000")
    assert ran("streams", "declare", *of, "<http://ex/t>", "--batch-ms", "50", *given) == (0, "", "")
    assert ran("streams", "list", *of) == ran("streams", *of) == (0, "http://ex/s\nhttp://ex/t\n", "")
    assert ran("stream", "add", *of, "http://ex/open", "--late", "open", "--all-timing") == (0, "", "")
    with wukongs.connect(server) as client:
        client.declared("http://ex/open").push(
            [("<http://ex/a>", "<http://ex/p>", "<http://ex/o>", t) for t in (900, 100)]
        )
        assert client.stats()["streams"]["http://ex/open"]["carried"] == 1
        client.drop_stream("http://ex/open")
        query = client.register(register_text("RANGE 100ms STEP 100ms", stream="http://ex/s"))
        first, second = json.loads(ran("streams", *of, "--format", "json")[1])
        assert (first["iri"], first["tuples"], second["slice_bytes_max"]) == ("http://ex/s", 0, 1_000_000)
        status, out, err = ran("streams", "drop", *of, "http://ex/s")
        assert (status, out, "q" in err) == (1, "", True)  # a query reads it
        query.close()
    found = "no stream http://ex/u is declared: there is http://ex/s, http://ex/t"
    assert ran("streams", "drop", *of, "http://ex/s", "http://ex/u") == (1, "", f"wukongs: {found}\n")
    assert ran("streams", "drop", *of, "http://ex/s", "<http://ex/t>") == (0, "", "")
    assert ran("streams", *of, "--format", "json") == (0, "[]\n", "")


@pytest.mark.slow
def test_a_stream_is_added_and_closed(ran: Ran, server: str) -> None:
    """By whomever it was declared, and without its options."""
    of = ("--server", server)
    assert ran("stream", "add", A, "--batch-ms", "100", "--timeout", "30", *of) == (0, "", "")
    assert ran("stream", "list", *of) == ran("stream", *of) == (0, f"{A}\n", "")
    with wukongs.connect(server) as client:
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        client.stream(A, batch_ms=100).push([at("a", 50)])
        assert ran("stream", "close", A, A, *of) == (0, "", "")
        assert [window.texts() for window in query.results(timeout_s=5)] == [[("<http://ex/a>",)]]
        with pytest.raises(wukongs.StreamError, match="closed"):
            client.declared(A).push([at("b", 250)])
        with pytest.raises(wukongs.StreamError, match="http://ex/none"):
            client.declared("http://ex/none")
        assert ran("close", "q", "r", *of) == (1, "", "wukongs: no query r is registered: there is q\n")
        assert ran("close", "q", "q", *of) == (0, "", "")
        assert client.queries() == []
    assert ran("stream", "drop", A, *of) == (0, "", "")
    assert ran("stream", "close", A, *of) == (1, "", f"wukongs: no stream {A} is declared: there is none\n")


def test_options_of_a_stream_are_those_of_the_engine(ran: Ran) -> None:
    status, out, _ = ran("stream", "add", "--help")
    assert status == 0
    names = [name for name in inspect.signature(wukongs.Engine.stream).parameters if name not in ("self", "stream_iri")]
    told = {"timeout_s": "--timeout "} | {name: f"--{name.replace('_', '-')} " for name in names if name != "timeout_s"}
    assert [name for name in names if told[name] not in out] == []


def test_queries_are_paused_resumed_and_closed(ran: Ran, server: str) -> None:
    of = ("--server", server)
    with wukongs.connect(server) as client:
        stream = client.stream(A, batch_ms=100)
        query = client.register(register_text("RANGE 100ms STEP 100ms"))
        assert ran("queries", "pause", *of, "q") == (0, "", "")
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(200)
        client.settle(60)
        assert query.stats()["windows"] == 0
        assert ran("queries", "resume", *of, "q") == (0, "", "")
        stream.push([at("c", 250)])
        stream.advance(300)
        client.settle(60)
        (row,) = json.loads(ran("queries", "list", *of, "--format", "json", "--why")[1])
        assert (row["name"], row["server"], row["windows"]) == ("q", None, query.stats()["windows"])
        assert row["windows"] > 0
        assert row["why"] == query.why()
        assert ran("queries", "close", *of, "q", "r")[::2] == (
            1,
            "wukongs: no query r is registered: there is q\n",
        )
        assert ran("queries", *of) == (0, "q\n", "")
        assert ran("queries", "close", *of, "q") == (0, "", "")
        assert ran("queries", *of) == (0, "", "")
        assert ran("queries", "close", *of, "q")[2] == "wukongs: no query q is registered: there is none\n"


def test_one_shot_queries_are_listed_and_killed(ran: Ran, server: str) -> None:
    of = ("--server", server)
    assert ran("queries", "running", *of) == (0, "", "")
    assert ran("queries", "running", *of, "--format", "json") == (0, "[]\n", "")
    with wukongs.connect(server) as client:
        client.load(io.BytesIO(b"<http://e/s> <http://e/p> <http://e/o> .\n"), format="nt")
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                client.query(ENDLESS, timeout_s=0)
            except wukongs.QueryKilled as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        until(client.running)
        number, seconds, held, text = ran("queries", "running", *of)[1].split("\t")
        assert (seconds[-2:], held[-4:]) == (" s", " MiB")
        assert "SELECT ?s { ?s ?p ?o BIND" in text
        (row,) = json.loads(ran("queries", "running", *of, "--format", "json")[1])
        assert (str(row["number"]), row["text"]) == (number, text.rstrip("\n"))
        status, out, err = ran("queries", "kill", *of, "0")
        assert (status, out, f"query 0 does not run here: it has ended, or never was. Running: {number}" in err) == (
            1,
            "",
            True,
        )
        assert ran("queries", "kill", *of, number) == (0, "", "")
        asking.join(60)
    assert len(failed) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("queries", "stop"), "'stop' is nothing to do: expected one of list, close, pause, resume, running, kill"),
        (("queries", "kill"), "the following arguments are required: NUMBER"),
        (("queries", "kill", "all"), "expected an integer from 0 on, found 'all'"),
        (("queries", "running", "1"), "unrecognized arguments: 1"),
        (("queries", "close"), "the following arguments are required: NAME"),
        (("streams", "make"), "'make' is nothing to do: expected one of list, add, close, drop"),
        (("streams", "declare", "a b"), "expected an IRI, without spaces"),
        (("streams", "declare", "a", "--batch-ms", "-1"), "--batch-ms"),
        (("streams", "declare", "a", "--batch-ms", "1s"), "expected an integer from 0 on, found '1s'"),
        (("streams", "declare", "a", "--timing", "b", "--all-timing"), "not allowed with"),
        (("streams", "--format", "csv"), "invalid choice: 'csv'"),
    ],
)
def test_what_the_commands_for_queries_and_streams_refuse(ran: Ran, given: tuple[str, ...], said: str) -> None:
    status, out, err = ran(*given, "--server", "tcp://127.0.0.1:1")
    assert (status, out, said in err) == (2, "", True), err


def test_a_live_view_is_registered_and_watched(ran: Ran, server: str) -> None:
    text = "PREFIX : <http://ex/> REGISTER QUERY v AS SELECT ?s ?o WHERE { ?s :p ?o }"
    of = "--server", server
    with wukongs.connect(server) as client:
        client.update("PREFIX : <http://ex/> INSERT DATA { :a :p 1 }")
        assert ran("register", *of, text) == (0, "v\n", "")
        assert ran("queries", *of, "--why")[1].startswith("view v is complete up to SN 1")
        status, out, err = ran("watch", *of, "v", "--windows", "1")
        assert (status, err) == (0, "")
        assert out == "v (1, 1] reset, 1 row\n    ?s  ?o\n──  ──  ──\n+1  :a   1\n\n"
        (listed,) = json.loads(ran("queries", *of, "--format", "json")[1])
        assert (listed["name"], listed["kind"], listed["sn"]) == ("v", "view", 1)
        changing = threading.Timer(0.5, client.update, ["DELETE DATA { <http://ex/a> <http://ex/p> 1 }"])
        changing.start()
        status, out, err = ran("watch", *of, "v", "--format", "json", "--windows", "2")
        changing.join()
        reset, change = map(json.loads, out.splitlines())
        assert [one["weight"] for report in (reset, change) for one in report["changes"]] == [1, -1]
        assert (reset["snapshot"], change["after"], err) == (1, 1, "")
        assert "are written as table or json" in ran("watch", *of, "v", "--format", "csv")[2]
        client.queries()[0].close()


def test_several_queries_are_watched_at_once(ran: Ran, server: str) -> None:
    of = ("--server", server)
    assert ran("watch", *of, "--all") == (
        1,
        "",
        "wukongs: no query is registered: register one first, with `wukongs register`\n",
    )
    with wukongs.connect(server) as client:
        stream = client.stream(A, batch_ms=100)
        client.register(f"PREFIX ex: <http://ex/> {register_text('RANGE 100ms STEP 100ms', 'p')}")
        client.register(register_text("RANGE 100ms STEP 100ms", select="?p"))
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(200)
        client.settle(60)
        for chosen in (("p", "q", "p"), ("--all",)):
            status, out, err = ran("watch", *of, *chosen, "--windows", "1")
            assert (status, err) == (0, "")
            blocks = sorted(out.removesuffix("\n\n").split("\n\n"))
            assert blocks == [
                "p (0, 100] ms, 1 row\n?s\n────\nex:a",
                "q (0, 100] ms, 1 row\n?p\n─────────────\n<http://ex/p>",
            ]
        status, out, _ = ran("watch", *of, "--all", "--timeout", "0.5")
        assert (status, out.count(" ms, 1 row\n")) == (0, 4)
        assert ran("watch", *of, "p", "r")[::2] == (
            1,
            "wukongs: no query named r is registered: register it first. Registered: p, q\n",
        )


def test_on_a_terminal_newest_rows_stand_above_counts_and_stay(
    ran: Ran, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    with wukongs.connect(server) as client:
        stream = client.stream(A, batch_ms=100)
        for name in ("p", "q"):
            client.register(f"PREFIX ex: <http://ex/> {register_text('RANGE 100ms STEP 100ms', name)}")
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(400)
        client.settle(60)
        status, out, err = ran("watch", "--server", server, "--all", "--timeout", "0.6")
        assert (status, err) == (0, "")
        facts = client.stats()["queries"]
    lines = [line.split() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out).splitlines()]
    assert lines[-7:-3] == [["p", "?s"], ["0.2", "s", "ex:b"], ["q", "?s"], ["0.2", "s", "ex:b"]]
    assert lines[-3] == ["query", "windows", "rows", "last", "rows", "execution", "p50", "execution", "p99"]
    for line, name in zip(lines[-2:], "pq", strict=True):
        assert line[:4] == [name, *(str(facts[name][key]) for key in ("windows", "rows", "last_rows"))]


def test_ctrl_c_ends_a_watch_with_the_status_of_other_commands(
    ran: Ran, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was shown stays, and the query goes on."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    def interrupted(*_: object) -> Iterator[Any]:
        yield None
        raise KeyboardInterrupt

    with wukongs.connect(server) as client:
        client.stream(A, batch_ms=100)
        client.register(register_text("RANGE 100ms STEP 100ms"))
        monkeypatch.setattr(watching, "watched", interrupted)
        status, out, err = ran("watch", "--server", server, "q")
        assert (status, err) == (130, "")
        assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out).splitlines()[-1].split()[:4] == ["q", "0", "0", "0"]
        assert [query.name for query in client.queries()] == ["q"]


def test_watch_goes_on_after_a_gap(ran: Ran, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with wukongs.connect(server) as client, wukongs.connect(server) as reading:
        stream = client.stream(A, batch_ms=100)
        client.register(register_text("RANGE 100ms STEP 100ms"), unread_bytes_max=2048)
        found = watched(reading.queries(), timeout_s=1)
        for number in range(10):
            stream.push([at("a", 100 * number + 50)])
            stream.advance(100 * number + 100)
            if number == 0:
                client.settle(60)
                first = next(item for item in found if item is not None)
        client.settle(60)
        first, gap, *rest = (first, *(item for item in found if item is not None))
    assert isinstance(gap, wukongs.GapError)
    ends = [item.end_ms for item in (first, *rest) if isinstance(item, wukongs.WindowResult)]
    assert ends == [100, *range(gap.to_ms + 100, 1001, 100)]
    with wukongs.connect(server) as client:
        monkeypatch.setattr(watching, "watched", lambda *_: iter([gap]))
        assert ran("watch", "--server", server, "q") == (0, "", f"{gap}\n")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream.arrow", "csv"])
def test_bindings_from_a_file(ran: Ran, server: str, tmp_path: Path, kind: str) -> None:
    terms = ["<http://ex/a>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>']
    table, file = pa.table({"s": terms}), tmp_path / f"bindings.{kind}"
    if kind == "parquet":
        pq.write_table(table, file)
    elif kind == "csv":
        file.write_text("s\n" + "".join('"' + term.replace('"', '""') + '"\n' for term in terms))
    else:
        new = pa.ipc.new_stream if kind == "stream.arrow" else pa.ipc.new_file
        with pa.OSFile(str(file), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table)
    query = register_text("RANGE 100ms STEP 100ms")
    with wukongs.connect(server) as client:
        client.stream(A, batch_ms=100)
        assert ran("register", "--server", server, "--bindings", str(file), query) == (0, "q\n", "")
        (found,) = client.queries()
        assert found.stats()["queries"] == 2
        found.close()


def test_a_file_that_holds_no_bindings(ran: Ran, server: str, tmp_path: Path) -> None:
    query = register_text("RANGE 100ms STEP 100ms")
    for name, content, told in (
        ("b.txt", b"none", "expected bindings in a file .parquet, .arrow, .csv"),
        ("b.parquet", b"none", "expected a table"),
        ("b.csv", b"", "expected a table: it is empty"),
    ):
        (tmp_path / name).write_bytes(content)
        status, _, err = ran("register", "--server", server, "--bindings", str(tmp_path / name), query)
        assert status == 1
        assert err.startswith(f"wukongs: {tmp_path / name}: {told}")


def test_a_wrong_query_is_refused_by_its_file(ran: Ran, server: str, tmp_path: Path) -> None:
    file = tmp_path / "q.rq"
    file.write_text("REGISTER QUERY q AS\nSELEKT")
    status, out, err = ran("register", "--server", server, f"@{file}")
    assert (status, out) == (1, "")
    assert err.startswith(f"wukongs: {file}, line 2, column 1: expected")


def test_stats(ran: Ran, server: str, data: str) -> None:
    ran("load", "--server", server, data)
    status, out, err = ran("stats", "--server", server)
    assert (status, err) == (0, "")
    assert json.loads(out)["stored_triples"] == 3


TOKEN = "a-token,-a-long-one"
RUN = """
[[stream]]
iri = "http://ex/s"
batch_ms = 100
timing = true
[stream.source]
kind = "jsonl"
path = "data.jsonl"
[stream.source.mapping]
subject = "http://ex/{id}"
time = { column = "t", format = "epoch_ms" }
[[stream.source.mapping.triple]]
predicate = "http://ex/p"
value = "{v}"
[[query]]
name = "q"
text = "REGISTER QUERY q AS SELECT ?s FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }"
"""


def test_a_node_that_wants_keys_and_a_token(ran: Ran, tmp_path: Path) -> None:
    for name in ("node", "alice", "mallory"):
        assert ran("keys", str(tmp_path / name))[0] == 0
    (tmp_path / "tokens").touch(0o600)
    (tmp_path / "tokens").write_text("a token, a long one\n".replace(" ", "-"))
    public = (tmp_path / "node" / "key.pub").read_text().strip()
    (tmp_path / "node.toml").write_text(
        f"""[[node]]
        clients = "tcp://127.0.0.1:*"
        public_key = '{public}'
        [trust]
        secret_key_file = "node/key.secret"
        allowed_clients = "alice/key.pub"
        tokens_file = "tokens"
        """
    )
    node = ServedEngine(load_node_config(tmp_path / "node.toml"))
    try:
        token, node_key = str(tmp_path / "tokens"), str(tmp_path / "node" / "key.pub")
        to_node = ("--server", node.address, "--token-file", token, "--node-key", node_key, "--key")
        assert ran("query", *to_node, str(tmp_path / "alice" / "key.secret"), "ASK {}") == (0, "true\n", "")
        for keys in (None, (tmp_path / "mallory" / "key.secret", node_key)):
            with pytest.raises(wukongs.NodeUnavailable):
                wukongs.connect(node.address, keys=keys, token="a-token,-a-long-one", silence_s=0.5)
        with pytest.raises(wukongs.WukongsError, match="expected a token that this node knows"):
            wukongs.connect(node.address, keys=(tmp_path / "alice" / "key.secret", node_key))
        (tmp_path / "data.jsonl").write_text('{"id": 1, "t": 50, "v": 2}\n')
        (tmp_path / "run.toml").write_text(RUN)
        run = (
            "run",
            str(tmp_path / "run.toml"),
            "--local",
            "--plain",
            *to_node,
            str(tmp_path / "alice" / "key.secret"),
        )
        status, out, err = ran(*run)
        assert (status, "1 tuples in" in out) == (0, True), err
        for grant, refusal in (
            ("admin http://ex/s", "run.toml: a run counts the whole stored graph"),
            ("write", "register needs the role admin"),
            ("read", "register needs the role admin"),
        ):
            (tmp_path / "tokens").write_text(f"{TOKEN} {grant}\n")
            node.reload_trust()
            status, _, err = ran(*run)
            assert (status, refusal in err) == (1, True), err
            assert (node.engine.streams(), node.engine.queries()) == (["http://ex/s"], [])  # as before
    finally:
        node.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("query", "--data", "x", "--server", "tcp://h:1", "ASK {}"), "--data is for work in this process"),
        (("query", "--rows-max", "5", "--server", "tcp://h:1", "ASK {}"), "--rows-max is for work in this process"),
        (("query", "--token-file", "x", "ASK {}"), "--token-file says how to talk to a node: give it together with"),
        (("stats", "--server", "tcp://127.0.0.1:1", "--key", "x"), "--key and --node-key go together"),
        (("update", "CLEAR ALL"), "no --data-dir and no --server: say what to update"),
        (("update", "--data-dir", "db", "--server", "tcp://h:1", "CLEAR ALL"), "--data-dir is for work in this proce"),
        (("load", "a.nt"), "no --data-dir and no --server: say where to load the files to"),
        (("load", "--again", "--server", "tcp://h:1", "a.nt"), "--again is for work in this process"),
        (("watch", "--server", "tcp://h:1"), "name the queries to watch, or give --all"),
        (("watch", "--server", "tcp://h:1", "--all", "q"), "--all leaves nothing to name"),
        (("watch", "--server", "tcp://h:1", "--all", "--format", "csv"), "--format csv: one query can be watched so"),
        (("watch", "--server", "tcp://h:1", "q", "--windows", "0"), "expected an integer from 1 on, found '0'"),
        (("stats",), "the following arguments are required: --server"),
        (("stats", "--server", "nowhere"), "address = 'nowhere': expected the form tcp://127.0.0.1:7411"),
    ],
)
def test_wrong_usage(ran: Ran, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = ran(*arguments)
    assert (status, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_a_node_that_is_not_there(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.remote.client.connect.__kwdefaults__", {"silence_s": 0.2})
    status, out, err = ran("stats", "--server", "tcp://127.0.0.1:9")
    assert (status, out) == (1, "")
    assert err.startswith("wukongs: no node answers: tcp://127.0.0.1:9: ")

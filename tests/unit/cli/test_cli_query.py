"""`wukongs query`: its arguments, what it refuses, what it answers."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.conftest import Ran
from wukongs import cli
from wukongs.cli import query

SELECT = "PREFIX ex: <http://ex/> SELECT ?a ?b WHERE { ?a ex:knows ?b } ORDER BY ?a"

# --- which argument is the query --------------------------------------------------------------------------------------


def sorted_out(*arguments: str) -> tuple[str, list[str], list[str]]:
    parser = query.make_parser()
    return query.sort_out(parser.parse_intermixed_args(list(arguments)), parser)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "a", "b", "ASK {}"],
        ["--data", "a", "--data", "b", "ASK {}"],
        ["ASK {}", "--data", "a", "b"],
        ["ASK {}", "--data", "a", "--data", "b"],
        ["--data", "a", "b", "ASK {}", "--format", "json"],
        ["--data", "a", "b", "--format", "json", "ASK {}"],
        ["--format", "json", "--data=a", "--data=b", "ASK {}"],
        ["--format", "json", "ASK {}", "--explain", "--data", "a", "b"],
        ["--data", "a", "b", "--", "ASK {}"],
        ["--data", "a", "b", "ASK {}", "--explain"],
        ["--explain", "--timeout", "3", "--data", "a", "b", "ASK {}", "--base", "http://ex/"],
    ],
)
def test_the_query_is_the_last_bare_argument(arguments: Sequence[str]) -> None:
    assert sorted_out(*arguments) == ("ASK {}", ["a", "b"], [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "a", "--named", "http://g=g.nt", "ASK {}"],
        ["--data", "a", "ASK {}", "--named", "http://g=g.nt"],
        ["--named", "http://g=g.nt", "--data", "a", "ASK {}"],
        ["ASK {}", "--named", "http://g=g.nt", "--data", "a"],
    ],
)
def test_named_graphs_stand_anywhere_too(arguments: Sequence[str]) -> None:
    assert sorted_out(*arguments) == ("ASK {}", ["a"], ["http://g=g.nt"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "DATA"], "no query: give it as the last argument, or @FILE"),
        (
            ["--data", "x.ttl", "DATA"],
            "no query: the last argument, 'DATA', is a file; give the query last, or as @FILE",
        ),
        (["a.ttl", "ASK {}"], "one query is expected, found also 'a.ttl'; put --data before each list of files"),
        (["--format", "yaml", "ASK {}"], "argument --format: invalid choice: 'yaml' (choose from "),
        (["--timeout", "-1", "ASK {}"], "argument --timeout: expected a positive number of seconds, found '-1'"),
        (["--timeout", "soon", "ASK {}"], "argument --timeout: expected a positive number of seconds, found 'soon'"),
        (["--named", "g.ttl", "--", "ASK {}"], "expected IRI=FILE such as http://ex/g=g.ttl, found 'g.ttl'"),
        (["--named", "g=g.ttl", "--", "ASK {}"], "expected IRI=FILE such as http://ex/g=g.ttl, found 'g=g.ttl'"),
        (
            ["--named", "http://ex/g=", "--", "ASK {}"],
            "expected IRI=FILE such as http://ex/g=g.ttl, found 'http://ex/g='",
        ),
        (["--server", "tcp://x:1", "--data", "DATA", "--", "ASK {}"], "--data is for work in this process"),
        (["--nonsense", "ASK {}"], "unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_usage_of_query(ran: Ran, data: str, arguments: Sequence[str], message: str) -> None:
    status, out, err = ran("query", *(argument.replace("DATA", data) for argument in arguments))
    assert (status, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("wukongs query: error: ")
    assert message.replace("DATA", data) in last


# --- what is refused before anything is loaded ------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--data", "--named"])
@pytest.mark.parametrize("kind", ["absent", "folder", "unreadable"])
def test_a_file_that_cannot_be_opened(
    ran: Ran, tmp_path: Path, option: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.ttl"
    if kind == "folder":
        file.mkdir()
    elif kind == "unreadable":
        file.touch()
        # The tests may run as root, who may read everything.
        monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(file))
    reasons = {
        "absent": "no such file; give the path of an RDF file",
        "folder": "is a directory, not a file; name the files in it",
        "unreadable": "cannot be read; check its permissions",
    }
    value = str(file) if option == "--data" else f"http://ex/g={file}"
    assert ran("query", option, value, "ASK {}") == (1, "", f"wukongs: {file}: {reasons[kind]}\n")


def test_limits_of_the_command_line(ran: Ran, data: str) -> None:
    product = "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
    status, out, err = ran("query", "--data", data, "--rows-max", "2", product)
    assert (status, out) == (1, "")
    assert "rows or more, the limit is rows_max = 2. " in err
    doubled = " ".join(f"BIND(CONCAT(?x{i}, ?x{i}) AS ?x{i + 1})" for i in range(30))
    status, out, err = ran("query", "--data", data, "--memory-max", "2000000", f"ASK {{ BIND('ab' AS ?x0) {doubled} }}")
    assert (status, out) == (1, "")
    assert "more than query_bytes_max = 2000000: " in err
    status, _, err = ran("query", "--data", data, "--rows-max", "0", "ASK {}")
    assert (status, err) == (2, "wukongs: rows_max = 0: expected an integer from 1 to 1099511627776, in rows\n")


def test_a_query_file_that_is_not_there(ran: Ran, data: str) -> None:
    expected = "wukongs: nowhere.rq: no such file; give the path of a query file\n"
    assert ran("query", "--data", data, "@nowhere.rq") == (1, "", expected)


def test_a_query_file_that_is_not_utf8(ran: Ran, data: str, tmp_path: Path) -> None:
    file = tmp_path / "q.rq"
    file.write_bytes(b"# caf\nASK { ?s ?p 'caf\xe9' }")
    expected = f"wukongs: {file}, line 2, column 17: expected a query in UTF-8, found the byte 0xE9; convert the file\n"
    assert ran("query", "--data", data, f"@{file}") == (1, "", expected)


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbfASK { }", b"ASK\r\n{ }\r\n# c\r\n", b"ASK { FILTER('\0' = '\\u0000') }"]
)
def test_marks_line_ends_and_nul_in_a_query_file(ran: Ran, data: str, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "q.rq"
    file.write_bytes(content)
    assert ran("query", "--data", data, f"@{file}") == (0, "true\n", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ASK\r\n{ ?s ?p }\r\n", "line 2, column 9: expected an object"),
        (b"ASK\r{ ?s ?p }\r", "line 2, column 9: expected an object"),
        (b"ASK \0 {}", "line 1, column 5: expected a term, a keyword or punctuation, found the character U+0000"),
        (b"# only a comment\n", "line 2, column 1: expected SELECT, ASK"),
        (b"", "line 1, column 1: expected SELECT, ASK"),
        (b"ASK {}\nASK {}\n", "line 2, column 1: expected the end of the query, found 'ASK'"),
    ],
)
def test_a_query_file_that_will_not_do(ran: Ran, data: str, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "q.rq"
    file.write_bytes(content)
    status, out, err = ran("query", "--data", data, f"@{file}")
    assert (status, out) == (1, "")
    assert err.startswith(f"wukongs: {file}, {message}")


def test_no_name_at_all_is_shown(ran: Ran) -> None:
    assert ran("query", "--data", "", "ASK {}") == (1, "", "wukongs: '': no such file; give the path of an RDF file\n")


def test_a_folder_that_holds_no_data_stays_as_it_is(ran: Ran, tmp_path: Path) -> None:
    expected = f"wukongs: {tmp_path}: no data folder, though a folder: `wukongs load --data-dir` makes one\n"
    assert ran("query", "--data-dir", str(tmp_path), "ASK {}") == (1, "", expected)
    assert list(tmp_path.iterdir()) == []


def test_a_syntax_error_names_the_file_and_the_place(ran: Ran, data: str, tmp_path: Path) -> None:
    file = tmp_path / "q.rq"
    file.write_text("SELECT ?s\nWHERE ?s }")
    status, out, err = ran("query", "--data", data, f"@{file}")
    assert (status, out) == (1, "")
    assert err.startswith(f"wukongs: {file}, line 2, column 7: expected ")
    assert err.splitlines()[1:] == ["2 | WHERE ?s }", "  |       ^^"]


def test_a_feature_that_is_not_supported_is_named(ran: Ran, data: str) -> None:
    status, out, err = ran("query", "--data", data, "SELECT ?s WHERE { ?s ?p ?o } AGGREGATE { (?n, COUNT, {?s}) }")
    assert (status, out) == (1, "")
    assert err.startswith("wukongs: query, line 1, column 30: the AGGREGATE clause")
    assert "is not supported yet" in err
    assert err.splitlines()[2] == "  | " + " " * 29 + "^" * 9


def test_a_continuous_query_is_sent_elsewhere(ran: Ran, data: str) -> None:
    question = "REGISTER QUERY q AS SELECT * FROM STREAM <http://s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }"
    status, out, err = ran("query", "--data", data, question)
    assert (status, out) == (1, "")
    assert err == (
        "wukongs: query: a query with REGISTER or FROM STREAM is continuous: name it under [[query]] in a file for "
        "`wukongs run`; `wukongs query` answers once\n"
    )


def test_a_format_that_does_not_go_with_the_query_is_wrong_usage(ran: Ran, data: str) -> None:
    status, out, err = ran("query", "--data", data, "--format", "ttl", "ASK {}")
    assert (status, out) == (2, "")
    assert err == (
        "wukongs: format = 'ttl': expected one of table, json, xml, csv, tsv, arrow for the result of an ask query\n"
    )


def test_a_wrong_environment_variable_is_wrong_usage(ran: Ran, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WUKONGS_ROWS_MAX", "many")
    status, out, err = ran("query", "--data", data, "ASK {}")
    assert (status, out) == (2, "")
    assert err == (
        "wukongs: rows_max = 'many' (from WUKONGS_ROWS_MAX): expected an integer from 1 to 1099511627776, in rows\n"
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_table(ran: Ran, data: str) -> None:
    assert ran("query", "--data", data, SELECT) == (0, "?a    ?b\n────  ────\nex:a  ex:b\nex:b  ex:c\n", "")


def test_no_data_is_said(ran: Ran) -> None:
    assert ran("query", "ASK {}") == (0, "true\n", "no --data, no --named and no --data-dir: the graph is empty\n")


def test_garbage_collection_is_as_it_was(ran: Ran, data: str) -> None:
    assert gc.isenabled()
    ran("query", "--data", data, "ASK {}")
    assert gc.isenabled()


def test_several_files_and_a_query_file(ran: Ran, data: str, more: str, tmp_path: Path) -> None:
    file = tmp_path / "q.rq"
    file.write_bytes(b"\xef\xbb\xbf" + SELECT.encode())
    status, out, err = ran("query", "--data", data, more, f"@{file}", "--format", "csv")
    assert (status, err) == (0, "")
    assert out == "a,b\r\nhttp://ex/a,http://ex/b\r\nhttp://ex/b,http://ex/c\r\nhttp://ex/c,http://ex/d\r\n"


def test_lexical_forms_come_out_as_they_went_in(ran: Ran, data: str) -> None:
    question = "SELECT ?age WHERE { ?s <http://ex/age> ?age }"
    expected = '?age\n"041"^^<http://www.w3.org/2001/XMLSchema#integer>\n'
    assert ran("query", "--data", data, "--format", "tsv", question) == (0, expected, "")


def test_named_graphs(ran: Ran, data: str, more: str, tmp_path: Path) -> None:
    odd = tmp_path / "a=b.nt"
    odd.write_text("<http://ex/x> <http://ex/y> <http://ex/z> .\n")
    question = "SELECT ?g ?s WHERE { GRAPH ?g { ?s ?p ?o } } ORDER BY ?g"
    named = [f"http://ex/g?q=1={more}", f"<http://ex/h>={odd}"]
    status, out, err = ran("query", "--data", data, "--named", *named, "--format", "tsv", question)
    assert (status, err) == (0, "")
    assert out == "?g\t?s\n<http://ex/g?q=1>\t<http://ex/c>\n<http://ex/h>\t<http://ex/x>\n"


def test_ask_and_construct(ran: Ran, data: str) -> None:
    assert ran("query", "--data", data, "ASK { <http://ex/a> ?p ?o }") == (0, "true\n", "")
    question = "CONSTRUCT { ?b <http://ex/known> ?a } WHERE { ?a <http://ex/knows> ?b }"
    status, out, err = ran("query", question, "--data", data, "--format", "nt")
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == [
        "<http://ex/b> <http://ex/known> <http://ex/a> .",
        "<http://ex/c> <http://ex/known> <http://ex/b> .",
    ]


def test_base_resolves_the_iris_of_the_query(ran: Ran, data: str) -> None:
    question = "ASK { <a> <knows> <b> }"
    assert ran("query", "--data", data, "--base", "http://ex/", question) == (0, "true\n", "")
    assert ran("query", "--data", data, "--base", "http://other/", question)[:2] == (0, "false\n")


def test_explain_prints_the_plan_and_no_answer(ran: Ran, data: str) -> None:
    status, out, err = ran("query", "--data", data, "--explain", SELECT)
    assert (status, err) == (0, "")
    assert "http://ex/knows" in out
    assert "http://ex/c" not in out


def test_analyze_adds_what_the_plan_did(ran: Ran, data: str) -> None:
    question = "SELECT ?a ?c WHERE { ?a <http://ex/knows> ?b . ?b <http://ex/knows> ?c }"
    status, out, err = ran("query", "--data", data, "--explain", "--analyze", question)
    assert (status, err) == (0, "")
    assert re.search(r"Project \?a \?c  \[\d+ rows, [\d.]+ ms\]", out)
    assert len(re.findall(r"~[\d.]+ rows +\d+ rows$", out, re.MULTILINE)) == 2
    status, _, err = ran("query", "--data", data, "--analyze", question)
    assert status == 2
    assert "--explain" in err


def test_a_table_is_cut_to_the_terminal_and_nowhere_else(ran: Ran, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "SELECT ?a ?b WHERE { ?a <http://ex/knows> ?b } ORDER BY ?a LIMIT 1"
    monkeypatch.setenv("COLUMNS", "22")
    assert ran("query", "--data", data, question)[1].splitlines()[2] == "<http://ex/a>  <http://ex/b>"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert ran("query", "--data", data, question)[1].splitlines()[2] == "<http://e…  <http://e…"


def test_arrow_goes_into_a_pipe_and_not_onto_a_terminal(
    data: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow

    command = ["query", "--data", data, "--format", "arrow", "SELECT ?b WHERE { <http://ex/a> <http://ex/knows> ?b }"]
    assert cli.main(command) == 0
    answer = pyarrow.ipc.open_stream(capfdbinary.readouterr().out).read_all()
    assert answer.to_pydict() == {"b": ["<http://ex/b>"]}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(command) == 2
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert err.endswith(b"wukongs: format = 'arrow' is binary: expected a file or pipe; add > answer.arrow\n")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("bad.nt", b"<http://ex/a> <http://ex/p> <http://ex/b> .\nnonsense\n", "line 2"),
        ("bad.ttl", b"@prefix ex: <http://ex/> .\nex:a ex:p ;;; nonsense", "line 2"),
        ("latin.nt", b'<http://ex/a> <http://ex/p> "caf\xe9" .\n', "line 1"),
    ],
)
def test_data_that_cannot_be_read(ran: Ran, tmp_path: Path, name: str, content: bytes, line: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    status, out, err = ran("query", "--data", str(file), "ASK {}")
    assert (status, out) == (1, "")
    assert err.startswith("wukongs: ")
    assert str(file) in err
    assert line in err
    assert err.count("\n") == 1


def test_the_first_run_says_that_it_compiles(
    data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.store.jit.are_kernels_compiled", lambda: False)
    assert cli.main(["query", "--data", data, "ASK {}"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (
        "true\n",
        "compiling kernels behind this, once (about two minutes): until then all takes longer\n",
    )


def test_a_variable_that_nothing_binds_is_told_on_standard_error(ran: Ran, tmp_path: Path) -> None:
    file = tmp_path / "a.nt"
    file.write_text("<http://ex/a> <http://ex/p> <http://ex/b> .\n")
    status, out, err = ran("query", "--data", str(file), "--format", "csv", "SELECT ?nme { ?x ?p ?name }")
    assert (status, out) == (0, "nme\r\n\r\n")
    assert err == "warning: ?nme is selected, but nothing binds it: did you mean ?name?\n"


def test_names_that_nothing_has_are_told(ran: Ran, data: str) -> None:
    """On standard error: the answer is what it is."""
    status, out, err = ran("query", "--data", data, "--format", "csv", "SELECT ?a { ?a <http://ex/knws> ?b }")
    assert (status, out) == (0, "a\r\n")
    told = "nothing has predicate <http://ex/knws> so far, neither the stored graph nor a stream"
    assert err == f"warning: {told}: did you mean <http://ex/knows>?\n"
    question = "SELECT ?a FROM <http://ex/g> { ?a <http://ex/knows> ?b }"
    status, out, err = ran("query", "--named", f"http://ex/G={data}", "--format", "csv", question)
    assert (status, out, err) == (
        0,
        "a\r\n",
        "warning: there is no graph <http://ex/g> so far: did you mean <http://ex/G>?\n",
    )

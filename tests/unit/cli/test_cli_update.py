"""`wukongs update`: what it applies, says and refuses."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import wukongs
from tests.unit.conftest import Ran

INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> 1, 2 }"
ROWS = "SELECT ?o WHERE { ?s ?p ?o } ORDER BY ?o"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "db")


def asked(ran: Ran, folder: str, query: str = ROWS) -> list[str]:
    status, out, err = ran("query", "--data-dir", folder, "--format", "csv", query)
    assert status == 0, err
    return out.splitlines()[1:]


def test_an_update_is_applied_and_counted(ran: Ran, folder: str) -> None:
    assert ran("update", "--data-dir", folder, INSERT) == (
        0,
        "",
        "operations: 1, triples deleted: 0, inserted: 2; snapshot 1\n",
    )
    assert asked(ran, folder) == ["1", "2"]
    text = "DELETE { ?s ?p 1 } INSERT { ?s ?p 3 } WHERE { ?s ?p 1 } ; CLEAR NAMED"
    assert ran("update", text, "--data-dir", folder)[2] == (
        "operations: 2, triples deleted: 1, inserted: 1; snapshot 2\n"
    )
    assert asked(ran, folder) == ["2", "3"]
    assert ran("update", "--data-dir", folder, "--quiet", "CLEAR ALL") == (0, "", "")
    assert asked(ran, folder) == []


def test_files_loaded_before_and_after(ran: Ran, folder: str, data: str, more: str) -> None:
    assert ran("load", "--data-dir", folder, data)[0] == 0
    assert ran("update", "--data-dir", folder, "DELETE WHERE { ?s <http://ex/age> ?o }")[0] == 0
    assert ran("load", "--data-dir", folder, more)[0] == 0
    assert asked(ran, folder) == ["http://ex/b", "http://ex/c", "http://ex/d"]


def test_from_a_file_and_from_standard_input(
    ran: Ran, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.ru").write_text("INSERT DATA { <a> <p> 1 }")
    assert ran("update", "--data-dir", folder, "--base", "http://b/", f"@{tmp_path / 'a.ru'}")[0] == 0
    assert asked(ran, folder, "SELECT ?s WHERE { ?s ?p ?o }") == ["http://b/a"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(INSERT.encode())))
    assert ran("update", "--data-dir", folder, "-")[0] == 0
    assert asked(ran, folder) == ["1", "1", "2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT DATA { ?x <p> 1 }", "update, line 1, column 15: expected terms only in DATA"),
        ("SELECT * { ?s ?p ?o }", "update, line 1, column 1: expected an update (INSERT"),
        ("DROP GRAPH <http://ex/none>", "cannot DROP graph <http://ex/none>: there is no such graph"),
        ("LOAD <nowhere.ttl>", "nowhere.ttl: cannot read the file: No such file or directory"),
    ],
)
def test_what_is_refused_is_said(ran: Ran, folder: str, text: str, message: str) -> None:
    assert ran("update", "--data-dir", folder, "--quiet", INSERT)[0] == 0
    status, out, err = ran("update", "--data-dir", folder, text)
    assert (status, out) == (1, "")
    assert err.startswith(f"wukongs: {message}")
    assert asked(ran, folder) == ["1", "2"]


def test_a_wrong_file_is_named(ran: Ran, folder: str, tmp_path: Path) -> None:
    (tmp_path / "a.ru").write_text("CLEAR\nNOTHING")
    status, _, err = ran("update", "--data-dir", folder, f"@{tmp_path / 'a.ru'}")
    place = f"{tmp_path / 'a.ru'}, line 2, column 1"
    expected = f"wukongs: {place}: expected GRAPH and an IRI, DEFAULT, NAMED or ALL after CLEAR, found 'NOTHING'"
    assert (status, err.startswith(expected)) == (1, True)
    assert not Path(folder).exists()
    assert "give the path of an update file" in ran("update", "--data-dir", folder, "@nowhere.ru")[2]


def test_wrong_usage(ran: Ran, folder: str, data: str) -> None:
    assert ran("update", INSERT)[0] == 2
    assert ran("update", "--data-dir", folder)[0] == 2
    status, _, err = ran("update", "--data-dir", folder, data)
    assert (status, f"is a file; give it as @{data}" in err) == (2, True)


def test_a_folder_in_use_is_refused(ran: Ran, folder: str) -> None:
    with wukongs.Engine(folder):
        status, _, err = ran("update", "--data-dir", folder, INSERT)
    assert (status, "in use by" in err) == (1, True)


def test_help_names_it(ran: Ran) -> None:
    assert "update     apply one SPARQL Update request" in ran("--help")[1]
    assert "wukongs update --data-dir db @tidy.ru" in ran("update", "--help")[1]

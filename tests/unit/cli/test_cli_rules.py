"""`wukongs rules`: what check prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from wukongs.cli import DONE, REFUSED, WRONG_USAGE, main

FAMILY = """PREFIX : <http://e/>
RULE start: CONSTRUCT { ?x :ancestor ?y } WHERE { ?x :parent ?y }
RULE go-on: CONSTRUCT { ?x :ancestor ?z . ?z :below ?x } WHERE { ?x :ancestor ?y . ?y :parent ?z }
RULE root: CONSTRUCT { ?x a :Root } WHERE { ?y :ancestor ?x FILTER NOT EXISTS { ?x :parent ?z } }
"""


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "family.rules").write_text(FAMILY)
    return "family.rules"


def test_check_prints_the_strata(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", family]) == DONE
    printed = capsys.readouterr()
    assert printed.out == "1: start\n2 (recursive): go-on\n3: go-on\n4: root\n"
    assert printed.err == ""


def test_check_reads_files_and_shipped_sets_together(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("more.rules").write_text("RULE more: CONSTRUCT { ?x <h> ?y } WHERE { ?x <http://e/ancestor> ?y }")
    assert main(["rules", "check", family, "more.rules"]) == DONE
    assert capsys.readouterr().out.splitlines()[0] == "1: start"
    assert main(["rules", "check", "rdfs", "more.rules"]) == DONE
    assert capsys.readouterr().out == "1 (recursive): rdfs2, rdfs3, rdfs5, rdfs7, rdfs9, rdfs11, more\n"
    assert main(["rules", "check", family, "rdfs"]) == REFUSED
    assert "rdfs7 feeds root by NOT EXISTS { ?x <http://e/parent> ?z }" in capsys.readouterr().err


def test_check_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.rules").write_text("RULE a: CONSTRUCT { ?x <p> ?y } WHERE { ?x <p> ?y }")
    assert main(["rules", "check", str(tmp_path / "a.rules")]) == DONE
    printed = capsys.readouterr()
    assert printed.out == "1 (recursive): a\n"
    assert printed.err == "warning: rule a concludes nothing new: ?x <p> ?y is one of its patterns\n"


def test_a_refused_rule_is_shown_underlined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.rules").write_text("\nRULE a: CONSTRUCT { ?x <p> ?y } WHERE { GRAPH ?g { ?x <q> ?y } }")
    assert main(["rules", "check", str(tmp_path / "a.rules")]) == REFUSED
    first, shown, marks = capsys.readouterr().err.splitlines()
    assert first.startswith(f"wukongs: {tmp_path / 'a.rules'}, line 2, column 47: expected the IRI of a graph")
    assert shown.index("?g") == marks.index("^^")


def test_a_rule_that_is_not_added_is_shown_in_its_file(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("more.rules").write_text("# more\n\nRULE more: CONSTRUCT { ?x <h> ?z } WHERE { ?x <p> ?y }")
    assert main(["rules", "add", "--data-dir", "db", family, "more.rules"]) == REFUSED
    assert "more.rules, line 3, column 31: expected variables in the template" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], WRONG_USAGE, "the following arguments are required: ACTION"),
        (["chek"], WRONG_USAGE, "invalid choice: 'chek'"),
        (["check"], WRONG_USAGE, "the following arguments are required: FILE"),
        (["check", "--strict", "x"], WRONG_USAGE, "unrecognized arguments: --strict"),
        (["check", "nowhere.rules"], REFUSED, "nowhere.rules: expected a rule file, found no such file"),
        (["check", "rdf"], REFUSED, "did you mean 'rdfs'?"),
    ],
)
def test_wrong_arguments(arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", *arguments]) == status
    assert message in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--help"]) == DONE
    assert "wukongs rules check" in capsys.readouterr().out


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["rules", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_rules_of_a_data_folder(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", "--data-dir", "db", "INSERT DATA { <a:a> <http://e/parent> <a:b> }"]) == DONE
    capsys.readouterr()
    assert run(capsys, "add", "--data-dir", "db", family) == (DONE, "", "3 rules: start, go-on, root\n")
    assert run(capsys, "list", "--data-dir", "db")[1] == "start\ngo-on\nroot\n"
    status, printed, _ = run(capsys, "list", "--text", "--data-dir", "db")
    Path("again.rules").write_text(printed)
    assert run(capsys, "check", "again.rules")[:2] == run(capsys, "check", family)[:2]
    asked = ("why", "--data-dir", "db", "<a:a>", "<http://e/ancestor>", "<a:b>")
    tree = "<a:a> <http://e/ancestor> <a:b>   by rule start\n  <a:a> <http://e/parent> <a:b>   explicit\n"
    assert run(capsys, *asked)[:2] == (DONE, tree)
    assert main(["query", "--data-dir", "db", "--format", "csv", "SELECT ?y { <a:a> <http://e/ancestor> ?y }"]) == DONE
    assert capsys.readouterr().out == "y\r\na:b\r\n"
    status, _, said = run(capsys, "drop", "--data-dir", "db", "start", "rot")
    assert (status, "did you mean root?" in said) == (REFUSED, True)
    assert run(capsys, "drop", "--data-dir", "db", "start", "root")[0] == DONE
    assert run(capsys, "list", "--data-dir", "db")[1] == "go-on\n"
    status, printed, said = run(capsys, *asked)
    assert (status, printed, said) == (REFUSED, "", "there is no such triple\n")


def test_loads_count_what_files_say_and_not_what_follows(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "add", "--data-dir", "db", family)[0] == DONE
    Path("family.nt").write_text("<a:a> <http://e/parent> <a:b> .\n<a:b> <http://e/parent> <a:c> .\n")
    for again, counts in (([], "2 new, 0 duplicates; 2 in all"), (["--again"], "0 new, 2 duplicates; 2 in all")):
        assert main(["load", "--data-dir", "db", *again, "family.nt"]) == DONE
        assert f"triples: 2 read, {counts}\n" in capsys.readouterr().out


@pytest.mark.parametrize("action", [("list",), ("drop", "a"), ("resume", "a"), ("why", "<a:a>", "<a:b>", "<a:c>")])
def test_only_to_add_rules_makes_a_folder(family: str, action: tuple[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = run(capsys, *action, "--data-dir", "nowhere")
    assert (status, "nowhere: no such data folder" in said) == (REFUSED, True)
    assert not Path("nowhere").exists()


def test_a_query_of_files_by_rules(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("family.nt").write_text("<a:a> <http://e/parent> <a:b> .\n")
    asked = ["query", "--data", "family.nt", "--rules", family, "--format", "csv", "SELECT ?x { ?x a <http://e/Root> }"]
    assert main(asked) == DONE
    assert capsys.readouterr().out == "x\r\na:b\r\n"


def test_rules_need_somebody_to_follow_them(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "add", family]) == WRONG_USAGE
    assert "no --data-dir and no --server: say whose rules" in capsys.readouterr().err

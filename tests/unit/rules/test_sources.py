"""Where rules come from, and what is said if nothing is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from wukongs.errors import RuleError
from wukongs.rules.sources import SHIPPED, read_all, read_rules

TEXT = "RULE a: CONSTRUCT { ?x <http://e/q> ?y } WHERE { ?x <http://e/p> ?y }"


def names(source: str | Path) -> list[str]:
    return [rule.name for rule in read_rules(source)]


def test_a_source_is_a_name_a_text_or_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.rules", "plain"):
        (tmp_path / name).write_text(TEXT)
        assert names(name) == names(Path(name)) == names(str(tmp_path / name)) == ["a"]
    assert names(TEXT) == ["a"]
    assert names("rdfs") == ["rdfs2", "rdfs3", "rdfs5", "rdfs7", "rdfs9", "rdfs11"]
    assert "prp-trp" in names("owl-rl")
    assert [rule.source for rule in (*read_rules("a.rules"), *read_rules(TEXT))] == ["a.rules", "rules"]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert names(tmp_path / "a.rules") == ["a"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_sets_explain_what_they_leave_out(name: str) -> None:
    [rule, *_] = read_rules(name)
    assert "# Left out" in rule.file_text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("rdf", r"expected the name of a set of rules \(owl-rl, rdfs\), a text .* found 'rdf'; did you mean 'rdfs'\?"),
        ("OWL-RL", r"did you mean 'owl-rl'\?"),
        ("zzz", r"found 'zzz'$"),
        ("", r"found ''$"),
        ("none.rules", r"^none.rules: expected a rule file, found no such file"),
        ("some/none", r"^some/none: expected a rule file, found no such file"),
        ("a\0b.rules", r"expected a rule file that can be read, found"),
        (".", r"^\.: expected a rule file that can be read, found Is a directory"),
        (3, "found int"),
        (None, "found NoneType"),
    ],
)
def test_a_source_that_is_none_is_named(source: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        read_rules(source)


def test_a_file_in_another_encoding_is_told_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_bytes("# é\n# caf\xe9".encode("latin-1").replace(b"\xe9\n", "é\n".encode()))
    with pytest.raises(RuleError, match="line 2, column 6: expected a text in UTF-8, found the byte 0xE9"):
        read_rules(tmp_path / "a.rules")


def test_a_file_without_rules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text("# later\n")
    with pytest.raises(RuleError, match=r"a\.rules: expected RULE name: .*, found no rule"):
        read_rules(tmp_path / "a.rules")


def test_names_are_unique_over_all_sources(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text("# mine\n" + TEXT)
    assert [rule.name for rule in read_all([TEXT, "rdfs"])][:2] == ["a", "rdfs2"]
    with pytest.raises(RuleError, match=r"a\.rules, line 2, column 6: .* no other rule has, found 'a', as in rules"):
        read_all([TEXT, tmp_path / "a.rules"])

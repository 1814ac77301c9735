"""Terms that were agreed on are not asked for again, as long as the same nodes are members."""

from __future__ import annotations

from unittest.mock import patch

from wukongs.cluster import agreed_terms
from wukongs.cluster.agreed_terms import AgreedTerms
from wukongs.store.encoded import TermTable
from wukongs.store.encoder import encode_texts


def table(*names: str, hash_bits: int = 52) -> TermTable:
    return encode_texts([f"<urn:{name}>" for name in names], hash_bits).terms


def names(found: TermTable) -> list[str]:
    return sorted(text[5:-1] for text in found.texts())


def test_what_was_agreed_on_is_known_under_this_view_only() -> None:
    agreed = AgreedTerms()
    assert names(agreed.unknown(table("a", "b"), 3)) == ["a", "b"]
    agreed.add(table("a", "b"), 3)
    assert names(agreed.unknown(table("a", "b", "c"), 3)) == ["c"]
    assert names(agreed.unknown(table("a", "c"), 4)) == ["a", "c"]
    agreed.add(table("c"), 4)
    assert names(agreed.unknown(table("a", "c"), 4)) == ["a"]
    assert names(agreed.unknown(table("a"), 3)) == ["a"]


def test_another_text_under_the_same_hash_is_not_known() -> None:
    agreed, one, other = AgreedTerms(), table("a"), table("b")
    agreed.add(one, 1)
    clashing = TermTable(one.ids, other.offsets, other.text)
    assert names(agreed.unknown(clashing, 1)) == ["b"]
    agreed.add(clashing, 1)
    assert names(agreed.unknown(one, 1)) == []


def test_large_tables_are_not_remembered() -> None:
    agreed = AgreedTerms()
    with patch.object(agreed_terms, "TABLE_MAX", 2):
        agreed.add(table("a", "b", "c"), 1)
        agreed.add(table("d"), 1)
        assert names(agreed.unknown(table("a", "d"), 1)) == ["a"]
        assert names(agreed.unknown(table("a", "b", "d"), 1)) == ["a", "b", "d"]


def test_it_is_bounded() -> None:
    agreed = AgreedTerms()
    with patch.object(agreed_terms, "TERMS_MAX", 2):
        agreed.add(table("a", "b", "c"), 1)
        agreed.add(table("d"), 1)
        assert names(agreed.unknown(table("a", "b", "c", "d"), 1)) == ["a", "b", "c"]

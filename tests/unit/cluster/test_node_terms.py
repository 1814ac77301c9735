"""The terms of a node: re-encoding by records, claims for ever, texts that come from other nodes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.wire.pieces import make_piece, many
from wukongs.cluster.node_terms import NodeRegistry, TermClaims, exception_id
from wukongs.errors import DataError
from wukongs.store.encoded import TermTable
from wukongs.store.encoder import encode_columns, encode_texts
from wukongs.store.term_ids import hash_id

BITS = 8
TEXTS = [f"<http://ex/t{number}>" for number in range(600)]


def _clashing() -> tuple[str, str, str]:
    """Three texts with one hash."""
    found: dict[int, list[str]] = {}
    for text in TEXTS:
        same = found.setdefault(hash_id(text.encode(), BITS), [])
        same.append(text)
        if len(same) == 3:
            return same[0], same[1], same[2]
    raise AssertionError("none clash")


def test_a_re_encoded_text_gets_one_id_everywhere_in_the_shard_of_its_hash() -> None:
    first, *others = _clashing()
    registries = [NodeRegistry(BITS) for _ in range(2)]
    registries[1].keep(first)  # what a node holds makes no difference
    for registry in registries:
        for text in others:
            registry.re_encode(text)
            registry.re_encode(text)
    ids = [[registry.keep(text) for text in (first, *others)] for registry in registries]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3
    assert ids[0][0] == hash_id(first.encode(), BITS)
    assert len({one >> 53 for one in ids[0]}) == 1
    assert all(one % 2 == 0 for one in ids[0])
    assert registries[0].texts(np.array(ids[0])) == [first, *others]


def test_ids_of_re_encoded_texts_avoid_each_other() -> None:
    text = TEXTS[0]
    first = exception_id(text, BITS, set())
    assert exception_id(text, BITS, {first}) not in (first, hash_id(text.encode(), BITS))


def test_tuples_take_the_ids_that_records_gave() -> None:
    first, second, _ = _clashing()
    registry = NodeRegistry(BITS)
    registry.re_encode(second)
    encoded = encode_columns([second, first], [first, first], [second, second], None, scope=b"", hash_bits=BITS)
    confirmed, _ = registry.confirm(encoded)
    hashed, other = hash_id(first.encode(), BITS), registry.exceptions[second]
    assert confirmed.subjects.tolist() == [other, hashed]
    assert confirmed.predicates.tolist() == [hashed, hashed]


def test_a_text_that_nobody_confirmed_is_our_own_mistake() -> None:
    first, second, _ = _clashing()
    registry = NodeRegistry(BITS)
    registry.keep(first)
    with pytest.raises(AssertionError, match="no record re-encoded it"):
        registry.keep(second)


def _new(registry: NodeRegistry, *texts: str) -> set[str]:
    return set(registry.new(encode_texts(texts, registry.hash_bits)).texts())


def test_new_is_what_is_neither_held_nor_re_encoded() -> None:
    first, second, third = _clashing()
    registry = NodeRegistry(BITS)
    assert _new(registry, first, second, third) == {first, second, third}
    registry.re_encode(second)
    assert _new(registry, first, second, third) == {first, third}
    registry.keep(first)
    assert _new(registry, second, first, third) == {third}
    assert _new(registry, '"5"^^<http://www.w3.org/2001/XMLSchema#int>') == set()


def test_a_term_that_only_lives_in_windows_is_known_as_long_as_it_lives() -> None:
    registry = NodeRegistry(62)
    piece = make_piece(many(4))
    _, taken = registry.confirm(piece.encoded, np.ones(4, np.bool_))
    assert not len(registry.new(piece.encoded))
    registry.release(taken)
    assert set(registry.new(piece.encoded).texts()) == set(piece.encoded.terms.texts())


def _agreed(claims: TermClaims, *texts: str) -> set[str]:
    """Show texts to a replica; return those that it agrees to."""
    ids = np.array([hash_id(text.encode(), BITS) for text in texts], np.int64)
    equal = claims.compare(TermTable.of(ids, [text.encode() for text in texts]))
    return {text for text, is_equal in zip(texts, equal.tolist(), strict=True) if is_equal}


def test_the_first_text_that_a_replica_sees_stays() -> None:
    first, second, third = _clashing()
    claims = TermClaims(NodeRegistry(BITS))
    assert _agreed(claims, second) == {second}
    assert _agreed(claims, first, second, third) == {second}
    assert _agreed(claims) == set()


def test_of_texts_that_clash_in_one_question_one_is_agreed_to() -> None:
    claims = TermClaims(NodeRegistry(BITS))
    agreed = _agreed(claims, *_clashing())
    assert len(agreed) == 1
    assert _agreed(claims, *_clashing()) == agreed


def test_claims_compare_whole_tables() -> None:
    registry = NodeRegistry(BITS)
    claims = TermClaims(registry)
    terms, clashes = encode_texts(TEXTS, BITS).terms, encode_texts(TEXTS, BITS).clashes
    agreed = claims.compare(terms)
    (taken,) = np.flatnonzero(~agreed).tolist()  # by the name of the default graph
    assert int(terms.ids[taken]) == hash_id(b"<urn:x-wukongs:default>", BITS)
    assert not claims.compare(clashes).any()
    np.testing.assert_array_equal(claims.compare(terms), agreed)
    assert len(claims) == len(terms)


def test_what_was_re_encoded_is_never_agreed_to_nor_is_its_id() -> None:
    first, second, _ = _clashing()
    registry = NodeRegistry(BITS)
    claims = TermClaims(registry)
    registry.re_encode(second)
    assert _agreed(claims, first, second) == {first}
    taken = np.array([registry.exceptions[second]])
    assert not claims.compare(TermTable.of(taken, [b"<http://ex/liar>"])).any()


def test_the_name_of_the_default_graph_is_agreed_to_from_the_beginning() -> None:
    claims = TermClaims(NodeRegistry(62))
    name = b"<urn:x-wukongs:default>"
    assert claims.compare(TermTable.of(np.array([hash_id(name)]), [name])).all()
    assert not claims.compare(TermTable.of(np.array([hash_id(name)]), [b"<http://ex/other>"])).any()


def test_borrowed_texts_are_held_until_they_are_released() -> None:
    here, there = NodeRegistry(62), NodeRegistry(62)
    lasting = here.keep("<http://ex/both>")
    ids = np.array(sorted([lasting, there.keep("<http://ex/there>")]))
    text, offsets = there.snapshot_reader().gather(ids[ids != lasting])
    table = TermTable(ids[ids != lasting], offsets, text)
    taken = here.borrow(table)
    assert taken.tolist() == table.ids.tolist()
    assert here.texts(table.ids) == ["<http://ex/there>"]
    assert here.borrow(TermTable.of(np.array([lasting]), [b"<http://ex/both>"])).tolist() == []
    here.release(taken)
    assert len(here.transient) == 0


def test_a_node_of_another_cluster_is_named() -> None:
    registry = NodeRegistry(62)
    lasting = registry.keep("<http://ex/a>")
    (passing,) = registry.borrow(TermTable.of(np.array([lasting + 2]), [b"<http://ex/b>"])).tolist()
    for wrong in (lasting, passing):
        table = TermTable.of(np.array([wrong, wrong + 100]), [b"<http://ex/liar>", b"<http://ex/more>"])
        with pytest.raises(DataError, match=r"is '<http://ex/liar>' on another node, and another text here"):
            registry.borrow(table)
        assert len(registry.transient) == 1

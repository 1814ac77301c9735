"""Sharding: every tuple to the owners of its subject and its object, with just the texts that it needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.wire.pieces import make_piece, many
from wukongs.errors import SettingsError
from wukongs.protocol.control import genesis
from wukongs.store.encoded import Encoded, TermCutter
from wukongs.store.encoder import encode_ntriples
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.sharding import SPLIT_PREDICATES, ShardMap, share_of, split, split_piece


def _texts(encoded: Encoded) -> dict[int, str]:
    return dict(zip(encoded.terms.ids.tolist(), encoded.terms.texts(), strict=True))


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
def test_each_tuple_goes_to_the_owners_of_its_ends_once(nodes: int) -> None:
    encoded = make_piece(many(500)).encoded
    found = split(encoded, ShardMap.even(nodes))
    assert [node for node, _ in found] == list(range(nodes))
    for row in range(len(encoded)):
        # Counted by hand: 1024 shards by the top ten of 63 bits, shard s on node s modulo nodes.
        ends = {int(encoded.subjects[row]), int(encoded.objects[row])}
        owners = {(identifier >> 53) % nodes for identifier in ends}
        assert {node for node, rows in found if row in rows} == owners
    for _, rows in found:
        assert np.all(np.diff(rows) > 0)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_the_shares_of_a_piece_keep_order_flags_and_the_texts_they_need(nodes: int) -> None:
    piece = make_piece(many(200))
    for node, share in split_piece(piece, ShardMap.even(nodes)):
        rows = dict(split(piece.encoded, ShardMap.even(nodes), piece.timing))[node]
        assert (share.piece, share.first_offset, share.end_offset) == (node, 0, 200)
        np.testing.assert_array_equal(share.encoded.subjects, piece.encoded.subjects[rows])
        np.testing.assert_array_equal(share.encoded.timestamps, piece.encoded.timestamps[rows])
        np.testing.assert_array_equal(share.timing, piece.timing[rows])
        np.testing.assert_array_equal(share.row_places(), rows)
        used = set(np.concatenate([share.encoded.subjects, share.encoded.predicates, share.encoded.objects]).tolist())
        every = _texts(piece.encoded)
        assert _texts(share.encoded) == {identifier: every[identifier] for identifier in used}


def test_timing_tuples_go_by_their_subjects_alone() -> None:
    piece = make_piece(many(200))
    for node, share in split_piece(piece, ShardMap.even(5, 2)):
        places = share.row_places()
        for row in range(200):
            ends = [int(piece.encoded.subjects[row])] + [int(piece.encoded.objects[row])] * (not piece.timing[row])
            assert (row in places) == any(((end >> 53) + i) % 5 == node for end in ends for i in range(2))


def test_a_share_may_be_empty_but_is_there() -> None:
    shares = split_piece(make_piece(many(1)), ShardMap.even(5))
    assert len(shares) == 5
    assert {len(share.encoded) for _, share in shares} == {0, 1}
    assert all(len(share.encoded.terms) == 3 * len(share.encoded) for _, share in shares)


def test_clashing_terms_go_where_the_id_that_they_clash_on_is_owned() -> None:
    piece = replace(make_piece(many(400), hash_bits=8), timing=np.zeros(400, np.bool_))
    clashes = piece.encoded.clashes.ids
    shares = split_piece(piece, ShardMap.even(3))
    total = 0
    for node, share in shares:
        assert share.encoded.clashes.ids.tolist() == clashes.tolist()
        for end in (share.encoded.subjects, share.encoded.objects):
            real = np.where(end <= -3, clashes[np.clip(-3 - end, 0, None)], end)
            total += int(np.count_nonzero((real >> 53) % 3 == node))
    assert total == 800


def test_inlined_literals_need_no_text_and_repeats_share_theirs() -> None:
    data = b'<http://ex/a> <http://ex/p> "1"^^<http://www.w3.org/2001/XMLSchema#int> .\n' * 3
    encoded, _ = encode_ntriples(data, b"s")
    cut = TermCutter(encoded).cut(np.array([0, 2]))
    assert len(cut) == 2
    assert sorted(cut.terms.texts()) == ["<http://ex/a>", "<http://ex/p>"]


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 1), (3, 1), (5, 2), (1024, 1), (4, 4), (2, 3)])
def test_the_even_map_is_that_of_the_protocol(nodes: int, replicas: int) -> None:
    shards = genesis(nodes, replicas, SHARD_COUNT).shards
    found = ShardMap.even(nodes, replicas)
    assert [tuple(owners) for owners in found.owners.tolist()] == list(shards)
    for node in range(min(nodes, 5)):
        assert found.shards(node).tolist() == [node in owners for owners in shards]


def test_every_replica_gets_a_tuple_once_and_what_is_split_only_by_its_subject() -> None:
    rows = [(s, p, o) for s, _, o in many(200) for p in ("<http://ex/p>", f"<{SPLIT_PREDICATES[0]}>")]
    encoded = make_piece(rows).encoded
    shard_map = ShardMap.even(5, 2)
    shares = dict(split(encoded, shard_map))
    for row, (_, predicate, _) in enumerate(rows):
        ends = [int(encoded.subjects[row])] + [int(encoded.objects[row])] * (predicate == "<http://ex/p>")
        owners = {((end >> 53) + i) % 5 for end in ends for i in range(2)}
        assert {node for node, found in shares.items() if row in found} == owners
    for node, found in shares.items():
        assert np.flatnonzero(share_of(encoded, shard_map, node)).tolist() == found.tolist()
    whole = dict(split(encoded, ShardMap.even(5, 2, split=())))
    assert sum(map(len, whole.values())) > sum(map(len, shares.values()))


def test_maps_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingsError, match="node_count = 0: expected 1 to 1024 nodes"):
        ShardMap.even(0)
    with pytest.raises(SettingsError, match="replica_count = 0: expected at least 1"):
        ShardMap.even(2, 0)
    with pytest.raises(SettingsError, match="shard map of 3 x 1 over 2 nodes: expected 1024 shards"):
        ShardMap(np.zeros((3, 1), np.int32), 2)
    with pytest.raises(SettingsError, match="shard map of 1024 over 2 nodes"):
        ShardMap(np.zeros(SHARD_COUNT, np.int32), 2)
    with pytest.raises(SettingsError, match="different nodes among 0 to node_count - 1"):
        ShardMap(np.full((SHARD_COUNT, 1), 2, np.int32), 2)
    with pytest.raises(SettingsError, match="different nodes"):
        ShardMap(np.ones((SHARD_COUNT, 2), np.int32), 2)

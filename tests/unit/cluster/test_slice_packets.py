"""Slices between nodes: what a peer may not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.engine_helpers import A, at
from tests.unit.cluster.wires import Wires, wired
from wukongs.cluster.node_store import MissingSlices, NodeStore
from wukongs.cluster.slice_packets import read_answer
from wukongs.errors import DataError, StreamError
from wukongs.wire.assignment import SHARD_COUNT
from wukongs.wire.packets import Packet

ALL = np.ones(SHARD_COUNT, np.bool_)
ROWS = [at("a", 50), at("b", 120), at("b", 120), at("c", 250)]


def _stored(wires: Wires) -> NodeStore:
    engine = wires.nodes[0].engine
    stream = engine.stream(A, batch_ms=100)
    stream.push(ROWS)
    stream.advance(300)
    engine.settle(30)
    return wires.nodes[0].store


def _changed(packet: Packet, fields: dict[str, Any] | None = None, **arrays: Any) -> Packet:
    return replace(packet, fields={**packet.fields, **(fields or {})}, arrays={**packet.arrays, **arrays})


def test_lies_are_named() -> None:
    with wired(1) as wires:
        store = _stored(wires)
        packet = store.slice_share(A, 1, 3, ALL)
        answer = read_answer(packet, A, 1, 3, 100)
        assert (len(answer.subjects), answer.before) == (4, (0, None))
        a = packet.arrays
        torn = a["term_text"].copy()
        torn[a["term_offsets"][1] - 1 : a["term_offsets"][1] + 1] = (0xC3, 0xA4)  # a character in two texts
        gap = np.array([0, 5, 2, *a["term_offsets"][3:]])
        lies: list[tuple[Packet, str]] = [
            (replace(packet, kind="rows"), "a packet 'slices', found 'rows'"),
            (_changed(packet, {"first": 2}), "an answer to this question"),
            (_changed(packet, {"partitions": "p"}), "a list of source partitions"),
            (_changed(packet, {"partitions": [1]}), "a list of source partitions"),
            (_changed(packet, {"rows_before": -1}), "a number of rows before"),
            (_changed(packet, {"last_before": "x"}), "the last stream batch before, or null"),
            (_changed(packet, subjects=a["subjects"].astype(np.int32)), r"subjects as int64\[\]"),
            (_changed(packet, places=a["places"][1:]), "columns of one length"),
            (_changed(packet, term_offsets=a["term_offsets"][1:]), "distinct ascending term ids"),
            (_changed(packet, term_offsets=gap), "distinct ascending term ids"),
            (_changed(packet, term_text=np.full(len(a["term_text"]), 255, np.uint8)), "texts in UTF-8"),
            (_changed(packet, term_ids=a["term_ids"][::-1]), "distinct ascending term ids"),
            (_changed(packet, partition=a["partition"] + 1), "known partitions"),
            (_changed(packet, timestamps=a["timestamps"] + 100), "timestamps of these stream batches"),
            (_changed(packet, timestamps=a["timestamps"] - 50), "timestamps of these stream batches"),
            (_changed(packet, objects=a["objects"] + 2), "the texts of all terms"),
            (_changed(packet, objects=-a["objects"]), "the texts of all terms"),
            (_changed(packet, objects=np.full(4, -1)), "the texts of all terms"),
            (_changed(packet, term_text=torn), "texts in UTF-8"),
        ]
        for lie, expected in lies:
            with pytest.raises(DataError, match=rf"stream {A}, stream batches 1 to 3: expected .*{expected}"):
                read_answer(lie, A, 1, 3, 100)
        gone = replace(packet, arrays={name: array for name, array in a.items() if name != "offsets"})
        with pytest.raises(DataError, match=r"expected offsets as int64\[\]"):
            read_answer(gone, A, 1, 3, 100)


def test_only_what_is_inserted_is_told() -> None:
    with wired(1) as wires:
        store = _stored(wires)
        with pytest.raises(StreamError, match=r"up to 4 were asked for, and are inserted here up to 3\. Ask again"):
            store.slice_share(A, 1, 4, ALL)
        with pytest.raises(StreamError, match=rf"unknown stream http://ex/no: .* Declared: {A}"):
            store.slice_share("http://ex/no", 1, 4, ALL)
        for wrong in (ALL[1:], ALL.astype(np.int64)):
            with pytest.raises(DataError, match=r"expected shards as bool\[1024\]"):
                store.slice_share(A, 1, 3, wrong)


def test_an_answer_that_is_not_needed_leaves_nothing_behind() -> None:
    with wired(1) as wires:
        store = _stored(wires)
        before = len(store.core.registry.transient)
        store.add_slices(MissingSlices(A, 1, 3), [], ALL)
        assert len(store.core.registry.transient) == before
        assert not store.stats()["streams"][A]["slice_bytes"]  # type: ignore[index]


def test_shares_by_shard_are_the_whole_once() -> None:
    with wired(3, 2) as wires:
        stream = wires.nodes[0].engine.stream(A, timing=True, batch_ms=100)
        rows = [at(f"s{number % 40}", 10 * number, term=f"o{number}") for number in range(200)]
        stream.push(rows)
        stream.advance(3000)
        wires.nodes[0].engine.settle(30)
        stores = [one.store for one in wires.nodes]
        owners = stores[0].shard_map.owners[:, 1]
        shares = [store.slice_share(A, 0, 20, owners == number) for number, store in enumerate(stores)]
        texts = []
        for number, (store, share) in enumerate(zip(stores, shares, strict=True)):
            answer = read_answer(share, A, 0, 20, 100)
            columns = (answer.subjects, answer.predicates, answer.objects)
            told = [store.core.registry.texts(column) for column in columns]
            texts += list(zip(*told, answer.timestamps.tolist(), strict=True))
            assert set((owners[answer.subjects >> 53] == number).tolist()) <= {True}
        assert sorted(texts) == sorted(rows)

"""RDF messages as a source: where they end, when they happen, what their blank nodes are; against rdflib."""

from __future__ import annotations

import gzip
import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st
from rdflib.compare import isomorphic

from tests.fuzz import fuzzed
from tests.unit.adapters.helpers import SCOPE, read_all, triples_of
from wukongs import Engine
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.adapters.replay import replay
from wukongs.adapters.run_config import RdfSource, StreamConfig, load_run_config
from wukongs.adapters.source import Rows
from wukongs.adapters.sources.rdf_messages import prepare_rdf
from wukongs.errors import DataError, SettingsError
from wukongs.wire.link import IngestLink

AT = "http://e/at"
HEAD = "@prefix e: <http://e/> .\n# a comment\n\n"


def rows_of(folder: Path, name: str, data: str | bytes, time: str = "epoch_ms", **options: Any) -> Rows:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    config = RdfSource(paths=(str(path),), predicate=AT, time_format=TimeFormat(time), **options)
    source, index = prepare_rdf(config, str(path), folder)
    return read_all(source, index)


def test_turtle_messages_share_the_prefixes_and_not_their_blank_nodes(tmp_path: Path) -> None:
    data = HEAD + "_:b e:at 1 ; e:p [ e:q _:b ] .\n\n\n_:b e:at 2 .\n_:b e:p e:o .\n"
    rows = rows_of(tmp_path, "m.ttl", data)
    assert rows.encoded.timestamps.tolist() == [1, 1, 1, 2, 2]
    assert rows.offsets.tolist() == [0, 0, 0, 1, 1]
    triples = triples_of(rows.encoded)
    first, second = (
        {term for triple in part for term in triple if term.startswith("_:")} for part in (triples[:3], triples[3:])
    )
    assert (len(first), len(second), len(first & second)) == (2, 1, 0)


@pytest.mark.parametrize(
    ("name", "data", "options", "times"),
    [
        (
            "m.nt",
            f'<http://a> <{AT}> "1" .\n<http://a> <http://p> "x" .\n# c\n\n<http://b> <{AT}> "2" .\n',
            {},
            [1, 1, 2],
        ),
        ("m.nt", f'<http://a> <{AT}> "1" .\n<http://a> <{AT}> "2" .\n', {"messages": "line"}, [1, 2]),
        ("m.nq", f'<http://a> <{AT}> "1" <http://g> .\n<http://b> <{AT}> "2" .', {}, [1, 2]),
        ("m.ttl", f"<http://a> <{AT}> 1 .\n---\n\n<http://b> <{AT}> 2 .\n---\n", {"separator": "---"}, [1, 2]),
        ("m.trig", f"GRAPH <http://g> {{ <http://a> <{AT}> 1 }}\n\n<http://b> <{AT}> 2 .", {}, [1, 2]),
        ("m.ttl", f"<http://a> <{AT}> 1 .\n\n<http://b> <http://p> 2 .", {"messages": "file"}, [1, 1]),
        ("m.jsonld", f'{{"@id": "http://a", "{AT}": 1}}\n\n{{"@id": "http://b", "{AT}": 2}}\n', {}, [1, 2]),
        ("m.txt", f'{{"@id": "http://a", "{AT}": 1}}', {"format": "jsonld"}, [1]),
        ("m.ttl", f"<x> <{AT}> 1 .", {"base": "http://e/"}, [1]),
        ("m.ttl", "", {}, []),
        ("m.ttl", HEAD, {}, []),
    ],
)
def test_formats_and_their_ends(
    name: str, data: str, options: dict[str, Any], times: list[int], tmp_path: Path
) -> None:
    rows = rows_of(tmp_path, name, data, **options)
    assert rows.encoded.timestamps.tolist() == times
    assert not rows.malformed
    with gzip.open(tmp_path / (name + ".gz"), "wb") as file:
        file.write(b"\xef\xbb\xbf" + data.encode().replace(b"\n", b"\r\n"))
    again = rows_of(tmp_path, name + ".gz", (tmp_path / (name + ".gz")).read_bytes(), **options)
    assert again.encoded.timestamps.tolist() == times
    assert [one.reason for one in again.malformed] == []


def test_bad_messages_are_named(tmp_path: Path) -> None:
    messages = [
        "e:a e:at 1 .",
        "e:a e:b .",
        "e:a e:p e:o .",
        "e:a e:at 1 . e:b e:at 2 .",
        'e:a e:at "soon" .',
        "e:a\n  f:p 1 .",
        "e:a e:at 0 .",
        "e:a e:at 3 .",
    ]
    rows = rows_of(
        tmp_path, "m.ttl", HEAD.encode() + "\n\n".join(messages).encode() + b'\n\ne:a e:at 4 ; e:p "\xff" .\n'
    )
    assert rows.encoded.timestamps.tolist() == [1, 3]
    found = [(one.line, one.column, one.reason, one.row) for one in rows.malformed]
    assert [one[0] for one in found] == [6, 8, 10, 12, 15, 21]
    assert found[0][2].startswith("expected ttl: ")
    assert found[1][2] == f"expected one time, by <{AT}>, found none"
    assert found[2][2] == f"expected one time, by <{AT}>, found several: 1, 2"
    assert found[3][2] == f"expected a time as epoch_ms as <{AT}>, found 'soon'"
    assert found[4] == (15, 3, "expected ttl: The prefix f: has not been declared", 5)
    assert "UTF-8" in found[5][2]
    assert [(one.line, one.time_ms, one.reason) for one in rows.backwards] == [(17, 0, "its time 0 ms is before 1 ms")]


def test_messages_that_end_too_early_are_named_by_their_own_line(tmp_path: Path) -> None:
    open_object = '{"@id": "http://ex/a"'
    rows = rows_of(tmp_path, "m.jsonld", f'{open_object}\n{{"@id": "http://ex/b", "{AT}": "5"}}\n'.encode())
    assert [one.line for one in rows.malformed] == [1]
    rows = rows_of(tmp_path, "m.ttl", HEAD.encode() + b'e:a e:at 1 .\n\ne:b e:at 2 ; e:p "open .\n\n')
    assert [(one.line, one.reason) for one in rows.malformed] == [(6, "expected ttl: Unexpected end of file")]


def test_remote_contexts_are_refused_and_times_have_zones(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "m.jsonld", '{"@context": "http://e/c.jsonld", "a": 1}\n')
    (reason,) = (one.reason for one in rows.malformed)
    assert reason.startswith("expected jsonld: the @context <http://e/c.jsonld> is a remote document, and nothing is")
    (tmp_path / "c.jsonld").write_text('{"@context": {"@version": 1.1, "at": "http://e/at"}}')
    contexts = (("http://e/c.jsonld", str(tmp_path / "c.jsonld")),)
    rows = rows_of(tmp_path, "m.jsonld", '{"@context": "http://e/c.jsonld", "at": 5}\n', contexts=contexts)
    assert (rows.encoded.timestamps.tolist(), rows.malformed) == ([5], [])
    rows = rows_of(tmp_path, "n.nt", f'<http://a> <{AT}> "1970-01-01T00:00:01+00:00"^^<http://x> .', "iso")
    assert rows.encoded.timestamps.tolist() == [1000]


@pytest.mark.parametrize(
    "head",
    [
        "PREFIX e: <http://e/>\n",
        "# a comment\nPREFIX e: <http://e/>\n",
        'VERSION "1.2"\nPREFIX e: <http://e/>\n',
        '@version "1.2" .\n@prefix e: <http://e/> .\n',
        "@prefix a: <http://a/> . @prefix e: <http://e/> .\n",
        "@prefix a: <http://a/> .\n\n@prefix e: <http://e/> .\n",
        "@base <http://e/> .\n@prefix e: <> .\n",
        "@prefix e: # a comment\n   <http://e/> .\n",
        "prefix e: <http://e/> # of ours\n",
        "@prefix e: <http://e/> .",
    ],
)
@pytest.mark.parametrize("ending", ["ttl", "trig"])
def test_whatever_directives_stand_at_the_head_hold_for_all_messages(tmp_path: Path, head: str, ending: str) -> None:
    """Turtle 1.2, 6.5: directives are separated by white space of any kind, and VERSION is one of them."""
    rows = rows_of(tmp_path, f"m.{ending}", head + " e:a e:at 1 .\n\ne:b e:at 2 ; e:p <http://e/o> .\n")
    assert (rows.encoded.timestamps.tolist(), rows.malformed) == ([1, 2, 2], [])


def test_a_version_at_the_head_of_n_triples(tmp_path: Path) -> None:
    """N-Triples 1.2, 7: versionDirective."""
    rows = rows_of(tmp_path, "m.nt", f'VERSION "1.2"\n<http://a> <{AT}> "1" .\n<http://b> <{AT}> "2" .\n')
    assert (rows.encoded.timestamps.tolist(), rows.malformed) == ([1, 2], [])


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"m\.txt: expected one of ttl, trig, nt, nq, jsonld at the end of its name"
    ):
        rows_of(tmp_path, "m.txt", "")
    path = tmp_path / "m.nt"
    path.write_text(f'<http://a> <{AT}> "1" .\n<http://b> <{AT}> "2" .\n')
    source, index = prepare_rdf(
        RdfSource(paths=(str(path),), predicate=AT, time_format=TimeFormat("epoch_ms")), str(path), tmp_path
    )
    path.write_text(path.read_text().replace("b", "a"))
    with pytest.raises(DataError, match=r"m\.nt: this file was changed while it was replayed"):
        read_all(source, index)


def test_a_run_file_with_messages(tmp_path: Path) -> None:
    (tmp_path / "m.ttl").write_text(HEAD + "e:a e:at 100 ; e:v 5 .\n\ne:b e:at 1500 ; e:v 7 .\n")
    (tmp_path / "run.toml").write_text(
        '[[stream]]\niri = "http://e/s"\nbatch_ms = 100\n[stream.source]\nkind = "rdf"\npath = "m.ttl"\n'
        f'time = {{ predicate = "{AT}", format = "epoch_ms" }}\n'
    )
    streams: tuple[StreamConfig, ...] = load_run_config(tmp_path / "run.toml").streams
    windows: list[list[tuple[str | None, ...]]] = []
    with Engine() as engine:
        engine.stream("http://e/s", batch_ms=100)
        text = "SELECT ?s FROM STREAM <http://e/s> [RANGE 1s STEP 1s] WHERE { ?s <http://e/v> ?v }"
        engine.register(f"REGISTER QUERY q AS {text}", on_result=lambda window: windows.append(list(window.texts())))
        with IngestLink([engine.listen()]) as link:
            assert replay(streams, link).triples == 4
        engine.settle()
    assert [rows for rows in windows if rows] == [[("<http://e/a>",)], [("<http://e/b>",)]]


NODES = st.sampled_from(["_:x", "_:y", "<http://e/a>", "[]", "[ <http://e/q> _:x ]"])
MESSAGES = st.lists(st.lists(st.tuples(NODES, NODES), max_size=4), max_size=5)


@fuzzed(60)
@given(MESSAGES, st.randoms(use_true_random=False))
def test_random_messages_are_what_rdflib_reads(
    tmp_path_factory: pytest.TempPathFactory, messages: list[list[tuple[str, str]]], random: Any
) -> None:
    folder = tmp_path_factory.mktemp("messages")
    texts = [
        f"<http://e/m{row}> <{AT}> {row} .\n"
        + "".join(f"{subject} <http://e/p> {object_} .\n" for subject, object_ in pairs)
        for row, pairs in enumerate(messages)
    ]
    path = folder / "m.ttl"
    path.write_text("\n".join(texts))
    source, index = prepare_rdf(
        RdfSource(paths=(str(path),), predicate=AT, time_format=TimeFormat("epoch_ms")), str(path), folder
    )
    whole = read_all(source, index)
    triples = triples_of(whole.encoded)
    seen: set[str] = set()
    for row, text in enumerate(texts):
        own = [triple for triple, offset in zip(triples, whole.offsets.tolist(), strict=True) if offset == row]
        found = rdflib.Graph().parse(data="".join(" ".join(triple) + " .\n" for triple in own), format="nt")
        assert isomorphic(found, rdflib.Graph().parse(data=text, format="turtle"))
        nodes = {term for triple in own for term in triple if term.startswith("_:")}
        assert not nodes & seen
        seen |= nodes
    bounds = sorted({0, len(index), *(random.randint(0, len(index)) for _ in range(2))})
    travelled = pickle.loads(pickle.dumps(source))
    parts = [travelled.read(index.range(first, end), SCOPE, 62) for first, end in pairwise(bounds)]
    assert [triple for part in parts for triple in triples_of(part.encoded)] == triples
    assert json.dumps(whole.offsets.tolist()) == json.dumps([one for part in parts for one in part.offsets.tolist()])

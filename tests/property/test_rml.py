"""Random RML mappings over random JSON records, against tests/oracles/rml.py: as lines, as elements of a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles import rml as oracle
from wukongs.adapters.mapping.rml import load_rml
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.triples import Mapper
from wukongs.adapters.sources.json_records import JsonRecords, read_document, split_elements

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, -1.25, 1e21, 1e-7, 100.0])
    | st.sampled_from(["", "a", "1", "é b", 'q"\\', "x/y", "http://o/x", "en", "_"])
)
FEW = st.sampled_from([1, 2, "1", "a", 2.5])
"""Values that two files have in common."""
VALUES = FEW | SCALARS | st.lists(FEW | SCALARS, min_size=1, max_size=3)
TAGS = st.lists(FEW | SCALARS, max_size=3)
ITEMS = st.lists(st.fixed_dictionaries({"x": FEW, "tags": TAGS}, optional={"y": VALUES}) | st.none(), max_size=3)
RECORDS = st.fixed_dictionaries({"a": FEW, "b": VALUES, "tags": TAGS, "items": ITEMS})
OTHERS = st.lists(st.fixed_dictionaries({"k": FEW}, optional={"a": VALUES}), min_size=2, max_size=4)
PATHS: dict[oracle.Path, list[oracle.Path]] = {
    (): [("a",), ("b",), ("tags",), ("tags", "*"), ("items", "*", "x")],
    ("items", "*"): [("x",), ("y",), ("tags", "*"), ("tags",)],
}


@st.composite
def terms(draw: st.DrawFn, paths: list[oracle.Path], is_subject: bool = False) -> oracle.Term:
    path, other = st.sampled_from(paths), st.sampled_from(paths)
    forms = ["iri", "relative", "reference-iri", "blank"]
    form = draw(st.sampled_from(forms if is_subject else [*forms, "reference", "reference", "text", "typed", "tagged"]))
    if form == "iri":
        return oracle.Term("iri", "template", ("http://e/", draw(path), "/", draw(other)))
    if form == "relative":
        return oracle.Term("iri", "template", (draw(path), "-", draw(other)))
    if form == "reference-iri":
        return oracle.Term("iri", "reference", (draw(path),))
    if form == "blank":
        return oracle.Term("blank", "template", ("n", draw(path)))
    if form == "reference":
        return oracle.Term("literal", "reference", (draw(path),))
    if form == "text":
        return oracle.Term("literal", "template", (draw(path), " ", draw(other), "!"))
    if form == "typed":
        datatype = draw(st.sampled_from([(oracle.XSD + "integer",), ("http://t/", draw(other))]))
        return oracle.Term("literal", "reference", (draw(path),), datatype=datatype)
    return oracle.Term("literal", "reference", (draw(path),), language=draw(st.sampled_from([("en",), (draw(other),)])))


@st.composite
def maps(draw: st.DrawFn) -> oracle.TriplesMap:
    iterator = draw(st.sampled_from(sorted(PATHS)))
    paths = PATHS[iterator]
    parents = st.builds(
        oracle.Parent,
        st.sampled_from([oracle.Term("iri", "template", ("http://o/", ("k",)))]),
        st.just(()),
        st.lists(
            st.tuples(st.sampled_from(paths), st.sampled_from([("k",), ("a",)])), min_size=1, max_size=2, unique=True
        ).map(tuple),
    )
    objects = st.one_of(terms(paths), terms(paths), parents)
    pairs = draw(st.lists(objects, min_size=1, max_size=3))
    graphs = draw(st.sampled_from([(), ("http://g/1",), (oracle.DEFAULT_GRAPH, "http://g/1")]))
    named = tuple((f"http://p/{number}", one) for number, one in enumerate(pairs))
    return oracle.TriplesMap(iterator, draw(terms(paths, is_subject=True)), named, graphs)


def found_lines(mapper: Mapper, table: Table) -> list[set[str] | None]:
    """Return the lines of each row, None for a bad one."""
    lines, _ = mapper.lines(table, 0, np.zeros(table.row_count, np.int64))
    found: list[set[str] | None] = [set() for _ in range(table.row_count)]
    for row, line in zip(lines.rows.tolist(), lines.text.tobytes().decode().split("\n")[:-1], strict=True):
        of_row = found[row]
        assert of_row is not None
        of_row.add(line)
    for row in table.bad:
        found[row] = None
    return found


def expected_lines(made: list[oracle.TriplesMap], record: Any, others: list[Any]) -> set[str] | None:
    try:
        return oracle.lines(made, record, others)
    except oracle.BadRecord:
        return None


@fuzzed(400)
@given(st.lists(maps(), min_size=1, max_size=2), st.lists(RECORDS, min_size=1, max_size=4), OTHERS)
def test_random_records_as_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[oracle.TriplesMap],
    records: list[dict[str, Any]],
    others: list[dict[str, Any]],
) -> None:
    folder: Path = tmp_path_factory.mktemp("rml")
    (folder / "other.jsonl").write_text("".join(json.dumps(one) + "\n" for one in others))
    (folder / "m.ttl").write_text(oracle.turtle(made, "in.jsonl", "other.jsonl"))
    mapping = load_rml(str(folder / "m.ttl"), ("in.jsonl",), "http://b/")
    mapper = Mapper(mapping, {})
    expected = [expected_lines(made, record, others) for record in records]
    as_lines = [json.dumps(record).encode() for record in records]
    wanted = mapping.columns, mapping.typed, mapping.iterators
    assert found_lines(mapper, JsonRecords(is_lines=True).table(as_lines, *wanted)) == expected

    document = json.dumps(records, indent=1).encode()
    reader, starts = read_document(document, "in.json", "$[*]")
    texts = split_elements(document, starts)
    assert len(texts) == len(records)
    found = found_lines(mapper, JsonRecords(is_lines=True).table(texts, *wanted))
    assert found == expected
    assert reader.within == ()

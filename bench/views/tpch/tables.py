"""Tables of TPC-H as triples: a subject for each row, a predicate for each column, foreign keys as IRIs.

The key of a row is its subject, and no triple: `http://example.org/tpch/part/7`. Decimals are xsd:decimal, dates
xsd:date, whole numbers xsd:integer."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from string import Template

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wukongs.bench.peers import PeerMissing

BASE = "http://example.org/tpch/"
XSD = "http://www.w3.org/2001/XMLSchema#"
QUERIES = Path(__file__).parent
GENERATOR = "tpchgen-cli"
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
FOREIGN_KEYS = {
    "n_regionkey": "region",
    "s_nationkey": "nation",
    "c_nationkey": "nation",
    "ps_partkey": "part",
    "ps_suppkey": "supplier",
    "o_custkey": "customer",
    "l_orderkey": "orders",
    "l_partkey": "part",
    "l_suppkey": "supplier",
}
SHOWN_KEYS = {"l_linenumber"}
"""Columns of keys that are triples, too, and no foreign keys."""
DELETED_EACH, DELETED_AFTER = 10, 0.1
"""Each tenth order is deleted, once a tenth of all rows has followed it."""
Tables = Mapping[str, pa.Table]


def generate(scale: float) -> dict[str, pa.Table]:
    """Return the tables of a scale, made by tpchgen-cli. Raises PeerMissing."""
    program = shutil.which(GENERATOR) or shutil.which(GENERATOR, path=sysconfig.get_path("scripts"))
    if program is None:
        raise PeerMissing(
            f"{GENERATOR} is not here: pip install 'wukongs[tpch]', or --data a folder of its parquet files"
        )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [program, "parquet", "-s", str(scale), f"--output-dir={folder}"], check=True, capture_output=True
        )
        return read(Path(folder))


def read(folder: Path) -> dict[str, pa.Table]:
    """Return the tables of a folder with a parquet file for each. Raises OSError."""
    found = dict[str, pa.Table]()
    for name in KEYS:
        table = pq.read_table(folder / f"{name}.parquet")
        types = [pa.string() if pa.types.is_string_view(one) else one for one in table.schema.types]
        found[name] = table.cast(pa.schema(list(zip(table.column_names, types, strict=True)))).combine_chunks()
    return found


def texts(number: int, scale: float) -> tuple[str, str]:
    """Return a query in SPARQL and in SQL, with the parameters that depend on the scale."""
    fraction = f"{Decimal('0.0001') / Decimal(str(scale)):f}"
    sparql, sql = (
        Template((QUERIES / f"q{number:02d}.{ending}").read_text(encoding="utf-8")).substitute(FRACTION=fraction)
        for ending in ("rq", "sql")
    )
    return sparql, sql


def triples(name: str, rows: pa.Table) -> list[pa.Array]:
    """Return rows of a table as columns of triples: subjects, predicates, objects."""
    subject = _iris(name, [rows[key] for key in KEYS[name]])
    subjects, predicates, objects = list[pa.Array](), list[pa.Array](), list[pa.Array]()
    for column in rows.column_names:
        if column in KEYS[name] and column not in SHOWN_KEYS and column not in FOREIGN_KEYS:
            continue
        subjects.append(subject)
        predicates.append(pa.array([f"<{BASE}{column}>"] * len(rows)))
        objects.append(_objects(column, rows[column]))
    return [pa.chunked_array(one, pa.string()).combine_chunks() for one in (subjects, predicates, objects)]


def write_ntriples(tables: Iterable[tuple[str, pa.Table]], path: Path) -> None:
    """Write the rows of tables as N-Triples. Raises OSError."""
    with path.open("wb") as file:
        for name, rows in tables:
            for first in range(0, len(rows), 50_000):
                columns = triples(name, rows.slice(first, 50_000))
                lines = pc.binary_join_element_wise(*columns, pa.scalar(".\n"), " ")
                file.write(pc.binary_join(pa.array([lines.to_pylist()], pa.list_(pa.string())), "")[0].as_buffer())


def _iris(name: str, keys: Sequence[pa.ChunkedArray]) -> pa.Array:
    parts = [part for key in keys for part in ("-", key.cast(pa.string()))]
    return _text([f"<{BASE}{name}/", *parts[1:], ">"])


def _text(parts: Sequence[pa.ChunkedArray | str]) -> pa.Array:
    joined = pc.binary_join_element_wise(*(pa.scalar(one) if isinstance(one, str) else one for one in parts), "")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _objects(column: str, values: pa.ChunkedArray) -> pa.Array:
    if column in FOREIGN_KEYS:
        return _iris(FOREIGN_KEYS[column], [values])
    written, kind = values.cast(pa.string()), values.type
    if pa.types.is_decimal(kind):
        return _text(['"', written, f'"^^<{XSD}decimal>'])
    if pa.types.is_integer(kind):
        return _text(['"', written, f'"^^<{XSD}integer>'])
    if pa.types.is_date(kind):
        return _text(['"', written, f'"^^<{XSD}date>'])
    assert not pc.any(pc.match_substring_regex(written, r'["\\\n\r]')).as_py(), f"{column}: a text to be escaped"
    return _text(['"', written, '"'])


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are inserted and deleted at once: of each table, their places."""

    inserted: Mapping[str, NDArray[np.int64]]
    deleted: Mapping[str, NDArray[np.int64]]

    def __len__(self) -> int:
        return sum(len(places) for side in (self.inserted, self.deleted) for places in side.values())


class Agenda:
    """All rows in turn over all tables, and deletions as in RF2, of orders with their lines.

    live: of each table, which rows are there after the batches so far."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._names = list(tables)
        columns = list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]]()
        keys = tables["orders"]["o_orderkey"].to_numpy()
        assert (np.diff(keys) > 0).all(), "orders are sorted by their keys"
        orders = {"orders": np.arange(len(keys))}
        orders["lineitem"] = np.searchsorted(keys, tables["lineitem"]["l_orderkey"].to_numpy())

        def add(number: int, rows: NDArray[np.int64], times: NDArray[np.float64], sign: int) -> None:
            columns.append((np.full(len(rows), number), rows, times, np.full(len(rows), sign)))

        for number, (name, table) in enumerate(tables.items()):
            rows = np.arange(len(table))
            add(number, rows, (rows + 0.5) / max(len(rows), 1), 1)
            if name in orders:
                times = (orders[name] + 0.5) / len(keys) + DELETED_AFTER
                chosen = (orders[name] % DELETED_EACH == 0) & (times < 1)
                add(number, rows[chosen], times[chosen], -1)
        numbers, places, times, signs = (np.concatenate(one) for one in zip(*columns, strict=True))
        turn = np.argsort(times, kind="stable")
        self._numbers, self._places, self._signs = numbers[turn], places[turn], signs[turn]
        self.taken = 0
        """The rows that were taken."""
        self.live = {name: np.zeros(len(table), np.bool_) for name, table in tables.items()}

    def __len__(self) -> int:
        """The rows that are left."""
        return len(self._signs) - self.taken

    def take(self, count: int) -> Batch:
        """Return the next rows, at most `count`."""
        chosen = slice(self.taken, min(self.taken + count, len(self._signs)))
        numbers, places, signs = (one[chosen] for one in (self._numbers, self._places, self._signs))
        self.taken = chosen.stop
        sides = dict[int, dict[str, NDArray[np.int64]]]()
        for sign in (1, -1):
            of_sign = signs == sign
            sides[sign] = {
                self._names[number]: places[of_sign & (numbers == number)] for number in np.unique(numbers[of_sign])
            }
            for name, rows in sides[sign].items():
                self.live[name][rows] = sign > 0
        return Batch(sides[1], sides[-1])

    def changes(self, batch: Batch) -> tuple[pa.Table | None, pa.Table | None]:
        """Return the triples that a batch inserts and deletes. None: there are none. A row that is inserted and deleted
        at once is in neither."""
        both = {
            name: np.intersect1d(rows, batch.deleted[name])
            for name, rows in batch.inserted.items()
            if name in batch.deleted
        }
        return self._triples(batch.inserted, both), self._triples(batch.deleted, both)

    def _triples(
        self, rows: Mapping[str, NDArray[np.int64]], without: Mapping[str, NDArray[np.int64]]
    ) -> pa.Table | None:
        found = list[list[pa.Array]]()
        for name, places in rows.items():
            if name in without:
                places = np.setdiff1d(places, without[name])
            if len(places):
                found.append(triples(name, self._tables[name].take(pa.array(places))))
        if not found:
            return None
        columns = [pa.chunked_array(list(one)).combine_chunks() for one in zip(*found, strict=True)]
        return pa.table(columns, ["subject", "predicate", "object"])

    def live_tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Iterate over the tables with the rows that are there."""
        for name, table in self._tables.items():
            yield name, table.filter(pa.array(self.live[name]))

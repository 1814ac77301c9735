"""Small tables of TPC-H with the values that the 22 queries ask for, and these queries asked of SQLite."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from wukongs.bench.views.tpch.tables import Tables

NATIONS = ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "JAPAN")
DATES = ("1993-08-15", "1993-11-02", "1994-03-30", "1994-06-30", "1995-02-20", "1995-09-01", "1995-12-30")
COLUMNS = {
    name: text.split()
    for name, text in {
        "region": "r_regionkey r_name r_comment",
        "nation": "n_nationkey n_name n_regionkey n_comment",
        "supplier": "s_suppkey s_name s_address s_nationkey s_phone s_acctbal s_comment",
        "customer": "c_custkey c_name c_address c_nationkey c_phone c_acctbal c_mktsegment c_comment",
        "part": "p_partkey p_name p_mfgr p_brand p_type p_size p_container p_retailprice p_comment",
        "partsupp": "ps_partkey ps_suppkey ps_availqty ps_supplycost ps_comment",
        "orders": "o_orderkey o_custkey o_orderstatus o_totalprice o_orderdate o_orderpriority o_clerk o_shippriority"
        " o_comment",
        "lineitem": "l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax"
        " l_returnflag l_linestatus l_shipdate l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment",
    }.items()
}
_MONEY = {"s_acctbal", "c_acctbal", "p_retailprice", "ps_supplycost", "o_totalprice"}
_MONEY |= {"l_quantity", "l_extendedprice", "l_discount", "l_tax"}
_WHOLE = {"p_size", "ps_availqty", "o_shippriority", "l_linenumber"}


def _type(column: str) -> pa.DataType:
    if column in _MONEY:
        return pa.decimal128(15, 2)
    if column.endswith("key") or column in _WHOLE:
        return pa.int64()
    return pa.date32() if column.endswith("date") else pa.string()


SCHEMAS = {name: pa.schema([(column, _type(column)) for column in columns]) for name, columns in COLUMNS.items()}

Row = tuple[Any, ...]


def random_tables(seed: int, orders: int = 40) -> dict[str, pa.Table]:
    """Return tables with a number of orders, and of lines about three times as many."""
    rng = random.Random(seed)
    suppliers, customers, parts = 6, 8, 8

    def money(low: int, high: int) -> Decimal:
        return Decimal(rng.randint(low, high)) / 100

    def near(day: str, days: int) -> date:
        return date.fromisoformat(day) + timedelta(rng.randint(0, days))

    comments = ("nothing", "Customer soft Complaints", "all special but no requests")
    rows: dict[str, list[Row]] = {
        "region": [(key, name, "") for key, name in enumerate(("EUROPE", "ASIA", "AMERICA"))],
        "nation": [(key, name, (0, 0, 2, 2, 1, 1)[key], "") for key, name in enumerate(NATIONS)],
        "supplier": [
            (key, f"Supplier#{key}", "somewhere", key % 6, "33-1", money(-999, 9999), rng.choice(comments))
            for key in range(1, suppliers + 1)
        ],
        "customer": [
            (
                key,
                f"Customer#{key}",
                "there",
                key % 6,
                rng.choice(("13-1", "31-1", "99-1")),
                money(-999, 9999),
                rng.choice(("BUILDING", "MACHINERY")),
                "",
            )
            for key in range(1, customers + 1)
        ],
        "part": [
            (
                key,
                rng.choice(("forest green", "green blue", "forest red")),
                "maker",
                brand,
                rng.choice(("SMALL BRASS", "ECONOMY ANODIZED STEEL", "PROMO BRASS")),
                rng.choice((15, 3, 9)),
                box,
                money(900, 2000),
                "",
            )
            for key in range(1, parts + 1)
            for brand, box in [rng.choice((("Brand#12", "SM BOX"), ("Brand#23", "MED BOX"), ("Brand#34", "LG BOX")))]
        ],
    }
    offers = [(part, supplier) for part in range(1, parts + 1) for supplier in rng.sample(range(1, suppliers + 1), 3)]
    rows["partsupp"] = [(*offer, rng.randint(1, 100), money(100, 300), "") for offer in offers]
    rows["orders"], rows["lineitem"] = [], []
    for key in range(1, orders + 1):
        day = near(rng.choice(DATES), 30)
        comment = rng.choice(("nothing", "the special final requests", "requests before special"))
        priority = rng.choice(("1-URGENT", "2-HIGH", "5-LOW"))
        rows["orders"].append(
            (
                key,
                rng.randint(1, customers - 2),
                rng.choice("FFO"),
                money(1000, 9999),
                day,
                priority,
                "clerk",
                0,
                comment,
            )
        )
        for number in range(1, rng.randint(1, 5) + 1):
            shipped = day + timedelta(rng.randint(1, 40))
            committed, received = (shipped + timedelta(rng.randint(-5, 20)) for _ in range(2))
            numbers = (Decimal(rng.choice((1, 5, 10, 20, 50, 150))), money(100, 9999), money(4, 7), money(0, 8))
            words = (
                rng.choice("RAN"),
                rng.choice("OF"),
                shipped,
                committed,
                received,
                "DELIVER IN PERSON",
                rng.choice(("AIR", "MAIL", "SHIP")),
                "",
            )
            rows["lineitem"].append((key, *rng.choice(offers), number, *numbers, *words))
    return {
        name: pa.Table.from_pylist([dict(zip(COLUMNS[name], row, strict=True)) for row in found], SCHEMAS[name])
        for name, found in rows.items()
    }


class Asked:
    """The queries of SQL, over tables in SQLite. Decimals are doubles there: `rounded` rows are compared."""

    def __init__(self, tables: Tables) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("PRAGMA case_sensitive_like = ON")
        for name, table in tables.items():
            self._connection.execute(f"CREATE TABLE {name} ({', '.join(table.column_names)})")
            marks = ", ".join("?" * table.num_columns)
            rows = [[_stored(cell) for cell in row.values()] for row in table.to_pylist()]
            self._connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

    def rows(self, sql: str) -> Counter[Row]:
        return rounded(self._connection.execute(sql).fetchall())


def _stored(cell: Any) -> Any:
    if isinstance(cell, Decimal):
        return float(cell)
    return cell.isoformat() if isinstance(cell, date) else cell


def rounded(rows: Iterable[Sequence[Any]]) -> Counter[Row]:
    """Return rows with numbers to six digits after the point."""
    return Counter(
        tuple(_rounded(cell) if isinstance(cell, Decimal | int | float) else cell for cell in row) for row in rows
    )


def _rounded(number: Decimal | float) -> float:
    return round(float(number) + 1.37e-7, 6)  # quotients that lie between two such numbers are rounded to the same one

"""Reads the rows of a one-shot query, or of a graph at a snapshot, as a DataFrame.

A query is one Spark partition: a node answers for the whole cluster. A graph of a cluster has one for each node: it
asks the node for the share that lies there. All of them read the snapshot that the planner has asked for first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from wukongs.adapters.sink import TRIPLE_COLUMNS, Access
from wukongs.adapters.spark.cells import check_schema, typed_batch
from wukongs.adapters.spark.options import READ, Options
from wukongs.csparql.parser import parse_query
from wukongs.errors import SettingsError
from wukongs.query.terms.names import graph_term

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

DEFAULT_GRAPH = "default"
HOLD_S = 600


@dataclass
class Share(InputPartition):
    """A share of a graph at a snapshot: the triples of one node."""

    address: str
    shards: tuple[int, ...]
    at: int


class QueryReader(DataSourceReader):
    """One query at one node, or a graph at all of them. at: the snapshot to read at, None: the newest; hold_s: how long
    the snapshot of a graph is kept for tasks that have not begun, None: no graph is read."""

    def __init__(
        self, access: Access, text: str, graph: str | None, at: int | None, hold_s: float | None, schema: StructType
    ) -> None:
        self._access, self._text, self._graph, self._at = access, text, graph, at
        self._hold_s, self._schema = hold_s, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Ask how a graph is divided. Raises: NodeUnavailable; CompactedError (the snapshot is gone)."""
        if self._hold_s is not None:
            with self._access.connect() as engine:
                found = engine.graph_shares(self._hold_s, self._at)
            if found is not None:
                shares = [Share(address, shards, found.at) for address, shards in found.shares]
                for share in shares:
                    with self._access_for(share).connect() as engine:
                        engine.hold_snapshot(self._hold_s, share.at)
                return shares
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Ask, and yield the rows. Raises: NodeUnavailable; DataError (a cell); whatever error the node answers."""
        import pyarrow as pa

        with self._access_for(partition).connect() as engine:
            if isinstance(partition, Share):
                result = engine.graph_share(self._graph, partition.shards, partition.at)
            else:
                result = engine.query(self._text, at=self._at)
            schema, batches = result.batches()
            for batch in batches:
                yield from typed_batch(pa.Table.from_batches([batch], schema), self._schema).to_batches()

    def _access_for(self, partition: InputPartition) -> Access:
        """Ask the node of a share first; any other gives it, too."""
        if not isinstance(partition, Share):
            return self._access
        others = [address for address in self._access.addresses if address != partition.address]
        return replace(self._access, addresses=(partition.address, *others))


def query_reader(given: Any, schema: StructType) -> DataSourceReader:
    """Return the reader of the options. Raises: SettingsError; QuerySyntaxError."""
    options = Options(given, READ)
    text = query_text(options)
    check_schema(schema, columns_of_query(text))
    at = None if options.text("at") is None else options.number("at", 0)
    graph = options.text("graph")
    hold_s = None if graph is None else float(options.number("hold_s", HOLD_S, 1))
    name = None if graph == DEFAULT_GRAPH else graph
    return QueryReader(options.access(), text, name, at, hold_s, schema)


def query_schema(given: Any) -> str:
    """Return the columns of a query, all of them strings. Raises: SettingsError; QuerySyntaxError."""
    names = columns_of_query(query_text(Options(given, READ)))
    return ", ".join(f"`{name}` {'boolean' if name == 'ask' else 'string'}" for name in names)


def query_text(options: Options) -> str:
    """Return the query, or one for all triples of the graph. Raises: SettingsError."""
    text, graph = options.text("query"), options.text("graph")
    if (text is None) == (graph is None):
        raise SettingsError(
            "expected one of the options 'query' (a SELECT, ASK or CONSTRUCT) and 'graph' (an IRI, or "
            f"'{DEFAULT_GRAPH}' for the default graph)"
        )
    if text is not None:
        return text
    assert graph is not None
    pattern = "?subject ?predicate ?object"
    inner = pattern if graph == DEFAULT_GRAPH else f"GRAPH {graph_term(graph).text} {{ {pattern} }}"
    return f"SELECT {pattern} WHERE {{ {inner} }}"


def columns_of_query(text: str) -> tuple[str, ...]:
    """Return the names of a query's columns. Raises: QuerySyntaxError; SettingsError (a continuous query)."""
    query = parse_query(text)
    if query.registration is not None:
        raise SettingsError("option 'query': this query is registered: read its windows with spark.readStream")
    return columns_of_form(query.form, query.variables)


def columns_of_form(form: str, variables: tuple[str, ...]) -> tuple[str, ...]:
    if form == "select":
        return variables
    return ("ask",) if form == "ask" else TRIPLE_COLUMNS

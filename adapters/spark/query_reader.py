"""Reads the rows of a one-shot query, or of a graph at a snapshot, as a DataFrame.

One Spark partition: a node answers for the whole cluster, and does not tell what lies on which node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class QueryReader(DataSourceReader):
    """One query at one node. at: the snapshot to read at, None: the newest."""

    def __init__(self, access: Access, text: str, at: int | None, schema: StructType) -> None:
        self._access, self._text, self._at, self._schema = access, text, at, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Ask, and yield the rows. Raises: NodeUnavailable; DataError (a cell); whatever error the node answers."""
        import pyarrow as pa

        with self._access.connect() as engine:
            schema, batches = engine.query(self._text, at=self._at).batches()
            for batch in batches:
                yield from typed_batch(pa.Table.from_batches([batch], schema), self._schema).to_batches()


def query_reader(given: Any, schema: StructType) -> DataSourceReader:
    """Return the reader of the options. Raises: SettingsError; QuerySyntaxError."""
    options = Options(given, READ)
    text = query_text(options)
    check_schema(schema, columns_of_query(text))
    at = None if options.text("at") is None else options.number("at", 0)
    return QueryReader(options.access(), text, at, schema)


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

"""The data source format("wukongs"), for the DataFrames of any program, by options alone.

    from wukongs.adapters.spark import WukongsDataSource
    spark.dataSource.register(WukongsDataSource)

Spark makes it in processes of its own. Readers, writers and partitions carry all that tasks need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class WukongsDataSource(DataSource):
    """Reads and writes the streams, stored graph and queries of a node or a cluster; docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        return "wukongs"

    def schema(self) -> str:
        """Return the columns that a reader without a schema has; all terms are strings, as N-Triples."""
        if "runfile" in self.options:
            from wukongs.adapters.spark.file_reader import FILE_SCHEMA

            return FILE_SCHEMA
        if self._is_continuous():
            from wukongs.adapters.spark.change_reader import change_schema, reads_changes
            from wukongs.adapters.spark.window_reader import window_schema

            if reads_changes(self.options):
                return change_schema(self.options)
            return window_schema(self.options)
        from wukongs.adapters.spark.query_reader import query_schema

        return query_schema(self.options)

    def _is_continuous(self) -> bool:
        """Whether the options name a registered query: Spark asks for the schema before it says how it reads."""
        from wukongs.csparql.parser import parse_query

        text = self.options.get("query")
        return "registered" in self.options or (text is not None and parse_query(text).registration is not None)

    def reader(self, schema: StructType) -> DataSourceReader:
        from wukongs.adapters.spark.query_reader import query_reader

        return query_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if "runfile" in self.options:
            from wukongs.adapters.spark.file_reader import file_reader

            return file_reader(self.options, schema)
        from wukongs.adapters.spark.change_reader import change_reader, reads_changes
        from wukongs.adapters.spark.window_reader import window_reader

        if reads_changes(self.options, schema):
            return change_reader(self.options, schema)
        return window_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from wukongs.adapters.spark.frame_writers import frame_writer

        return frame_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from wukongs.adapters.spark.frame_writers import micro_batch_writer

        return micro_batch_writer(self.options, schema)

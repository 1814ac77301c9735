"""The data source format("wukongs") of Spark, for anybody's DataFrames, by options alone.

    from wukongs.adapters.spark import WukongsDataSource
    spark.dataSource.register(WukongsDataSource)

Spark makes it in processes of its own. Readers, writers and partitions carry all that tasks need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class WukongsDataSource(DataSource):
    """Reads and writes the streams, stored graph and queries of a node or a cluster; docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        return "wukongs"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from wukongs.adapters.spark.frame_writers import frame_writer

        return frame_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from wukongs.adapters.spark.frame_writers import micro_batch_writer

        return micro_batch_writer(self.options, schema)

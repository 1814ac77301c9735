"""Spark: the pipeline that it drives, and format("wukongs") for DataFrames (docs/spark.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wukongs.adapters.spark.table_source import WukongsDataSource

__all__ = ["WukongsDataSource"]


def __getattr__(name: str) -> object:
    """Load Spark with the first use of a name that needs it."""
    if name == "WukongsDataSource":
        from wukongs.adapters.spark.table_source import WukongsDataSource

        return WukongsDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The formats of results, and the kinds that each goes with. This module is light; the writers are loaded when
needed."""

from __future__ import annotations

from wukongs.errors import SettingsError

ROW_FORMATS = ("json", "xml", "csv", "tsv")
GRAPH_FORMATS = ("ttl", "nt")
FORMATS = ("table", *ROW_FORMATS, *GRAPH_FORMATS, "arrow")


def check_format(format: str, kind: str) -> None:
    """Raise SettingsError unless results of this kind can be written in this format."""
    if format not in FORMATS:
        raise SettingsError(f"format = {format!r}: expected one of {', '.join(FORMATS)}")
    is_graph = kind in ("construct", "describe")
    if (format in ROW_FORMATS and is_graph) or (format in GRAPH_FORMATS and not is_graph):
        fitting = GRAPH_FORMATS if is_graph else ROW_FORMATS
        raise SettingsError(
            f"format = {format!r}: expected one of table, {', '.join(fitting)}, arrow for the result of "
            f"{'an ' if kind == 'ask' else 'a '}{kind} query"
        )

"""wukongs: continuous C-SPARQL and one-shot SPARQL over one evolving RDF graph.

This is the public face. Importing it loads nothing heavy: a name brings its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from wukongs.errors import (
    AccessError,
    BudgetExceeded,
    CompactedError,
    CorruptionError,
    DataError,
    DataLost,
    ForkError,
    GapError,
    NodeUnavailable,
    OutcomeUnknown,
    QueryKilled,
    QuerySyntaxError,
    QueryTimeout,
    RuleError,
    ServiceError,
    SettingsError,
    StorageError,
    StreamError,
    UnsupportedFeatureError,
    UpdateError,
    WukongsError,
)

if TYPE_CHECKING:
    from wukongs.csparql.algebra import Query
    from wukongs.csparql.updates import Update
    from wukongs.engine import Engine, restore
    from wukongs.live.views.live_view import LiveView
    from wukongs.live.views.rule_query import RuleQuery
    from wukongs.query.output.live_view import live_view
    from wukongs.query.output.results import Result, WindowResult
    from wukongs.query.output.view_report import ViewReport
    from wukongs.remote.client import RemoteEngine, connect
    from wukongs.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "BudgetExceeded",
    "CompactedError",
    "CorruptionError",
    "DataError",
    "DataLost",
    "Engine",
    "ForkError",
    "GapError",
    "LiveView",
    "NodeUnavailable",
    "OutcomeUnknown",
    "QueryKilled",
    "QuerySyntaxError",
    "QueryTimeout",
    "RemoteEngine",
    "Result",
    "RuleError",
    "RuleQuery",
    "ServiceError",
    "Settings",
    "SettingsError",
    "StorageError",
    "StreamError",
    "UnsupportedFeatureError",
    "UpdateError",
    "ViewReport",
    "WindowResult",
    "WukongsError",
    "__version__",
    "connect",
    "live_view",
    "parse_query",
    "parse_update",
    "restore",
]

_HOME = {
    "RemoteEngine": "wukongs.remote.client",
    "connect": "wukongs.remote.client",
    "Engine": "wukongs.engine",
    "LiveView": "wukongs.live.views.live_view",
    "RuleQuery": "wukongs.live.views.rule_query",
    "Result": "wukongs.query.output.results",
    "Settings": "wukongs.settings",
    "ViewReport": "wukongs.query.output.view_report",
    "WindowResult": "wukongs.query.output.results",
    "live_view": "wukongs.query.output.live_view",
    "restore": "wukongs.engine",
}


def parse_query(text: str, base: str | None = None) -> Query:
    """Parse a SPARQL or C-SPARQL query without running it; relative IRIs are resolved against base.

    Raises: QuerySyntaxError (with line and column), UnsupportedFeatureError (known, but not supported here).
    """
    from wukongs.csparql.parser import parse_query as parse

    return parse(text, base)


def parse_update(text: str, base: str | None = None) -> Update:
    """Parse a SPARQL Update request without running it; relative IRIs are resolved against base.

    Raises: QuerySyntaxError (with line and column; also for a query), UnsupportedFeatureError.
    """
    from wukongs.csparql.parser_update import parse_update as parse

    return parse(text, base)


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'wukongs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

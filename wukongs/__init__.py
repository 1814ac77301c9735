"""wukongs: continuous C-SPARQL and one-shot SPARQL over one evolving RDF graph.

This is the public face. Importing it loads nothing heavy: a name brings its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NoReturn

from wukongs.errors import (
    BudgetExceeded,
    CompactedError,
    CorruptionError,
    DataError,
    NodeUnavailable,
    QuerySyntaxError,
    QueryTimeout,
    SettingsError,
    StorageError,
    StreamError,
    UnsupportedFeatureError,
    UpdateError,
    WukongsError,
)

if TYPE_CHECKING:
    from csparql.algebra import Query
    from csparql.updates import Update
    from wukongs.durable.backup import restore
    from wukongs.engine import Engine
    from wukongs.output.results import Result, WindowResult
    from wukongs.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "BudgetExceeded",
    "CompactedError",
    "CorruptionError",
    "DataError",
    "Engine",
    "NodeUnavailable",
    "QuerySyntaxError",
    "QueryTimeout",
    "Result",
    "Settings",
    "SettingsError",
    "StorageError",
    "StreamError",
    "UnsupportedFeatureError",
    "UpdateError",
    "WindowResult",
    "WukongsError",
    "__version__",
    "parse_query",
    "parse_update",
    "restore",
]

_HOME = {
    "Engine": "wukongs.engine",
    "Result": "wukongs.output.results",
    "Settings": "wukongs.settings",
    "WindowResult": "wukongs.output.results",
    "restore": "wukongs.durable.backup",
}

# Names of the design that are still to come: calling one says so, and what serves until then.
_TO_COME = {
    "connect": "use wukongs.Engine(), which runs inside of this process",
}


def parse_query(text: str, base: str | None = None) -> Query:
    """Parse a SPARQL or C-SPARQL query without running it; relative IRIs are resolved against base.

    Raises: QuerySyntaxError (with line and column), UnsupportedFeatureError (known, but not supported here).
    """
    from csparql.parser import parse_query as parse

    return parse(text, base)


def parse_update(text: str, base: str | None = None) -> Update:
    """Parse a SPARQL Update request without running it; relative IRIs are resolved against base.

    Raises: QuerySyntaxError (with line and column; also for a query), UnsupportedFeatureError.
    """
    from csparql.parser_update import parse_update as parse

    return parse(text, base)


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _TO_COME:

        def not_built_yet(*_arguments: object, **_options: object) -> NoReturn:
            raise WukongsError(f"wukongs.{name} is not built yet in wukongs {__version__}: {_TO_COME[name]}")

        not_built_yet.__name__ = name
        return not_built_yet
    raise AttributeError(f"module 'wukongs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

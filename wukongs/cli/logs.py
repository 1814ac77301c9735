"""Logs of commands that go on: on standard error, as text or as one JSON object a line.

Without options only warnings are written, as bare messages. No log has tokens, parameters of addresses, or texts of
queries: paths and names are all that it tells of a request.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
ACCESS = "wukongs.access"
_NAMED = re.compile(r"(node|query|stream) %[sd]")
"""Messages name first what they are about: it becomes a field."""
_FIELDS = ("node", "query", "stream", "request", "client", "method", "path", "status", "ms")


def add_log_options(parser: argparse.ArgumentParser, *, has_http: bool = False) -> None:
    """Add --log-format and --log-level; has_http: --access-log and --traces, too."""
    parser.add_argument(
        "--log-format", choices=("text", "json"), help="lines with time and level, or JSON (default: bare messages)"
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="warning", help="log from this level on (default: warning)"
    )
    if has_http:
        parser.add_argument("--access-log", action="store_true", help="log each HTTP request, without its parameters")
        traces = "spans of firings and requests for OpenTelemetry (the extra otel), by console, otlp, ..."
        parser.add_argument("--traces", metavar="EXPORTER", help=traces)


def begin_logs(options: argparse.Namespace, node: int | None = None) -> None:
    """Log, and trace, as the options say. node: the number of the only node of this process. Raises SettingsError (no
    OpenTelemetry, no such exporter)."""
    if getattr(options, "traces", None) is not None:
        from wukongs.server.telemetry import begin_traces, provider_for

        begin_traces(provider_for(options.traces))
    has_access = getattr(options, "access_log", False)
    if options.log_format is None and options.log_level == "warning" and not has_access:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Json(node) if options.log_format == "json" else _Text())
    root = logging.getLogger()
    root.addHandler(handler)
    level: int = getattr(logging, options.log_level.upper())
    logging.getLogger("wukongs").setLevel(level)
    root.setLevel(max(level, logging.WARNING))
    if has_access:
        logging.getLogger(ACCESS).setLevel(logging.INFO)
    else:
        logging.getLogger(ACCESS).setLevel(logging.CRITICAL)


def _time_of(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{_time_of(record)} {record.levelname} {record.name}: {super().format(record)}"


class _Json(logging.Formatter):
    def __init__(self, node: int | None) -> None:
        super().__init__()
        self._node = {} if node is None else {"node": node}

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._node,
            **_fields_of(record),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    found = {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
    named = _NAMED.match(record.msg) if isinstance(record.msg, str) else None
    if named is not None and isinstance(record.args, tuple) and record.args:
        found.setdefault(named[1], record.args[0])
    return found

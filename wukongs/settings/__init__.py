"""Settings: every option of the engine, once, with its default, unit and bounds.

An option is given to Settings itself, or by the environment variable WUKONGS_<NAME>. The program's value wins.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from wukongs.errors import SettingsError

SWITCH_INTERVAL_S = 50e-6


def _option(default: int, low: int, high: int, unit: str, doc: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "unit": unit, "doc": doc})


PLACE = re.compile(r"https?://[^/?#@\s<>]+/[^?#\s<>]*")
"""How the IRIs of an allowed place begin. With the slash behind the host, http://ex.org/ does not stand for
http://ex.org.evil.org/ or http://ex.org@evil.org/."""
_EXPECTED_PLACES = "how IRIs begin, host and slash at least, such as http://ex.org/data/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of an Engine: integers within stated bounds, and the places that LOAD and SERVICE may ask.

    contexts may also be given as a dictionary. Raises: SettingsError (a value that is no integer, or is out of bounds;
    a place that is none).
    """

    batch_ms: int = _option(
        100, 1, 3_600_000, "milliseconds", "length of a stream batch, for streams that do not say their own"
    )
    tick_ms: int = _option(
        0,
        0,
        86_400_000,
        "milliseconds",
        "n: stream batches join the stored graph at multiples of n only: what is stored is up to n older, in fewer "
        "versions; 0: each as it closes. Embedded engines only",
    )
    history_ms: int = _option(
        60_000, 0, 31_536_000_000, "milliseconds", "how long slices are kept even if no registered window needs them"
    )
    results_bytes_max: int = _option(
        1 << 30, 1 << 10, 1 << 50, "bytes", "what all registered queries may hold in windows that are not read yet"
    )
    slice_bytes_max: int = _option(
        1 << 32, 1 << 10, 1 << 50, "bytes", "what one stream may hold in slices, their blocks and transient terms"
    )
    queued_bytes_max: int = _option(
        1 << 30, 1 << 10, 1 << 50, "bytes", "what one stream may hold in stream batches that cannot be sealed yet"
    )
    retraction_bytes_max: int = _option(
        1 << 28,
        1 << 10,
        1 << 50,
        "bytes",
        'what an engine may hold in event times of triples, 40 bytes each, for streams with retractions = "event_time"',
    )
    rows_max: int = _option(50_000_000, 1, 1 << 40, "rows", "the longest binding table that one query may make")
    query_bytes_max: int = _option(
        1 << 32, 1 << 20, 1 << 50, "bytes", "what one execution of a query may hold: tables, work space, texts it makes"
    )
    memory_bytes_max: int = _option(
        0,
        0,
        1 << 50,
        "bytes",
        "what all queries, updates, firings, loads, results and unread windows of this process may hold together; 0: "
        "half of what the machine, its cgroup and resource limits leave when the engine is open, 256 MiB at least",
    )
    memory_wait_ms: int = _option(
        30_000, 0, 86_400_000, "milliseconds", "how long a query or load waits for memory that others hold, at most"
    )
    spill_bytes_max: int = _option(
        1 << 34,
        0,
        1 << 50,
        "bytes",
        "what tables of queries that find no memory may take in temporary files, all together; 0: none are written",
    )
    query_timeout_s: int = _option(
        300, 0, 31_536_000, "seconds", "how long a query may run that says no timeout_s, and a firing; 0: for ever"
    )
    rules_timeout_s: int = _option(
        60,
        0,
        31_536_000,
        "seconds",
        "how long rules may take to follow one change; then the one at work is paused. 0: for ever",
    )
    rules_rows_max: int = _option(
        100_000_000,
        1,
        1 << 40,
        "rows",
        "how many triples rules may derive from one change; then the one at work is paused",
    )
    prepared_queries_max: int = _option(
        1024, 0, 1 << 20, "queries", "texts of one-shot queries that are kept parsed and planned; 0: none"
    )
    handle_age_max_s: int = _option(
        3600, 0, 31_536_000, "seconds", "how long a reader may hold back merging; then its handle is revoked (0: ever)"
    )
    view_lag_max_rows: int = _option(
        10_000_000,
        0,
        1 << 40,
        "rows",
        "how many inserted and deleted triples a live view may be behind by; beyond, it begins again at the newest "
        "snapshot, its readers with a reset, and holds back merging no longer (0: any number)",
    )
    view_lag_max_s: int = _option(
        600, 0, 31_536_000, "seconds", "how long a live view may be behind; then it begins again likewise (0: ever)"
    )
    load_bytes_max: int = _option(
        1 << 30, 1 << 20, 1 << 50, "bytes", "what a load may hold in flight, beside the graph and what it has built"
    )
    load_workers: int = _option(0, 0, 256, "threads", "how many read, sort and index for a load; 0: one for each core")
    sync_interval_ms: int = _option(
        0,
        0,
        60_000,
        "milliseconds",
        "0: what a data folder acknowledges was synced to the disk; n: it was written, and is synced at most every n "
        "ms while writing goes on, so that it survives the end of the process, but not of the machine",
    )
    log_segment_bytes: int = _option(
        64 << 20, 1 << 10, 1 << 40, "bytes", "how long one file of the log becomes before the next one begins"
    )
    checkpoint_bytes: int = _option(
        256 << 20, 1 << 10, 1 << 50, "bytes", "how much is logged between two checkpoints of a data folder"
    )
    load_from: tuple[str, ...] = field(
        default=(),
        metadata={
            "unit": "IRIs",
            "doc": "what LOAD of an update may fetch besides files of this machine: all whose IRI begins like one of "
            "these (in the environment, blanks between them)",
        },
    )
    contexts: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata={
            "unit": "pairs of an IRI and a file",
            "doc": "files that stand for contexts of JSON-LD, which are never fetched (in the environment IRI=FILE, "
            "blanks between them)",
        },
    )
    fetch_timeout_ms: int = _option(
        30_000, 1, 86_400_000, "milliseconds", "how long LOAD waits in all for what it fetches"
    )
    fetch_bytes_max: int = _option(
        1 << 28, 1, 1 << 50, "bytes", "what LOAD fetches at most, as it comes and also decompressed"
    )
    service_allowed: tuple[str, ...] = field(
        default=(),
        metadata={
            "unit": "IRIs",
            "doc": "the endpoints that SERVICE may ask: these, and all that lie in one that ends with a slash (in the "
            "environment, blanks between them)",
        },
    )
    service_timeout_ms: int = _option(
        30_000, 1, 86_400_000, "milliseconds", "how long SERVICE waits for one answer, within the time of the query"
    )
    service_bytes_max: int = _option(1 << 26, 1, 1 << 40, "bytes", "how long one answer to SERVICE may be")
    hash_bits: int = _option(
        62, 1, 62, "bits", "bits of the term hash that are used; fewer only to provoke collisions in tests"
    )

    def __post_init__(self) -> None:
        if isinstance(self.contexts, Mapping):
            object.__setattr__(self, "contexts", tuple((one, str(file)) for one, file in self.contexts.items()))
        for option in fields(self):
            _check(option.name, getattr(self, option.name), option.metadata, "")

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Return the settings: given values, else those of WUKONGS_<NAME>, else the defaults.

        Raises: SettingsError (a value that is no integer or out of bounds; it names the variable; an unknown name).
        """
        environment = os.environ if environment is None else environment
        known = {option.name: option for option in fields(Settings)}
        for name in given:
            if name not in known:
                raise SettingsError(f"{name} = {given[name]!r}: expected one of the options {', '.join(known)}")
        values = dict(given)
        for name, option in known.items():
            variable = variable_of(name)
            if name not in given and variable in environment:
                values[name] = _value(name, environment[variable], option.metadata, f" (from {variable})")
        return Settings(**values)


def settings_of(given: Settings | Mapping[str, Any] | None) -> Settings:
    """Return the settings that a caller has given: as they are, as a dictionary of options, or none; options that are
    not given are those of the environment. Raises SettingsError."""
    if isinstance(given, Settings):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise SettingsError(f"settings = {given!r:.100}: expected wukongs.Settings, or a dictionary of options")
    return Settings.from_environment(**(given or {}))


def variable_of(name: str) -> str:
    """Return the environment variable that sets an option."""
    return f"WUKONGS_{name.upper()}"


def _value(name: str, text: str, bounds: Mapping[str, Any], origin: str) -> Any:
    value: object = tuple(text.split())
    if name == "contexts":
        # An IRI may hold the sign itself, a path hardly does: the last one divides.
        value = tuple(tuple(one.rsplit("=", 1)) for one in text.split())
    if "low" in bounds:
        try:
            value = int(text)
        except ValueError:
            value = text
    return _check(name, value, bounds, origin)


def _check(name: str, value: object, bounds: Mapping[str, Any], origin: str) -> Any:
    if name == "contexts":
        if isinstance(value, tuple) and all(map(_is_context, value)):
            return value
        raise SettingsError(f"{name} = {value!r}{origin}: expected pairs of an absolute IRI and the path of a file")
    if "low" not in bounds:
        if isinstance(value, tuple) and all(isinstance(one, str) and PLACE.fullmatch(one) for one in value):
            return value
        raise SettingsError(f"{name} = {value!r}{origin}: expected a tuple of {_EXPECTED_PLACES}")
    if type(value) is int and bounds["low"] <= value <= bounds["high"]:
        return value
    raise SettingsError(
        f"{name} = {value!r}{origin}: expected an integer from {bounds['low']} to {bounds['high']}, in {bounds['unit']}"
    )


def _is_context(value: object) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, str) and one for one in value)
    return is_pair and re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", value[0]) is not None  # type: ignore[index]


def describe() -> str:
    """Return one line per option: name, default, unit, bounds, meaning and environment variable."""
    lines = []
    for option in fields(Settings):
        about = option.metadata
        bounds = f"{about['low']} to {about['high']}; " if "low" in about else ""
        default = f"{option.default} {about['unit']}" if "low" in about else "none"
        lines.append(f"{option.name} = {default} ({bounds}{variable_of(option.name)}): {about['doc']}")
    return "\n".join(lines)


def take_turns_quickly() -> None:
    """Let a thread that waits for the interpreter get it soon, in this process: at Python's default of 5 ms a thread
    that asks queries holds up the one that fires, at each of its kernel calls. A shorter interval stays
    (docs/decisions/0050)."""
    sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))

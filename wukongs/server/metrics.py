"""Metrics for Prometheus: counts of the engine, read when they are asked for, and of the requests themselves.

The first QUERIES_MAX queries and STREAMS_MAX streams have samples of their own; sums over all of them are always there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, islice
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wukongs.engine import Engine
from wukongs.live.query_counts import BUCKETS_US
from wukongs.server.feeds import Feeds

QUERIES_MAX, STREAMS_MAX = 1000, 1000
_ENGINE = {
    "sn": ("wukongs_snapshot", "newest snapshot number"),
    "sealed_ms": ("wukongs_sealed_milliseconds", "event time up to which stream batches are sealed"),
    "stored_triples": ("wukongs_stored_triples", "triples of the stored graph"),
    "stored_bytes": ("wukongs_stored_bytes", "bytes of the stored graph"),
    "stored_batches": ("wukongs_stored_batches", "batches of the stored graph: merging keeps them few"),
    "terms": ("wukongs_terms", "terms in the dictionary"),
    "term_bytes": ("wukongs_term_bytes", "bytes of the dictionary"),
}
_STREAM_GAUGES = {
    "closed_ms": ("closed_milliseconds", "event time up to which its stream batches are closed"),
    "waiting_bytes": ("waiting_bytes", "bytes of stream batches that wait to be closed"),
    "slice_bytes": ("slice_bytes", "bytes of its slices"),
    "slices": ("slices", "slices that are held"),
    "is_idle": ("idle", "1 while it brings nothing and follows the others, or the wall clock"),
}
_STREAM_COUNTERS = {
    "tuples": ("tuples", "tuples that have come"),
    "late": ("late_tuples", "tuples that came too late for their windows"),
    "carried": ("carried_tuples", "late tuples that windows that were not closed have got"),
    "dropped": ("dropped_tuples", "tuples of stream batches that were dropped"),
    "passed_over": ("passed_over_rows", "rows of pipelines that came again for closed stream batches"),
    "slices_evicted": ("evicted_slices", "slices that went for want of room"),
}
_QUERY_COUNTERS = {
    "windows": ("windows", "windows reported"),
    "rows": ("rows", "rows of these windows"),
    "errors": ("errors", "firings that failed"),
    "over_budget": ("firings_without_slices", "firings left out because their slices were gone"),
    "results_dropped": ("dropped_windows", "windows that went before they were read"),
}
_QUERY_GAUGES = {
    "last_rows": ("last_rows", "rows of the last window"),
    "results_waiting": ("waiting_windows", "windows that some reader has not read"),
    "unread_bytes": ("unread_bytes", "bytes of these"),
}
_VIEW_COUNTERS = {
    "reports": ("reports", "reports of live views"),
    "rows": ("rows", "rows of these reports"),
    "errors": ("errors", "changes that failed"),
    "resets_for_memory": ("resets_for_memory", "readers that had to begin again, since unread reports took too much"),
    "resets_for_lag": ("resets_for_lag", "times that a view was too far behind, and began again"),
}
_VIEW_GAUGES = {
    "sn": ("snapshot", "snapshot number up to which it is complete"),
    "kept_bytes": ("kept_bytes", "bytes that its operators keep"),
    "arguments": ("arguments", "arguments that are bound"),
    "unread_reports": ("unread_reports", "reports that some reader has not read"),
    "unread_bytes": ("unread_bytes", "bytes of these"),
}
_MEMORY = {
    "bytes_max": ("budget_bytes", "what queries, loads, results and windows may hold together"),
    "reserved_bytes": ("reserved_bytes", "what of it is reserved"),
    "free_bytes": ("free_bytes", "what of it is free"),
    "peak_bytes": ("peak_bytes", "the most that was reserved"),
    "waiting": ("waiting_reservations", "queries and loads that wait for memory"),
    "spilled_bytes": ("spilled_bytes", "temporary files of tables that find no memory"),
}
_MEMORY_COUNTERS = {
    "refused": ("refused_reservations", "reservations that were refused: queries go on in temporary files, or fail"),
    "spilled_total_bytes": ("written_spill_bytes", "bytes written to temporary files"),
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
_FEEDS = ("/queries/windows", "/queries/changes")
_OF_QUERY = ("windows", "changes", "content", "why", "explain")
_HISTOGRAMS = {
    "execution_us_histogram": ("execution", "how long its firings ran"),
    "latency_us_histogram": ("latency", "from the end of a window, as its streams tell it, to the answer"),
}
_BOUNDS = (*(f"{bound / 1e6:g}" for bound in BUCKETS_US), "+Inf")


class Metrics:
    """The registry of one server."""

    def __init__(self, engine: Engine, feeds: Feeds) -> None:
        self._engine, self._feeds = engine, feeds
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        self._requests = Counter(
            "wukongs_http_requests", "requests answered", ["path", "method", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "wukongs_http_request_seconds", "from a request to the end of its answer", ["path"], registry=self._registry
        )
        self._open = Gauge("wukongs_http_open_requests", "requests that are answered now", registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry: read the counts of the engine."""
        facts = self._engine.stats()
        for key, (name, told) in _ENGINE.items():
            yield GaugeMetricFamily(name, told, facts.get(key) or 0)
        yield CounterMetricFamily("wukongs_malformed_lines", "lines of files set aside", facts["malformed_lines"])
        yield GaugeMetricFamily("wukongs_snapshot_handles", "readers that hold snapshots", len(facts["handles"]))
        updates = facts["updates"]
        for key in ("requests", "operations", "deleted", "inserted"):
            yield CounterMetricFamily(f"wukongs_update_{key}", f"of updates: {key}", updates[key])
        for key, value in facts["durability"].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield GaugeMetricFamily(f"wukongs_durability_{key}", f"of the data folder: {key}", value)
        yield from _memory(facts["process"]["memory"])
        yield from _families("stream", facts["streams"], STREAMS_MAX, _STREAM_GAUGES, _STREAM_COUNTERS)
        yield from _families("query", facts["queries"], QUERIES_MAX, _QUERY_GAUGES, _QUERY_COUNTERS)
        yield from _families("view", facts.get("views", {}), QUERIES_MAX, _VIEW_GAUGES, _VIEW_COUNTERS)
        for key, (name, told) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(f"wukongs_query_{name}_seconds", told, labels=["query"])
            for query, counts in islice(facts["queries"].items(), QUERIES_MAX):
                found = counts.get(key)  # none of a node that does not answer
                if found:
                    buckets = list(zip(_BOUNDS, accumulate(found["counts"]), strict=True))
                    family.add_metric([query], buckets, found["sum_us"] / 1e6)
            yield family
        yield from _members(facts)
        yield GaugeMetricFamily("wukongs_feed_windows", "windows kept for subscribers", self._feeds.kept_count)
        yield GaugeMetricFamily("wukongs_feed_subscribers", "open subscriptions", self._feeds.subscriber_count)

    def written(self, request: Request) -> tuple[bytes, str]:
        """Return the metrics as text, and its media type, as the Accept header has it."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return encode(self._registry), content_type

    def counting(self, app: ASGIApp) -> ASGIApp:
        """Return the application with each request counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began_s, status = time.perf_counter(), 0

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            with self._open.track_inprogress():
                try:
                    await app(scope, receive, noting)
                finally:
                    path, method = _kind_of(scope["path"]), scope["method"]
                    method = method if method in _METHODS else "other"
                    self._requests.labels(path, method, status or 500).inc()
                    if path not in _FEEDS:  # which last as long as their readers like
                        self._seconds.labels(path).observe(time.perf_counter() - began_s)

        return counted


def _memory(facts: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the figures of the budget of queries, loads and results."""
    for key, (name, told) in _MEMORY.items():
        yield GaugeMetricFamily(f"wukongs_memory_{name}", told, facts[key])
    for key, (name, told) in _MEMORY_COUNTERS.items():
        yield CounterMetricFamily(f"wukongs_memory_{name}", told, facts[key])
    held = GaugeMetricFamily("wukongs_memory_held_bytes", "bytes reserved, by who holds them", labels=["kind"])
    for kind, size in facts["held_bytes"].items():
        held.add_metric([kind], size)
    yield held


def _kind_of(path: str) -> str:
    """Return what a path is about, of which there are few."""
    first = path.split("/")[1] if path.startswith("/") else ""
    known = ("sparql", "store", "streams", "queries", "metrics", "healthz", "readyz", "openapi.json")
    if first not in known:
        return "other"
    last = path.rsplit("/", 1)[-1]
    return f"/{first}/{last}" if first == "queries" and last in _OF_QUERY else f"/{first}"


def _families(
    kind: str,
    facts: Mapping[str, Mapping[str, Any]],
    count_max: int,
    gauges: Mapping[str, tuple[str, str]],
    counters: Mapping[str, tuple[str, str]],
) -> Iterable[Metric]:
    """Make the families of streams, queries or views: of each, and of all counters their sums."""
    plural = {"stream": "streams", "query": "queries", "view": "views"}[kind]
    yield GaugeMetricFamily(f"wukongs_{plural}", f"{plural} there are", len(facts))
    for key, (name, told) in gauges.items():
        family = GaugeMetricFamily(f"wukongs_{kind}_{name}", told, labels=[kind])
        for one, counts in islice(facts.items(), count_max):
            family.add_metric([one], counts.get(key) or 0)
        yield family
    for key, (name, told) in counters.items():
        each = CounterMetricFamily(f"wukongs_{kind}_{name}", told, labels=[kind])
        for one, counts in islice(facts.items(), count_max):
            each.add_metric([one], counts.get(key) or 0)
        yield each
        total = sum(counts.get(key) or 0 for counts in facts.values())
        yield CounterMetricFamily(f"wukongs_all_{plural}_{name}", f"{told}, of all {plural}", total)


def _members(facts: Mapping[str, Any]) -> Iterable[Metric]:
    members = facts.get("members")
    if not isinstance(members, Mapping):
        return
    family = GaugeMetricFamily("wukongs_node_role", "1 for the role that a node has", labels=["node", "role"])
    for node, role in members.items():
        family.add_metric([str(node), str(role)], 1)
    yield family
    ended = CounterMetricFamily(
        "wukongs_nodes_taken_out", "how often nothing was heard of a node, and the others went on", labels=["node"]
    )
    for node, count in facts["taken_out"].items():
        ended.add_metric([node], count)
    yield ended
    yield GaugeMetricFamily("wukongs_is_leader", "1 at the leader", int(facts.get("leader") == facts.get("node")))

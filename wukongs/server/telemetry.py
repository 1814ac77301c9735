"""Telemetry: spans of firings and requests for OpenTelemetry (the extra `otel`). It is imported when it is asked for.

A span of a firing has three parts: pick (from when it was due to when it ran), execute and deliver.
"""

from __future__ import annotations

import time
from importlib.metadata import entry_points

from wukongs.errors import SettingsError
from wukongs.live.tracing import LISTENING, Fired, Requested

try:
    from opentelemetry import propagate, trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
except ImportError as error:
    raise SettingsError(f"traces need OpenTelemetry ({error}): pip install 'wukongs[otel]'") from None

_EXPORTERS = "opentelemetry_traces_exporter"
_PARTS = ("pick", "execute", "deliver")


def begin_traces(provider: trace.TracerProvider) -> None:
    """Give spans to a provider from now on."""
    LISTENING.to = Spans(provider)


def end_traces() -> None:
    """Tell nobody any more."""
    LISTENING.to = None


def provider_for(exporter: str) -> TracerProvider:
    """Return a provider for an exporter by its name, such as console, or otlp if its package is installed; the
    exporter's own options are those of its environment variables. Raises SettingsError (there is none)."""
    known = {one.name: one for one in entry_points(group=_EXPORTERS)}
    if exporter not in known:
        raise SettingsError(
            f"--traces {exporter}: expected one of {', '.join(sorted(known)) or 'none'}; otlp needs "
            "opentelemetry-exporter-otlp"
        )
    provider = TracerProvider(resource=Resource.create({"service.name": "wukongs"}))
    provider.add_span_processor(BatchSpanProcessor(known[exporter].load()()))
    return provider


class Spans:
    """wukongs.live.tracing.Traces, as spans that are made when all is over."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("wukongs")

    def fired(self, told: Fired) -> None:
        zero_ns = _zero_ns()
        facts: dict[str, str | int] = {
            "wukongs.query": told.query,
            "wukongs.window_end_ms": told.end_ms,
            "wukongs.windows": told.windows,
        }
        if told.rows is not None and told.snapshot is not None:
            facts |= {"wukongs.rows": told.rows, "wukongs.snapshot": told.snapshot}
        times = [zero_ns + round(s * 1e9) for s in (told.due_s, told.begun_s, told.executed_s, told.delivered_s)]
        # None in the place of the current span: a firing is nobody's part.
        whole = self._tracer.start_span("firing", trace.set_span_in_context(trace.INVALID_SPAN), start_time=times[0])
        whole.set_attributes(facts)
        if told.error is not None:
            whole.set_status(trace.StatusCode.ERROR, told.error)
        inside = trace.set_span_in_context(whole)
        for part, begin_ns, end_ns in zip(_PARTS, times, times[1:], strict=False):
            self._tracer.start_span(part, inside, start_time=begin_ns).end(end_ns)
        whole.end(times[-1])

    def requested(self, told: Requested) -> None:
        zero_ns = _zero_ns()
        facts: dict[str, str | int] = {
            "http.request.method": told.method,
            "url.path": told.path,
            "http.response.status_code": told.status,
            "wukongs.request": told.name,
        }
        around = propagate.extract(told.headers)
        begun_ns = zero_ns + round(told.begun_s * 1e9)
        span = self._tracer.start_span(
            f"{told.method} {told.path}", around, trace.SpanKind.SERVER, facts, start_time=begun_ns
        )
        if told.status >= 500:
            span.set_status(trace.StatusCode.ERROR)
        span.end(zero_ns + round(told.answered_s * 1e9))


def _zero_ns() -> int:
    """Return the time at which time.perf_counter was 0, in nanoseconds."""
    return time.time_ns() - time.perf_counter_ns()

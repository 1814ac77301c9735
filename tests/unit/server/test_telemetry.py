"""Spans of firings and requests, by the exporter in memory; nothing is imported or told unless that is asked for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.unit.server.asking import QUERY, Client

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from wukongs.server.telemetry import begin_traces, end_traces, provider_for

S = "http://ex/s"
TEXT = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    begin_traces(provider)
    yield exporter
    end_traces()


def fire(engine: wukongs.Engine, stream: Any) -> None:
    stream.push([(f"<http://ex/{n}>", "<http://ex/p>", '"x"', 500) for n in range(5)])
    stream.advance(1000)
    engine.settle(20)


def test_a_firing_has_three_parts(exporter: InMemorySpanExporter, engine: wukongs.Engine) -> None:
    stream = engine.stream(S, timing=True, batch_ms=100)
    query = engine.register(TEXT)
    fire(engine, stream)
    (window,) = query.results(0)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"firing", "pick", "execute", "deliver"}
    whole = spans["firing"]
    assert dict(whole.attributes or {}) == {
        "wukongs.query": "q",
        "wukongs.window_end_ms": 1000,
        "wukongs.windows": 1,
        "wukongs.rows": 5,
        "wukongs.snapshot": window.snapshot,
    }
    parts = [spans[name] for name in ("pick", "execute", "deliver")]
    assert whole.parent is None
    assert {span.parent.span_id for span in parts if span.parent is not None} == {whole.get_span_context().span_id}
    times = [whole.start_time, *(span.end_time for span in parts)]
    assert [span.start_time for span in parts] == times[:-1]
    assert times == sorted(times, key=lambda ns: ns or 0)
    assert whole.end_time == times[-1]


def test_a_request_is_part_of_its_clients_trace(exporter: InMemorySpanExporter, client: Client) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": parent, "X-Request-Id": "r1"}
    client.ask("POST", "/sparql", body="SELECT {", content_type=QUERY, headers=headers)
    deadline = time.monotonic() + 10  # it ends a little after the answer
    while not exporter.get_finished_spans() and time.monotonic() < deadline:
        time.sleep(0.01)
    (span,) = exporter.get_finished_spans()
    assert isinstance(span, ReadableSpan)
    assert (span.name, span.parent and f"{span.parent.span_id:016x}") == ("POST /sparql", "b7ad6b7169203331")
    facts = dict(span.attributes or {})
    assert (facts["http.response.status_code"], facts["wukongs.request"]) == (400, "r1")


def test_an_exporter_that_is_not_there() -> None:
    with pytest.raises(wukongs.SettingsError, match="--traces none: expected one of console"):
        provider_for("none")


@pytest.mark.slow
def test_nothing_is_imported_unless_that_is_asked_for() -> None:
    code = "import sys, wukongs.server.http_server, wukongs.cli.serve; print('opentelemetry' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ran.stdout.strip(), ran.stderr) == ("False", "")

"""Metrics: what Prometheus reads is what the engine counts, and the dashboard asks for names that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import wukongs
from tests.unit.server.asking import QUERY, Client
from wukongs.server import metrics

DASHBOARD = Path(__file__).resolve().parents[3] / "deploy" / "grafana.json"
S = "http://ex/s"
TEXT = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(client: Client) -> Samples:
    answer = client.ask("GET", "/metrics")
    assert (answer.status, answer.kind) == (200, "text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


@pytest.fixture
def busy(client: Client, engine: wukongs.Engine) -> Client:
    stream = engine.stream(S, timing=True, batch_ms=100)
    client.ask("POST", "/queries", body=TEXT, content_type=QUERY)
    stream.push([(f"<http://ex/{n}>", "<http://ex/p>", '"x"', 500) for n in range(5)])
    stream.advance(2000)
    engine.settle(10)
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1, 2 }")
    return client


def test_counts_of_the_engine(busy: Client) -> None:
    assert len(busy.windows("q", 2)) == 2
    busy.get("SELECT {")
    found = samples(busy)
    assert value(found, "wukongs_stored_triples") == 2
    assert value(found, "wukongs_stream_tuples_total", stream=S) == 5
    assert value(found, "wukongs_stream_closed_milliseconds", stream=S) == 2000
    assert value(found, "wukongs_query_windows_total", query="q") == 2
    assert value(found, "wukongs_query_rows_total", query="q") == value(found, "wukongs_all_queries_rows_total") == 5
    assert value(found, "wukongs_update_inserted_total") == 2
    assert value(found, "wukongs_feed_windows") == 2
    assert value(found, "wukongs_http_requests_total", path="/sparql", method="GET", status="400") == 1
    assert value(found, "wukongs_http_request_seconds_count", path="/sparql") == 1
    assert value(found, "process_resident_memory_bytes") > 1e6


def test_the_budget_of_memory(client: Client, engine: wukongs.Engine) -> None:
    engine.update("INSERT DATA { " + " ".join(f"<http://ex/a> <http://ex/p> {n} ." for n in range(500)) + " }")
    result = engine.query("SELECT * { ?a ?p ?b . ?c ?q ?d }")
    found = samples(client)
    assert value(found, "wukongs_memory_held_bytes", kind="results") >= 6 * 8 * len(result) == 12_000_000
    assert value(found, "wukongs_memory_reserved_bytes") >= 12_000_000
    names = ("budget", "reserved", "free")
    budget, reserved, free = (value(found, f"wukongs_memory_{name}_bytes") for name in names)
    assert (budget >= 256 << 20, reserved + free) == (True, budget)
    assert value(found, "wukongs_memory_waiting_reservations") == value(found, "wukongs_memory_spilled_bytes") == 0
    assert value(found, "wukongs_memory_refused_reservations_total") >= 0
    assert value(found, "wukongs_memory_written_spill_bytes_total") >= 0


def test_histograms_of_firings(busy: Client) -> None:
    """Each window counts once, in the buckets from its latency on."""
    events = busy.windows("q", 2)
    windows = [event["data"]["latency_us"] / 1e6 for event in events]
    for name in ("latency", "execution"):
        found = samples(busy)
        buckets = {
            float(dict(labels)["le"]): count
            for (one, labels), count in found.items()
            if one == f"wukongs_query_{name}_seconds_bucket"
        }
        assert (min(buckets), max(buckets), sorted(buckets)[-2]) == (50e-6, float("inf"), 10)
        counts = [buckets[bound] for bound in sorted(buckets)]
        assert counts == sorted(counts)
        assert counts[-1] == value(found, f"wukongs_query_{name}_seconds_count", query="q") > 0
        assert value(found, f"wukongs_query_{name}_seconds_sum", query="q") > 0
        if name == "latency":
            assert buckets == {bound: sum(one <= bound for one in windows) for bound in buckets}


def test_few_paths_and_methods_are_told_apart(client: Client) -> None:
    for path in ("/a", "/b/c", "/queries/x/y/z/why", "/streams/one", "/streams/two"):
        client.ask("GET", path)
    client.ask("PATCH", "/a")
    told = {labels for name, labels in samples(client) if name == "wukongs_http_requests_total"}
    assert {(dict(one)["path"], dict(one)["method"]) for one in told} == {
        ("other", "GET"),
        ("/queries/why", "GET"),
        ("/streams", "GET"),
        ("other", "other"),
    }


def test_of_many_queries_some_are_told_and_all_are_summed(
    busy: Client, engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "QUERIES_MAX", 3)
    for n in range(5):
        engine.register(TEXT.replace("QUERY q", f"QUERY q{n}"))
    found = samples(busy)
    assert len([name for name, _ in found if name == "wukongs_query_windows_total"]) == 3
    assert value(found, "wukongs_queries") == 6
    assert value(found, "wukongs_all_queries_windows_total") == 2


def test_as_open_metrics(busy: Client) -> None:
    answer = busy.ask("GET", "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.kind == "application/openmetrics-text"
    assert answer.text.endswith("# EOF\n")


def test_the_dashboard_asks_for_metrics_that_there_are(busy: Client) -> None:
    busy.get("ASK {}")
    asked = {
        name
        for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b(?:wukongs|process)_\w+", target["expr"])
    }
    assert len(asked) > 15
    assert asked - {name for name, _ in samples(busy)} == set()

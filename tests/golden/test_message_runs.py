"""`wukongs run` over MQTT, a WebSocket and server-sent events: the windows that plain Python makes, bad ones aside."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from websockets.sync.server import ServerConnection

from tests.fuzz import first_and_slow
from tests.golden.run_output import WINDOW
from tests.processes import child
from tests.unit.adapters import test_sse, test_websocket
from tests.unit.adapters.brokers import broker, free_port, publisher

RUN = """
[pipeline]
engine = "local"
spool = "spool"
bad_records_max = 1
[[stream]]
iri = "http://ex/s"
batch_ms = 100
[stream.source]
format = "jsonl"
%s
[stream.source.mapping]
subject = "http://ex/{id}"
time = { column = "t", format = "epoch_ms" }
[[stream.source.mapping.triple]]
predicate = "http://ex/p"
value = "{v}"
[[query]]
name = "Q"
text = "REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s <http://ex/p> ?o }"
"""
MESSAGES = [json.dumps({"id": n, "t": 10 * n, "v": f"v{n}"}) if n % 50 else "{broken" for n in range(1, 400)]


def expected() -> dict[int, int]:
    windows: dict[int, int] = defaultdict(int)
    for text in MESSAGES:
        if text != "{broken":
            windows[-(-json.loads(text)["t"] // 1000) * 1000] += 1
    return dict(windows)


@contextmanager
def mqtt() -> Iterator[tuple[str, Callable[[], None]]]:
    port = free_port()

    def send() -> None:
        for text in MESSAGES:
            publish("a/b", text, 1)

    with broker(port), publisher(port) as publish:
        ours = Client(CallbackAPIVersion.VERSION2, client_id="we", clean_session=False)
        known = threading.Event()
        ours.on_connect = lambda *_: ours.subscribe("a/#", 1)
        ours.on_subscribe = lambda *_: known.set()
        ours.connect("127.0.0.1", port)
        ours.loop_start()
        assert known.wait(20)
        ours.disconnect()
        ours.loop_stop()
        yield f'kind = "mqtt"\nbroker = "127.0.0.1:{port}"\ntopics = "a/#"\nclient_id = "we"', send


@contextmanager
def websocket() -> Iterator[tuple[str, Callable[[], None]]]:
    def handle(connection: ServerConnection) -> None:
        for text in MESSAGES:
            connection.send(text)
        test_websocket.stay(connection)

    with test_websocket.serving(handle) as base:
        yield f'kind = "websocket"\nurl = "{base}/"', lambda: None


@contextmanager
def sse() -> Iterator[tuple[str, Callable[[], None]]]:
    events = test_sse.Events()
    events.head = b"".join(f"data: {text}\n\n".encode() for text in MESSAGES)
    with test_sse.serving(events) as base:
        yield f'kind = "sse"\nurl = "{base}/"', lambda: None


@pytest.mark.slow
@pytest.mark.parametrize("serve", first_and_slow([websocket, mqtt, sse]))
def test_a_run_has_the_windows_of_its_messages_until_it_is_interrupted(
    tmp_path: Path, serve: Callable[[], object]
) -> None:
    windows: dict[int, int] = {}
    with serve() as (source, send):  # type: ignore[attr-defined]
        (tmp_path / "run.toml").write_text(RUN % source)
        command = [sys.executable, "-m", "wukongs", "run", str(tmp_path / "run.toml"), "--plain"]
        with child(command) as run:
            assert run.stdout is not None
            send()
            for line in run.stdout:
                cells = line.split("\t")
                if len(cells) == 3 and (bounds := WINDOW.fullmatch(cells[1])):
                    windows[int(bounds[2])] = int(cells[2].split()[0])
                if len(windows) == 3:
                    break
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=60)
            assert run.returncode == 130
    assert windows == {end: count for end, count in expected().items() if end <= 3000}
    dead = [json.loads(line) for line in (tmp_path / "run.dead.jsonl").read_text().splitlines()]
    assert [one["text"] for one in dead][:5] == ["{broken"] * 5

"""The keys of MQTT, WebSocket and server-sent events in a run file: what they give, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wukongs.adapters.feeds import mqtt, sse, websocket
from wukongs.adapters.feeds.contact import TlsOptions, package
from wukongs.adapters.feeds.kinds import KINDS
from wukongs.errors import SettingsError
from wukongs.settings.toml_reader import read_toml


def options(folder: Path, kind: str, text: str) -> Any:
    (folder / "run.toml").write_text(text)
    for name in ("ca.pem", "cert.pem", "key.pem", "empty"):
        (folder / name).touch()
    (folder / "password").write_text("s3cret\n")
    reader = read_toml(folder / "run.toml", {"TOKEN": "t0ken"})
    found = KINDS[kind].options(reader)
    reader.done()
    return found


def test_all_keys(tmp_path: Path) -> None:
    tls = TlsOptions(*(str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem")))
    files = 'ca_file = "ca.pem"\ncert_file = "cert.pem"\nkey_file = "key.pem"\n'
    assert options(
        tmp_path,
        "mqtt",
        'broker = "h:1"\ntopics = ["a/+", "b/#"]\nqos = 0\nclient_id = "we"\n'
        'username = "u"\npassword_file = "password"\n' + files,
    ) == mqtt.MqttOptions("h", 1, ("a/+", "b/#"), 0, "we", "u", "s3cret", tls)
    assert options(
        tmp_path,
        "sse",
        'url = "https://h/e?k=${TOKEN}"\nevents = "a"\nheaders = { A = "B ${TOKEN}" }\nfollow = false\n' + files,
    ) == sse.SseOptions("https://h/e?k=t0ken", ("a",), (("A", "B t0ken"),), tls, True)
    assert options(
        tmp_path, "websocket", 'url = "wss://h/e"\nsubscribe = ["a", "${TOKEN}"]\nping_ms = 500\n' + files
    ) == websocket.WebSocketOptions("wss://h/e", ("a", "t0ken"), (), 0.5, tls)


def test_what_is_left_out(tmp_path: Path) -> None:
    found = options(tmp_path, "mqtt", 'broker = "h"\ntopics = "a"')
    assert found == mqtt.MqttOptions("h", 1883, ("a",))
    assert "s3cret" not in repr(mqtt.MqttOptions("h", 1, ("a",), password="s3cret"))
    assert options(tmp_path, "mqtt", 'broker = "[::1]"\ntopics = "a"\ntls = true').address == "::1:8883"
    assert KINDS["mqtt"].name(found) == "h:1883/a"
    assert KINDS["sse"].name(options(tmp_path, "sse", 'url = "http://u:p@h/e?k=s3cret"')) == "h/e"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("mqtt", 'topics = "a"', "broker: expected a text, found nothing"),
        ("mqtt", 'broker = "mqtt://h"\ntopics = "a"', "broker: expected host:port"),
        ("mqtt", 'broker = "h:0"\ntopics = "a"', "broker: expected host:port"),
        ("mqtt", 'broker = "h"', "topics: expected a topic or a list of topics, found none"),
        ("mqtt", 'broker = "h"\ntopics = "a/#/b"', "topics: expected + for one whole level"),
        ("mqtt", 'broker = "h"\ntopics = ["a+"]', "topics: expected + for one whole level"),
        ("mqtt", 'broker = "h"\ntopics = "a"\nqos = 2', "qos: expected 0 or 1, found 2: with 2 a message is confirmed"),
        ("mqtt", 'broker = "h"\ntopics = "a"\nqos = 3', "qos: expected 0 or 1, found 3"),
        ("mqtt", 'broker = "h"\ntopics = "a"\npassword_file = "password"', "password_file: expected username"),
        ("mqtt", 'broker = "h"\ntopics = "a"\nkey_file = "key.pem"', "key_file: expected cert_file beside it"),
        ("mqtt", 'broker = "h"\ntopics = "a"\ntls = false\nca_file = "ca.pem"', "tls: expected true beside ca_file"),
        ("sse", 'url = "ftp://h"', "url: expected http://host/path or https://host/path, found 'ftp://h'"),
        ("sse", 'url = "http://h:x/"', "url: expected http://host/path"),
        ("sse", 'url = "http://h/${NOT_THERE}"', "url: expected the environment variable NOT_THERE to be set"),
        ("sse", 'url = "http://h/"\nheaders = { A = "b\\nc" }', "headers.A: expected a header in ASCII"),
        ("sse", 'url = "http://h/"\nevents = [1]', "events: expected a text or a list of texts"),
        ("websocket", 'url = "http://h/"', "url: expected ws://host/path or wss://host/path"),
        ("websocket", 'url = "ws://h/"\nping_ms = 0', "ping_ms: expected an integer >= 1"),
    ],
)
def test_wrong_settings_say_what_was_expected(tmp_path: Path, kind: str, text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as error:
        options(tmp_path, kind, text)
    assert expected in str(error.value)


@pytest.mark.parametrize(("kind", "extra"), [("mqtt", "mqtt"), ("websocket", "websocket")])
def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, kind: str, extra: str) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("wukongs.adapters.feeds.contact.importlib.import_module", missing)
    given = mqtt.MqttOptions("h", 1, ("a",)) if kind == "mqtt" else websocket.WebSocketOptions("ws://h/")
    with pytest.raises(SettingsError, match=rf'is not installed. Install it: pip install "wukongs\[{extra}\]"'):
        KINDS[kind].reader(given, None)
    with pytest.raises(SettingsError):
        package("nothing", "x")

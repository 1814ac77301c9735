"""What a run file says of a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wukongs.adapters.feeds import kafka
from wukongs.adapters.feeds.kafka import KafkaOptions
from wukongs.adapters.run_config import load_run_config
from wukongs.errors import SettingsError


def _options(folder: Path, text: str, **environment: str) -> Any:
    """The options of a source of messages in Turtle."""
    source = f'kind = "kafka"\nformat = "ttl"\ntime = {{ column = "_time" }}\n{text}'
    (folder / "run.toml").write_text(f'[[stream]]\niri = "http://ex/s"\n[stream.source]\n{source}')
    return load_run_config(folder / "run.toml", environment).streams[0].sources[0].options  # type: ignore[union-attr]


def test_the_defaults(tmp_path: Path) -> None:
    found = _options(tmp_path, 'bootstrap = "a:1,b:2"\ntopic = "t"')
    assert found == KafkaOptions("a:1,b:2", "t", from_end=False, follow=True, properties=())
    assert found.client["bootstrap.servers"] == "a:1,b:2"


def test_properties_come_from_tables_and_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    found = _options(
        tmp_path,
        'bootstrap = "${AT:-h:9092}"\ntopic = "${TOPIC}"\nstart = "end"\nfollow = false\n'
        '[stream.source.kafka]\nsecurity.protocol = "SASL_SSL"\n"sasl.password" = "${SECRET}"\n'
        'fetch.wait.max.ms = 10\n"enable.ssl.certificate.verification" = false',
        TOPIC="trips",
        SECRET="hush",
    )
    assert (found.bootstrap, found.topic, found.from_end, found.follow) == ("h:9092", "trips", True, False)
    assert dict(found.properties) == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "hush",
        "fetch.wait.max.ms": "10",
        "enable.ssl.certificate.verification": "false",
    }
    assert found.client["fetch.wait.max.ms"] == "10"
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('topic = "t"', "line 3, stream.0..source.bootstrap: expected a text, found nothing"),
        ('bootstrap = "h:1"', "topic: expected a text, found nothing"),
        ('bootstrap = "h"\ntopic = "t"', "bootstrap: expected host:port, several with commas between them, found 'h'"),
        ('bootstrap = "h:1,i:x"\ntopic = "t"', "bootstrap: expected host:port"),
        ('bootstrap = "${AT}"\ntopic = "t"', "bootstrap: expected the environment variable AT to be set"),
        ('bootstrap = "h:1"\ntopic = "t"\nstart = "middle"', "start: expected one of 'beginning', 'end'"),
        ('bootstrap = "h:1"\ntopic = "t"\nfolow = true', "found the unknown key 'folow'; did you mean follow"),
        (
            'bootstrap = "h:1"\ntopic = "t"\nkafka = { bootstrap = { servers = "i:1" } }',
            r"kafka.bootstrap.servers: expected a property that is not set by other means",
        ),
        ('bootstrap = "h:1"\ntopic = "t"\nkafka = { "a.b" = [1] }', r"a.b: expected a text, found \[1\]"),
    ],
)
def test_what_will_not_do_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        _options(tmp_path, text)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r'pip install "wukongs\[kafka\]"'):
        _options(tmp_path, 'bootstrap = "h:1"\ntopic = "t"')

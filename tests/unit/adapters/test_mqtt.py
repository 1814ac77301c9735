"""Messages of a real MQTT broker: confirmed once they are safe, and sent again if they were not."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client

from tests.unit.adapters.brokers import broker, free_port, mosquitto, publisher
from tests.unit.adapters.spooled import certificate, spooled
from tests.unit.adapters.test_spool_feed import FullDisk
from tests.unit.wire.conftest import wait_until
from wukongs.adapters.feeds.contact import TlsOptions
from wukongs.adapters.feeds.mqtt import MqttOptions, MqttReader
from wukongs.errors import SettingsError


def reader(port: int, *topics: str, **options: Any) -> MqttReader:
    return MqttReader(MqttOptions("127.0.0.1", port, topics or ("a/#",), **options), None)


@pytest.fixture
def subscribed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which brokers have answered to subscriptions, as they come."""
    found: list[int] = []
    handle = Client._handle_suback  # type: ignore[attr-defined]

    def note(client: Client) -> Any:
        found.append(client._in_packet["packet"][-1])
        return handle(client)

    monkeypatch.setattr(Client, "_handle_suback", note)
    return found


@pytest.fixture
def acks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the messages that were confirmed, as that happens."""
    found: list[int] = []
    ack = Client.ack

    def note(client: Client, mid: int, qos: int) -> Any:
        found.append(mid)
        return ack(client, mid, qos)

    monkeypatch.setattr(Client, "ack", note)
    return found


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_arrive_with_their_topics(tmp_path: Path, subscribed: list[int], qos: int) -> None:
    port = free_port()
    topics = ("a/x/c", "b", "b/y/z", "a/x")
    published = [(f"m{number} é", topics[number % 4], number % 3) for number in range(24)]
    expected = [(text, {"_topic": topic}) for text, topic, _ in published if topic != "a/x"]
    with (
        broker(port),
        publisher(port) as publish,
        spooled(tmp_path / "spool", reader(port, "a/+/c", "b/#", qos=qos)) as one,
    ):
        wait_until(lambda: bool(subscribed), "the subscription")
        for text, topic, with_qos in published:
            publish(topic, text, with_qos)
        assert one.wait_for(len(expected)) == expected
        assert not one.is_ended
    assert set(subscribed) == {qos}


def test_what_comes_while_we_are_away_is_kept_for_our_name(tmp_path: Path, subscribed: list[int]) -> None:
    port = free_port()
    texts = [f"m{number}" for number in range(30)]
    with broker(port) as made, publisher(port) as publish:
        for life in range(3):
            with spooled(tmp_path / "spool", reader(port, client_id="we")) as one:
                wait_until(lambda life=life: len(subscribed) > life, "the subscription")  # type: ignore[misc]
                for text in texts[10 * life : 10 * life + 5]:
                    publish("a/b", text)
                one.wait_for(10 * life + 5)
                wait_until(lambda: not one.feed._puts, "the confirmations")
            # This broker drops what it sends to a connection that it does not yet know to be gone.
            wait_until(lambda: made._sessions["we"][0].transitions.state == "disconnected", "the end of the session")
            for text in texts[10 * life + 5 : 10 * life + 10]:
                publish("a/b", text)
        with spooled(tmp_path / "spool", reader(port, client_id="we")) as one:
            assert [text for text, _ in one.wait_for(30)] == texts
        assert one.said == []


def test_nothing_is_confirmed_that_the_disk_has_not_taken(
    tmp_path: Path, subscribed: list[int], acks: list[int]
) -> None:
    port, disk = free_port(), FullDisk()
    with (
        broker(port),
        publisher(port) as publish,
        spooled(tmp_path / "spool", reader(port, client_id="we"), disk) as one,
    ):
        wait_until(lambda: bool(subscribed), "the subscription")
        disk.is_full = True
        for number in range(4):
            publish("a/b", f"m{number}")
        one.wait_until_said("No space left")
        publish("a/b", "m4")
        wait_until(lambda: bool(one.feed._puts), "a message behind those that are being written")
        assert (acks, one.texts()) == ([], [])
        disk.is_full = False
        one.wait_for(5)
        wait_until(lambda: len(acks) == 5, "the confirmations")


@pytest.mark.slow
def test_what_the_disk_has_not_taken_is_sent_again(tmp_path: Path, subscribed: list[int]) -> None:
    port, disk = free_port(), FullDisk()
    with mosquitto(port), publisher(port) as publish:
        with spooled(tmp_path / "spool", reader(port, client_id="we"), disk) as one:
            wait_until(lambda: bool(subscribed), "the subscription")
            publish("a/b", "before")
            one.wait_for(1)
            wait_until(lambda: not one.feed._puts, "the confirmation")
            disk.is_full = True
            for number in range(4):
                publish("a/b", f"m{number}")
            one.wait_until_said("No space left")
            publish("a/b", "m4")
            wait_until(lambda: bool(one.feed._puts), "a message behind those that are being written")
        with spooled(tmp_path / "spool", reader(port, client_id="we")) as one:
            found = [text for text, _ in one.wait_for(6)]
            assert found == ["before", *(f"m{number}" for number in range(5))]


READER = """
import sys, time
from pathlib import Path
from tests.unit.adapters.spooled import spooled
from tests.unit.adapters.test_mqtt import reader
from wukongs.store.disk import Disk

class SlowDisk(Disk):
    def write(self, file, data):
        super().write(file, data)
        print("written", flush=True)

    def fsync(self, file):
        time.sleep(0.02)

with spooled(Path(sys.argv[1]), reader(int(sys.argv[2]), client_id="we"), SlowDisk()):
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_reader_that_is_killed_has_lost_nothing(tmp_path: Path) -> None:
    port, texts = free_port(), [f"m{number}" for number in range(400)]
    with mosquitto(port), publisher(port) as publish:
        for life in range(4):
            command = [sys.executable, "-c", READER, str(tmp_path / "spool"), str(port)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == "written\n"  # the head of a segment
                if life == 0:  # a message that comes back says that the topic is known
                    for number in range(3000):
                        publish("a/first", f"first {number}")
                        if _readable(child.stdout, 0.04):
                            break
                for text in texts[100 * life : 100 * life + 100]:
                    publish("a/b", text, 1)
                    if text.endswith(str(50 + life)):
                        os.kill(child.pid, signal.SIGKILL)
                child.kill()
        with spooled(tmp_path / "spool", reader(port, client_id="we")) as one:
            wait_until(lambda: set(texts) <= set(one.texts()), "all of them")
            found = [text for text in one.texts() if text in set(texts)]
    assert set(found) == set(texts)
    assert len(found) < 2 * len(texts), "only what was on its way comes twice"


def _readable(pipe: Any, seconds: float) -> bool:
    return bool(select.select([pipe], [], [], seconds)[0])


@pytest.mark.slow
def test_a_message_is_confirmed_on_its_own_connection_only(
    tmp_path: Path, subscribed: list[int], acks: list[int]
) -> None:
    port, disk = free_port(), FullDisk()
    with spooled(tmp_path / "spool", reader(port, client_id="we"), disk) as one:
        for life in range(2):
            with broker(port):
                wait_until(lambda life=life: len(subscribed) == life + 1, "the subscription")  # type: ignore[misc]
                disk.is_full = True
                with publisher(port) as publish:
                    publish("a/b", f"life {life}")
                    one.wait_until_said("No space left")
                    if life == 1:
                        wait_until(lambda: bool(one.feed._puts), "the second message")
                        disk.is_full = False
                        assert [text for text, _ in one.wait_for(2)] == ["life 0", "life 1"]
                        wait_until(lambda: bool(acks), "a confirmation")
    assert len(acks) == 1
    assert any("has forgotten us" in text for text in one.said)


@pytest.mark.slow
def test_a_broker_that_goes_away_and_comes_back_is_said_once(tmp_path: Path, subscribed: list[int]) -> None:
    port = free_port()
    with spooled(tmp_path / "spool", reader(port)) as one:
        for life in range(2):
            one.wait_until_said("trying again")
            wait_until(lambda: not one.feed.look().is_heard, "the loss")
            with broker(port), publisher(port) as publish:
                wait_until(lambda life=life: len(subscribed) == life + 1, "the subscription")  # type: ignore[misc]
                assert one.feed.look().is_heard
                publish("a/b", f"life {life}")
                one.wait_for(life + 1)
        wait_until(lambda: len(one.said) == 5, "the loss to be said")
        assert one.texts() == ["life 0", "life 1"]
    said = [text.removeprefix("http://ex/s, part: ") for text in one.said]
    assert [text.split(" ")[0] for text in said] == ["no", "connected", "no", "connected", "no"]
    assert "Connection refused" in said[0]
    assert [text.endswith("again") for text in said] == [True, False, True, True, True]


def test_a_slow_spool_pauses_the_reader(tmp_path: Path, subscribed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.adapters.feeds.spool_feed.FRAME_BYTES", 1000)
    port = free_port()
    with broker(port), publisher(port) as publish:
        with spooled(tmp_path / "spool", reader(port), bytes_max=1000) as one:
            wait_until(lambda: bool(subscribed), "the subscription")
            for number in range(60):
                publish("a/b", f"{number:1000}")
            wait_until(lambda: one.feed._put_bytes > 8000, "the reader to wait")
            assert not one.feed._stopped.wait(0.2)
            assert one.feed._put_bytes < 10_000
            while one.spool.end_row < 60:
                one.feed.look()
                one.feed.release(one.spool.end_row)
                one.feed._stopped.wait(0.01)
        assert one.said == []


def test_a_wrong_password_is_an_error(tmp_path: Path, subscribed: list[int]) -> None:
    port = free_port()
    with broker(port):
        asked = reader(port, username="us", password="wrong")
        with spooled(tmp_path / "one", asked) as one, pytest.raises(SettingsError, match="the broker refuses us"):
            wait_until(lambda: not one.feed.look().is_open, "the error")
        with spooled(tmp_path / "two", reader(port, username="us", password="right")) as one:
            wait_until(lambda: bool(subscribed), "the subscription")
            assert one.said == []


def test_a_topic_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    port, reason = free_port(), r"the broker refuses the topic 'secret/#'"
    with (
        broker(port),
        spooled(tmp_path / "spool", reader(port, "a", "secret/#")) as one,
        pytest.raises(SettingsError, match=reason),
    ):
        wait_until(lambda: not one.feed.look().is_open, "the error")


def test_a_certificate_is_checked(tmp_path: Path, subscribed: list[int]) -> None:
    cert, key = certificate(tmp_path)
    port = free_port()
    with broker(port, ssl=True, certfile=cert, keyfile=key):
        with spooled(tmp_path / "one", reader(port, tls=TlsOptions(cert))):
            wait_until(lambda: bool(subscribed), "the subscription")
        reason = r"its certificate is not trusted .* as ca_file"
        asked = reader(port, tls=TlsOptions())
        with spooled(tmp_path / "two", asked) as one, pytest.raises(SettingsError, match=reason):
            wait_until(lambda: not one.feed.look().is_open, "the error")

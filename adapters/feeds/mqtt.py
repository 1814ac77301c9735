"""Messages of an MQTT broker (`kind = "mqtt"`): each message of the topics is a record.

A message with QoS 1 is confirmed to the broker once it is safe in the spool, so the broker sends again what was not.
That is at least once: a confirmation that is lost with its connection brings its message a second time. QoS 2 is
refused: the library confirms such a message as soon as it comes, and has lost it if the process ends before it is safe.
"""

from __future__ import annotations

import ssl
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wukongs.adapters.feeds.contact import (
    CONNECT_S,
    LOOK_S,
    Contact,
    TlsOptions,
    file_text,
    package,
    refuse_header,
    texts_in,
    tls_options,
    untrusted,
)
from wukongs.adapters.feeds.feed import Inlet, Kind
from wukongs.adapters.mapping.mapping import Csv
from wukongs.errors import SettingsError
from wukongs.settings.toml_reader import TableReader

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

KEEP_ALIVE_S = 60
RECONNECT_S = 1, 5
PORT, TLS_PORT = 1883, 8883
_REFUSALS = range(0x84, 0x88)
"""These codes concern the protocol version, the client's id, its password and its rights."""


@dataclass(frozen=True, slots=True)
class MqttOptions:
    """client_id: under which the broker keeps what comes while we are away; without one it keeps nothing."""

    host: str
    port: int
    topics: tuple[str, ...]
    qos: int = 1
    client_id: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsOptions | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def _options(reader: TableReader) -> MqttOptions:
    tls = tls_options(reader)
    if reader.flag("tls", tls is not None):
        tls = tls or TlsOptions()
    elif tls is not None:
        raise reader.error("tls", "true beside ca_file, cert_file or key_file", "false")
    host, port = _broker(reader, PORT if tls is None else TLS_PORT)
    topics = texts_in(reader, "topics")
    if not topics:
        raise reader.error("topics", "a topic or a list of topics", "none")
    for topic in topics:
        if not _is_filter(topic):
            raise reader.error("topics", "+ for one whole level, and # for all levels at the end", repr(topic))
    qos = reader.integer("qos", 1) or 0
    if qos > 1:
        advice = ": with 2 a message is confirmed before it is safe here; 1 brings those published with 2, too"
        raise reader.error("qos", "0 or 1", f"{qos}{advice if qos == 2 else ''}")
    username, password = reader.optional_text("username"), file_text(reader, "password_file")
    if password is not None and username is None:
        raise reader.error("password_file", "username beside it", "none")
    client_id = reader.optional_text("client_id") or ""
    return MqttOptions(host, port, topics, qos, client_id, username, password, tls)


def _broker(reader: TableReader, default_port: int) -> tuple[str, int]:
    text = reader.substituted("broker")
    bare = ":" not in text or text.endswith("]")
    host, _, port = (text, "", str(default_port)) if bare else text.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise reader.error("broker", "host:port", repr(text))
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_filter(topic: str) -> bool:
    levels = topic.split("/")
    return (
        "\0" not in topic
        and len(topic.encode()) < 65536
        and all(level in ("+", "#") or not set(level) & {"+", "#"} for level in levels)
        and "#" not in levels[:-1]
    )


class MqttReader:
    """The library has a thread of its own for the connection, and makes it again when it is lost."""

    def __init__(self, options: MqttOptions, csv: Csv | None) -> None:
        refuse_header(csv, "mqtt")
        package("paho.mqtt.client", "mqtt")
        self._options = options

    def run(self, inlet: Inlet) -> None:
        session = _Session(self._options, inlet)
        session.client.loop_start()
        try:
            while session.error is None and not inlet.wait(LOOK_S):
                pass
        finally:
            session.client.disconnect()
            session.client.loop_stop()
        if session.error is not None:
            raise session.error


class _Session:
    """A client of the library and what it calls. error: why there is no use in trying again."""

    def __init__(self, options: MqttOptions, inlet: Inlet) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self.error: SettingsError | None = None
        self._options, self._inlet = options, inlet
        self._contact = Contact(inlet, options.address)
        self._lock = threading.Lock()
        self._connection = 0
        """The number of this connection: a message is confirmed on the one by which it came, or not at all."""
        self.client = client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=options.client_id,
            clean_session=not options.client_id,
            manual_ack=True,
        )
        if options.username is not None:
            client.username_pw_set(options.username, options.password)
        if options.tls is not None:
            client.tls_set_context(options.tls.context())
        client.connect_timeout = CONNECT_S
        client.reconnect_delay_set(*RECONNECT_S)
        client.on_connect, client.on_connect_fail = self._on_connect, self._on_connect_fail
        client.on_disconnect, client.on_subscribe = self._on_disconnect, self._on_subscribe
        client.on_message = self._on_message
        client.connect_async(options.host, options.port, KEEP_ALIVE_S)

    def _on_connect(self, client: Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            if reason.value in _REFUSALS and not self._contact.was_made:
                self._fail(f"{self._options.address}: the broker refuses us: {reason}")
            return  # and is disconnected
        was_made = self._contact.was_made
        self._contact.made()
        if was_made and flags.session_present:
            return  # the topics are known, and what the broker kept is on its way
        if was_made and self._options.client_id:
            self._inlet.say(f"{self._options.address} has forgotten us: what it had for us meanwhile is lost")
        client.subscribe([(topic, self._options.qos) for topic in self._options.topics])

    def _on_subscribe(self, _client: Client, _data: Any, _mid: int, reasons: list[Any], _properties: Any) -> None:
        for topic, reason in zip(self._options.topics, reasons, strict=False):
            if reason.is_failure:
                self._fail(f"{self._options.address}: the broker refuses the topic {topic!r} ({reason})")

    def _on_connect_fail(self, _client: Client, _data: Any) -> None:
        error = sys.exc_info()[1]  # the library calls this while it handles it
        if isinstance(error, ssl.SSLCertVerificationError):
            self.error = untrusted(self._options.address, error)
        self._contact.lost(getattr(error, "strerror", None) or str(error))

    def _on_disconnect(self, _client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        with self._lock:
            self._connection += 1
        self._contact.lost(str(reason))

    def _on_message(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        try:
            topic: str | None = message.topic
        except UnicodeDecodeError:
            topic = None
        connection = self._connection

        def confirm() -> None:
            with self._lock:
                if connection == self._connection:
                    client.ack(message.mid, message.qos)

        self._inlet.put(bytes(message.payload), {"_topic": topic}, then=confirm if message.qos else None)

    def _fail(self, text: str) -> None:
        self.error = self.error or SettingsError(text)


KIND = Kind(
    options=_options,
    reader=lambda options, csv: MqttReader(options, csv),
    name=lambda options: f"{options.address}/{','.join(options.topics)}",
)

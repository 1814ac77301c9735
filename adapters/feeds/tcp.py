"""Lines over TCP: from a server that we connect to, or from clients that connect to us (`kind = "tcp"`)."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

from wukongs.adapters.feeds.contact import Contact
from wukongs.adapters.feeds.feed import Inlet, Kind
from wukongs.adapters.feeds.lines import LineCutter
from wukongs.adapters.mapping.mapping import Csv
from wukongs.errors import SettingsError, WukongsError
from wukongs.settings.toml_reader import TableReader

READ_BYTES = 1 << 20
LOOK_S = 0.2
CONNECT_S = 10.0
CLIENTS_MAX = 100


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """host and port; is_server: we listen there. ends: once no connection is open any more, the source is at
    its end."""

    host: str
    port: int
    is_server: bool
    ends: bool = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def _options(reader: TableReader) -> TcpOptions:
    connect, listen = reader.optional_text("connect"), reader.optional_text("listen")
    if (connect is None) == (listen is None):
        raise reader.error("connect", "either connect or listen, as host:port", "both" if connect else "neither")
    text = connect or listen or ""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise reader.error("connect" if connect else "listen", "host:port", repr(text))
    host = host.removeprefix("[").removesuffix("]")
    return TcpOptions(host, int(port), is_server=listen is not None, ends=not reader.flag("follow", True))


class TcpReader:
    """A connection that is lost is made again; what was sent meanwhile is the sender's to keep."""

    def __init__(self, options: TcpOptions, csv: Csv | None) -> None:
        self._options, self._csv = options, csv

    def run(self, inlet: Inlet) -> None:
        if self._options.is_server:
            self._serve(inlet)
        else:
            self._call(inlet)

    def _call(self, inlet: Inlet) -> None:
        contact = Contact(inlet, self._options.address)
        while not inlet.is_stopped:
            try:
                with socket.create_connection((self._options.host, self._options.port), CONNECT_S) as connection:
                    contact.made()
                    self._drain(connection, inlet)
                    reason = "it was closed"
            except OSError as error:
                reason = error.strerror or str(error)
            if self._options.ends and inlet.is_heard:
                return
            contact.lost(reason)
            contact.wait()

    def _serve(self, inlet: Inlet) -> None:
        try:
            listener = socket.create_server((self._options.host, self._options.port))
        except OSError as error:
            raise SettingsError(
                f"cannot listen at {self._options.address} ({error.strerror or error}). Name another port"
            ) from None
        threads: list[threading.Thread] = []
        had_clients = False
        with listener:
            listener.settimeout(LOOK_S)
            inlet.say(f"listening at {listener.getsockname()[0]}:{listener.getsockname()[1]}")
            while not inlet.is_stopped:
                had_clients, threads = bool(threads) or had_clients, [one for one in threads if one.is_alive()]
                try:
                    connection, _ = listener.accept()
                except TimeoutError:  # nobody waits to be let in
                    if self._options.ends and had_clients and not threads:
                        break
                    continue
                else:
                    if len(threads) >= CLIENTS_MAX:
                        connection.close()
                        inlet.say(f"{CLIENTS_MAX} clients are connected: another one was turned away")
                        continue
                    threads.append(threading.Thread(target=self._attend, args=(connection, inlet), daemon=True))
                    threads[-1].start()
        for one in threads:
            one.join()

    def _attend(self, connection: socket.socket, inlet: Inlet) -> None:
        with connection, suppress(OSError):
            try:
                self._drain(connection, inlet)
            except WukongsError as error:  # of one client; the others go on
                inlet.say(f"a client was turned away: {error}")

    def _drain(self, connection: socket.socket, inlet: Inlet) -> None:
        """Take lines until the other side closes, or the inlet is stopped. A line that was cut off counts as one."""
        connection.settimeout(LOOK_S)
        cutter = LineCutter(inlet, self._csv, self._options.address)
        try:
            while not inlet.is_stopped:
                try:
                    data = connection.recv(READ_BYTES)
                except TimeoutError:
                    continue
                if not data:
                    break
                cutter.take(data)
        except OSError:
            cutter.take(b"", is_end=True)
            raise
        cutter.take(b"", is_end=True)


KIND = Kind(
    options=_options,
    reader=TcpReader,
    name=lambda options: f"tcp-{options.address}",
)

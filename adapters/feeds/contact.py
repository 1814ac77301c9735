"""Contact: what all sources over a network need, from the settings of a connection to what is said when it is lost."""

from __future__ import annotations

import importlib
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from urllib.parse import SplitResult, urlsplit

from wukongs.adapters.feeds.feed import Inlet
from wukongs.adapters.mapping.mapping import Csv
from wukongs.errors import SettingsError
from wukongs.settings.toml_reader import TableReader

RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
CONNECT_S = 5.0
LOOK_S = 0.1
MESSAGE_BYTES_MAX = 64 << 20
_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


@dataclass(slots=True)
class Contact:
    """Whether a source can be heard: says once that it is lost, and once that it is there again. tries: since then."""

    inlet: Inlet
    address: str
    tries: int = 0
    was_made: bool = False
    is_missed: bool = False

    def made(self) -> None:
        if self.is_missed:
            again = " again" if self.was_made else ""
            self.inlet.say(f"connected to {self.address}{again}")
        self.inlet.is_heard, self.tries, self.was_made, self.is_missed = True, 0, True, False

    def lost(self, reason: str, is_usual: bool = False) -> None:
        """is_usual: nothing is lost by it, and it is said only if the next try fails."""
        self.inlet.is_heard = False
        self.tries += 1
        if not (self.is_missed or is_usual or self.inlet.is_stopped):
            self.inlet.say(f"no connection to {self.address} ({reason}): trying again")
            self.is_missed = True

    def wait(self, asked_s: float | None = None) -> None:
        """Wait before the next try, longer each time. asked_s: what the source wants the first wait to be, and others
        to be at least."""
        seconds = RETRY_S[min(self.tries, len(RETRY_S)) - 1]
        if asked_s is not None:
            seconds = asked_s if self.tries == 1 else max(asked_s, seconds)
        self.inlet.wait(seconds)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """ca_file: of the authorities that are trusted, None for those of the system; cert_file, key_file: our own."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Raises: SettingsError (a file that holds no certificate or key)."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            files = ", ".join(name for name in (self.ca_file, self.cert_file, self.key_file) if name)
            raise SettingsError(f"{files}: expected certificates and keys in PEM, found none ({error})") from None
        return context


def tls_options(reader: TableReader) -> TlsOptions | None:
    """Return the keys of TLS, None if there are none."""
    files = [reader.optional_path(key) for key in ("ca_file", "cert_file", "key_file")]
    if files[2] is not None and files[1] is None:
        raise reader.error("key_file", "cert_file beside it", "it alone")
    return TlsOptions(*files) if any(files) else None


def untrusted(address: str, error: ssl.SSLCertVerificationError) -> SettingsError:
    return SettingsError(
        f"{address}: its certificate is not trusted ({error.verify_message}). Name the file of its authority as ca_file"
    )


def url_in(reader: TableReader, schemes: tuple[str, ...]) -> str:
    """Return a URL, in which `${NAME}` stands for the environment."""
    url = reader.substituted("url")
    expected = " or ".join(f"{scheme}://host/path" for scheme in schemes)
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or not url.isascii() or any(one <= " " for one in url):
        raise reader.error("url", expected, repr(url))
    return url


def shown_url(url: str) -> str:
    """Return a URL without what may be secret in it."""
    return urlsplit(url)._replace(query="", fragment="", netloc=_address(urlsplit(url))).geturl()


def url_name(url: str) -> str:
    """Return what a source partition at a URL is called."""
    return _address(urlsplit(url)) + urlsplit(url).path.rstrip("/")


def _address(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def headers_in(reader: TableReader) -> tuple[tuple[str, str], ...]:
    """Return the table `headers`, in which `${NAME}` stands for the environment."""
    table = reader.table("headers")
    found = tuple((name, table.substituted(name)) for name in table.names())
    for name, text in found:
        if not name.isascii() or not text.isascii() or any(one < " " for one in name + text):
            raise table.error(name, "a header in ASCII, on one line", "another text")
    return found


def texts_in(reader: TableReader, key: str) -> tuple[str, ...]:
    """Return a text, or a list of them, () without one; `${NAME}` stands for the environment."""
    value = reader.take(key)
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(one, str) and one for one in texts):
        raise reader.error(key, "a text or a list of texts", repr(value))
    return tuple(reader.filled(key, one) for one in texts)


def package(module: str, extra: str) -> ModuleType:
    """Import a module of a package that not everybody needs. Raises: SettingsError (it is not there)."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SettingsError(f'{module} is not installed. Install it: pip install "wukongs[{extra}]"') from None


def refuse_header(csv: Csv | None, kind: str) -> None:
    """Raises: SettingsError, where messages are to be CSV and nothing names their columns."""
    if csv is not None and csv.header:
        raise SettingsError(
            f"source of kind {kind}: messages of CSV have no header. Name their columns in the mapping: "
            '[csv] with header = false and columns = ["...", ...]'
        )


def keep_alive(connection: socket.socket) -> None:
    """Let the system find out that the other side is gone, within a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in _ALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)


def file_text(reader: TableReader, key: str) -> str | None:
    """Return what is in the file that a key names, without its last line end."""
    path = reader.optional_path(key)
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        raise reader.error(key, "a file with a text in UTF-8", f"{path} ({error})") from None

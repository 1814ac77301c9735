"""Direct connections: nodes and clients ask a node over them, once it knows them. The asking thread itself writes and
reads them, and a thread a connection answers; ZeroMQ has threads of its own on both sides, which a question and its
answer would wake.

* A node or client that is let in is offered a port, a secret of its own, and, where there are keys, the certificate of
  that port. These come over ZeroMQ, so they come from the holder of the key, and nobody else reads them.
* Where there are keys a connection speaks TLS, and only to the holder of that certificate, made anew for each
  life of a node. The other side says the secret first. A connection without that is shut after HANDSHAKE_S, or when it
  says more; at most UNPROVEN_MAX are at it.
* A message: uint32 the number of bytes that follow; uint32 the number of frames; uint32 the length of each; the frames.
  All little endian. There is one question at a time, and then its answer.
* A node that cannot be reached in this way is asked over ZeroMQ.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import secrets
import select
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from wukongs.errors import NodeUnavailable
from wukongs.live.header import Frame, MessageError
from wukongs.protocol.records import host_of
from wukongs.wire.answering import Post
from wukongs.wire.codec import ANSWER, ARRAYS_MAX, ASK, MESSAGE_BYTES_MAX, Sender, read_packet_header, to_frames
from wukongs.wire.descriptors import connections_max
from wukongs.wire.packets import Packet
from wukongs.wire.transport import COPIED_BYTES_MAX, LOOK_MS, AskingLine, milliseconds_left

DIRECT = "direct"
"""The kind of a connection's first question, which shows the secret."""
REACH_DIRECT_S = 0.5
"""The time that a connection may take, with its handshake, before ZeroMQ is the way."""
HANDSHAKE_S = 2.0
UNPROVEN_MAX = 64
CONNECTIONS_MAX = 256
"""One node or client has no more."""
ALL_CONNECTIONS_MAX = 1024
"""One port has no more, and no more than a quarter of what a bound socket may have: each has a thread."""
OFFERED_AGAIN_S, OFFERED_AGAIN_MAX_S = 5.0, 3600.0
"""After so long a node that could not be asked directly is asked to offer it again; twice as long each time."""
IDLE_S = 600.0
"""The answering side lets go of a connection over which nothing has come for so long; the asking side does at half."""
UNHEARD_S = 2.0
"""A connection counts as lost when the node has not been heard over ZeroMQ for so long, though nothing has ended it."""
BACKLOG = 128
HANDED_OVER_BYTES = 1 << 14
"""A longer answer is left to the connection's own thread, since sending it may take long."""
CONTEXTS_MAX = 128
"""So many certificates of nodes are kept as they are read; another one is read anew for each connection."""
_FIRST_BYTES_MAX = 1 << 12
_ROOM = 1 << 16
_FRAMES_MAX = ARRAYS_MAX + 1

log = logging.getLogger("wukongs")


class Offer(NamedTuple):
    """The way to a node's direct port. certificate: as PEM; None: the connection is not encrypted."""

    host: str
    port: int
    secret: str
    certificate: str | None

    @property
    def address(self) -> str:
        return f"{DIRECT}://{self.host}:{self.port}"


def offer_in(answer: Packet, address: str) -> Offer | None:
    """Return what a node that is reached at this address has offered with its answer to an introduction, if it has."""
    told = answer.fields.get(DIRECT)
    if not isinstance(told, Mapping):
        return None
    port, secret, certificate = told.get("port"), told.get("secret"), told.get("certificate")
    if type(port) is not int or not isinstance(secret, str) or not isinstance(certificate, str | None):
        return None
    if certificate is not None and not certificate.isascii():
        return None
    return Offer(host_of(address), port, secret, certificate)


class Way:
    """How one node is asked: directly, while that can be done. Used from any thread.

    is_heard: whether the node is connected over ZeroMQ."""

    def __init__(self, me: Sender, is_heard: Callable[[], bool] = lambda: True) -> None:
        self._me, self._is_heard = me, is_heard
        self.offer: Offer | None = None
        self.failures = 0
        """How often in turn a connection could not be made."""
        self._offered_again_s = math.inf

    def take(self, answer: Packet, address: str) -> None:
        """Take what a node that is reached at this address has answered."""
        self.offer, self._offered_again_s = offer_in(answer, address), math.inf

    def give_up(self) -> None:
        """Ask for an offer again later."""
        self.offer, self.failures = None, self.failures + 1
        self._offered_again_s = time.monotonic() + min(
            OFFERED_AGAIN_S * 2 ** min(self.failures - 1, 30), OFFERED_AGAIN_MAX_S
        )

    def needs_offer(self) -> bool:
        """Tell whether it is time to ask for an offer, since the last one was of no use."""
        return self._offered_again_s < math.inf and time.monotonic() >= self._offered_again_s

    def connect(self, offer: Offer | None, otherwise: Callable[[], AskingLine]) -> AskingLine:
        """Return a new connection: a direct one, if there is an offer and it can be made."""
        if offer is None:
            return otherwise()
        try:
            line = DirectLine(offer, self._me, self._is_heard)
        except NodeUnavailable as error:
            log.debug("asked over ZeroMQ: %s", error)
            if self.offer is offer:  # else there is another one by now
                self.give_up()
            return otherwise()
        self.failures = 0
        return line


class DirectLine:
    """One connection to a node's direct port, used by one thread at a time; asked over as a Line is.

    address: of the offer; is_heard: whether the node is connected over ZeroMQ. Raises: NodeUnavailable (it cannot be
    reached in this way)."""

    def __init__(self, offer: Offer, me: Sender, is_heard: Callable[[], bool]) -> None:
        self.address = offer.address
        self._is_heard = is_heard
        self._unheard_s: float | None = None
        self._is_lost = self._is_waiting = False
        self._used_s = time.monotonic()
        deadline_s = self._used_s + REACH_DIRECT_S
        try:
            connection: socket.socket = socket.create_connection((offer.host, offer.port), REACH_DIRECT_S)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if offer.certificate is not None:
                    connection = _asking_context(offer.certificate).wrap_socket(connection)
                connection.settimeout(LOOK_MS / 1000)
            except BaseException:
                connection.close()
                raise
        except (OSError, ValueError) as error:
            raise NodeUnavailable(f"{self.address}: cannot be reached ({error})") from error
        self._messages = _Messages(connection)
        self.pollable = connection.fileno()
        if not self.send(to_frames(Packet(DIRECT), ASK, 1, me, offer.secret)) or not self._is_taken(deadline_s):
            self.close()
            raise NodeUnavailable(f"{self.address}: does not take what it has offered")

    def send(self, frames: Sequence[Frame], wait_ms: int = 0) -> bool:
        """Send a message; False: not all of it is sent by now, and it has to be called again with the same one."""
        self._is_waiting = True
        self._used_s = time.monotonic()
        try:
            self._messages.write(frames, self._used_s + LOOK_MS / 1000)
        except TimeoutError:
            return False
        except OSError:
            self._is_lost = True
        return True

    def receive(self, deadline_s: float) -> list[Frame] | None:
        """Return the next message; None if none comes until the deadline, or within LOOK_MS, or ever."""
        left_ms = milliseconds_left(deadline_s)
        if left_ms < LOOK_MS and not self._messages.has_news(max(0, left_ms)):
            return None
        try:
            frames = self._messages.read(MESSAGE_BYTES_MAX, min(deadline_s, time.monotonic() + LOOK_MS / 1000))
        except TimeoutError:
            return None
        except (OSError, MessageError, EOFError):
            self._is_lost = True
            return None
        self._is_waiting = False
        self._used_s = time.monotonic()
        return frames

    def is_connected(self) -> bool:
        """Tell whether an answer can come; of a connection that waits for none, whether a question can be sent."""
        if self._is_lost:
            return False
        if not self._is_waiting:
            return time.monotonic() - self._used_s < IDLE_S / 2 and not self._messages.has_news(0)
        if self._is_heard():
            self._unheard_s = None
            return True
        now = time.monotonic()
        self._unheard_s = now if self._unheard_s is None else self._unheard_s
        return now - self._unheard_s < UNHEARD_S

    def close(self) -> None:
        self._messages.connection.close()

    def _is_taken(self, deadline_s: float) -> bool:
        """Tell whether the secret is answered. Without keys another program may be at the port, or, since the system
        chose it, this connection itself."""
        while not self._is_lost and time.monotonic() < deadline_s:
            if (frames := self.receive(deadline_s)) is not None:
                with suppress(MessageError):
                    header = read_packet_header(frames)
                    return (header.way, header.kind) == (ANSWER, DIRECT)
                return False
        return False


def open_port(
    address: str,
    is_encrypted: bool,
    knows: Callable[[Sender], bool],
    answer: Callable[[Sender, list[Frame], Post], None],
    exhausted: Callable[[NodeUnavailable], object],
    name: str,
) -> DirectPort | None:
    """Return a DirectPort beside a bound address, None if there can be none. It has begun."""
    try:
        port = DirectPort(host_of(address), is_encrypted, knows, answer, exhausted, name)
    except OSError as error:
        log.warning("%s: asked over ZeroMQ only, for want of another port (%s)", address, error)
        return None
    port.start()
    return port


class DirectPort:
    """The port at which one node is asked. host: where it listens; is_encrypted: there are keys.

    knows: whether one who was made an offer is still let in; answer: is called with a request of such a one and a
    function that takes the answer, in a thread of the connection; that function is called once, from any thread.
    exhausted: called with an error when there is no memory for what comes. Raises: OSError (no such port)."""

    def __init__(
        self,
        host: str,
        is_encrypted: bool,
        knows: Callable[[Sender], bool],
        answer: Callable[[Sender, list[Frame], Post], None],
        exhausted: Callable[[NodeUnavailable], object],
        name: str,
    ) -> None:
        self._knows, self._answer, self._exhausted = knows, answer, exhausted
        self._name = name
        self._root = secrets.token_bytes(32)
        self._certificate: str | None = None
        self._context: ssl.SSLContext | None = None
        if is_encrypted:
            self._certificate, self._context = _new_certificate()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=BACKLOG)
        self._port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, Sender | None] = {}
        """With whom each connection is; None: it has not said its secret."""
        self._connections_max = min(ALL_CONNECTIONS_MAX, connections_max() // 4)
        self._is_closing = False
        self._thread = threading.Thread(target=self._accept, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, sender: Sender) -> dict[str, Any]:
        """Return the fields by which somebody who is let in is told of this port."""
        secret = self._secret_of(sender)
        return {DIRECT: {"port": self._port, "secret": secret, "certificate": self._certificate}}

    def renew(self) -> None:
        """End all connections; only who gets a new offer may come back."""
        with self._lock:
            self._root = secrets.token_bytes(32)
            self._end_all()

    def close(self) -> None:
        """End all connections, and free the port; may be called again."""
        with self._lock:
            self._is_closing = True
            self._end_all()
        _end(self._listening)
        self._listening.close()

    def _secret_of(self, sender: Sender) -> str:
        named = sender if isinstance(sender, str) else tuple(sender)
        return hmac.new(self._root, repr(named).encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _accept(self) -> None:
        number = 0
        while not self._is_closing:
            try:
                connection, _ = self._listening.accept()
            except (OSError, MemoryError):
                time.sleep(LOOK_MS / 1000)  # without descriptors, most of all, until there are some
                continue
            number += 1
            name = f"{self._name}-{number}"
            try:
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                if not self._take(connection):
                    raise RuntimeError("too many connections")
                threading.Thread(target=self._serve, args=(connection,), name=name, daemon=True).start()
            except (OSError, RuntimeError, MemoryError):  # the other side asks over ZeroMQ
                self._forget(connection)

    def _take(self, connection: socket.socket) -> bool:
        with self._lock:
            unproven = sum(sender is None for sender in self._connections.values())
            if self._is_closing or unproven >= UNPROVEN_MAX or len(self._connections) >= self._connections_max:
                return False
            self._connections[connection] = None
            return True

    def _prove(self, connection: socket.socket, sender: Sender, secret: str | None) -> bool:
        """Note with whom a connection is, if it says the right secret."""
        with self._lock:
            is_right = hmac.compare_digest(
                self._secret_of(sender).encode(), (secret or "").encode("utf-8", "surrogatepass")
            )
            known = sum(other == sender for other in self._connections.values())
            if not is_right or connection not in self._connections or known >= CONNECTIONS_MAX:
                return False
            self._connections[connection] = sender
            return True

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)
        connection.close()

    def _end_all(self) -> None:
        for connection in self._connections:
            _end(connection)

    def _serve(self, connection: socket.socket) -> None:
        """Answer all that comes over one connection."""
        until_s = time.monotonic() + HANDSHAKE_S
        try:
            connection.settimeout(HANDSHAKE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            messages = _Messages(connection)
            header = read_packet_header(messages.read(_FIRST_BYTES_MAX, until_s))
            sender = header.sender
            if header.kind != DIRECT or sender is None:
                return
            if not self._knows(sender) or not self._prove(connection, sender, header.token):
                return
            connection.settimeout(IDLE_S)
            messages.write(to_frames(Packet(DIRECT), ANSWER, header.sequence))
            answers = _Answers(messages)
            while True:
                self._answer(sender, messages.read(MESSAGE_BYTES_MAX), answers.take)
                answers.wait()
        except (OSError, EOFError, MessageError):
            return
        except MemoryError:
            self._exhausted(NodeUnavailable("no memory is left for what other nodes ask"))
        finally:
            self._forget(connection)


class _Answers:
    """The answers over one connection, whichever thread gives them: there is one at a time."""

    def __init__(self, messages: _Messages) -> None:
        self._messages = messages
        self._is_given = threading.Lock()
        self._is_given.acquire()
        self._left: Sequence[Frame] | None = None

    def take(self, frames: Sequence[Frame]) -> None:
        """Send an answer, if it is short, and the other side reads."""
        try:
            if sum(map(len, frames)) > HANDED_OVER_BYTES or not self._messages.has_room():
                self._left = frames
            else:
                self._messages.write(frames)
        except OSError:
            _end(self._messages.connection)
        finally:
            self._is_given.release()

    def wait(self) -> None:
        """Wait until there is an answer, and send a long one: the connection's thread calls this. Raises: OSError."""
        self._is_given.acquire()
        if self._left is not None:
            frames, self._left = self._left, None
            self._messages.write(frames)


class _Messages:
    """The messages of a connection, of which each side sends one in turn."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._room = bytearray(_ROOM)
        self._into, self._have, self._size = self._room, 0, 0
        self._unsent: list[memoryview] = []

    def write(self, frames: Sequence[Frame], until_s: float = math.inf) -> None:
        """Send a message. Raises: TimeoutError (not all of it is sent by until_s, or the other side takes nothing; call
        it again, with the same one), OSError (it cannot be sent)."""
        if not self._unsent:
            sizes = [len(frame) for frame in frames]
            head = struct.pack(f"<II{len(sizes)}I", 4 + 4 * len(sizes) + sum(sizes), len(sizes), *sizes)
            is_short = sum(sizes) < COPIED_BYTES_MAX
            parts = [b"".join((head, *frames))] if is_short else [head, *(frame for frame in frames if len(frame))]
            self._unsent = [memoryview(part) for part in parts]
        while self._unsent:
            sent = self.connection.send(self._unsent[0])
            if sent == len(self._unsent[0]):
                del self._unsent[0]
            else:
                self._unsent[0] = self._unsent[0][sent:]
            if self._unsent and time.monotonic() >= until_s:
                raise TimeoutError

    def read(self, bytes_max: int, until_s: float = math.inf) -> list[Frame]:
        """Return the next message. Raises: TimeoutError (not all of it is there by until_s, or nothing comes; call it
        again), EOFError (the other side has ended), MessageError (no message, or one of more bytes), OSError (what else
        ends it)."""
        while self._size == 0 or self._have < self._size:
            if self._have and time.monotonic() >= until_s:
                raise TimeoutError
            got = self.connection.recv_into(memoryview(self._into)[self._have :])
            if got == 0:
                raise EOFError
            self._have += got
            if self._size == 0 and self._have >= 4:
                self._know_size(bytes_max)
            if self._have == len(self._into) < self._size:
                self._grow()
        if self._have > self._size:
            raise MessageError("message: expected one at a time, found more")
        whole = memoryview(bytes(self._into[: self._size]) if self._into is self._room else self._into)
        self._into, self._have, self._size = self._room, 0, 0
        return _parted(whole)

    def has_news(self, wait_ms: int) -> bool:
        """Tell whether within wait_ms something comes, or the other side ends."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return bool(poll.poll(wait_ms))

    def has_room(self) -> bool:
        """Tell whether something can be sent at once."""
        poll = select.poll()
        poll.register(self.connection, select.POLLOUT)
        return bool(poll.poll(0))

    def _know_size(self, bytes_max: int) -> None:
        size = struct.unpack_from("<I", self._into)[0]
        if not 4 <= size <= bytes_max + 4 * (1 + _FRAMES_MAX):
            raise MessageError(f"message: expected at most {bytes_max} bytes, found {size}", "oversized")
        self._size = 4 + size

    def _grow(self) -> None:
        """Have room for more of the message: twice as much as has come, so that nobody takes memory with its size."""
        into = bytearray(min(self._size, 2 * len(self._into)))
        into[: self._have] = self._into[: self._have]
        self._into = into


def _parted(whole: memoryview) -> list[Frame]:
    """Return the frames of a message. Raises: MessageError (their lengths are not those of the message)."""
    count = struct.unpack_from("<I", whole, 4)[0]
    start = 8 + 4 * count
    if not 0 < count <= _FRAMES_MAX or start > len(whole):
        raise MessageError(f"message: expected the lengths of at most {_FRAMES_MAX} frames, found {count} frames")
    bounds = list(accumulate(struct.unpack_from(f"<{count}I", whole, 8), initial=start))
    if bounds[-1] != len(whole):
        raise MessageError(f"message: expected frames of {len(whole) - start} bytes, found {bounds[-1] - start}")
    return [whole[first:last] for first, last in pairwise(bounds)]


def _end(connection: socket.socket) -> None:
    """End a connection that another thread may be using, which learns of it."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # that of TLS would take the thread's state away


@lru_cache(CONTEXTS_MAX)
def _asking_context(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the one certificate that is trusted says who it is
    context.load_verify_locations(cadata=certificate)
    return context


def _new_certificate() -> tuple[str, ssl.SSLContext]:
    """Return a new certificate as PEM, and a context that has its key, which nobody else gets."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "wukongs")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))  # clocks may differ: it lives as long as this process
        .not_valid_after(datetime(2999, 12, 31, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nothing comes that was not asked for
    with tempfile.NamedTemporaryFile(prefix="wukongs-") as file:  # its owner's; ssl takes keys from files only
        file.write(secret + pem.encode())
        file.flush()
        context.load_cert_chain(file.name)
    return pem, context

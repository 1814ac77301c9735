"""Trust: which peers may connect to a socket, and how both sides prove who they are.

A bound socket with keys (CURVE) knows every peer by its public key, and takes those on its list; it proves its own. All
traffic is encrypted. Addresses that are not loopback need keys, on both sides. Besides, a client may have to name a
token with each request.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wukongs.errors import SettingsError
from wukongs.live.grants import ALL, Grant
from wukongs.wire.keys import KeyPair, is_key, read_key_pair, read_node_keys, read_public_keys, read_tokens

ANY = "*"


@dataclass(frozen=True, slots=True)
class Trust:
    """Files (keys.py): the secret key of a bound socket, the public keys of those that may connect to it, and the
    tokens of clients; or one secret key that all have, shared_key_file. None: no keys, no tokens."""

    secret_key_file: str | None = None
    allowed_file: str | None = None
    tokens_file: str | None = None
    shared_key_file: str | None = None

    def read(self) -> Gate:
        """Read the files. Raises: SettingsError (a malformed file, or one without its other half)."""
        if self.shared_key_file is not None:
            assert self.secret_key_file is None, "one key or the other"
            shared = read_key_pair(self.shared_key_file)
            return Gate(shared, frozenset((shared.public,)), is_shared=True)
        if (self.secret_key_file is None) != (self.allowed_file is None):
            raise SettingsError(
                "trust: expected both a secret key and the public keys that are let in, or neither, found one"
            )
        pair, allowed = None, dict[str, Grant]()
        if self.secret_key_file is not None and self.allowed_file is not None:
            pair, allowed = read_key_pair(self.secret_key_file), read_public_keys(self.allowed_file)
        tokens = {} if self.tokens_file is None else read_tokens(self.tokens_file)
        limited = {key: grant for key, grant in allowed.items() if grant != ALL}
        return Gate(pair, frozenset(allowed), tuple(map(_digest, tokens)), False, tuple(tokens.values()), limited)


@dataclass(frozen=True, slots=True)
class Gate:
    """The trust of a bound socket. pair: its own keys (None: it has none, and is bound on loopback only); allowed:
    public keys; digests: of the tokens that are known (empty: none is needed); is_shared: all sides have the same
    keys, but for those of which another key is known; grants: of the tokens, in the order of their digests; limited:
    the grants of keys whose holders may not do everything."""

    pair: KeyPair | None = None
    allowed: frozenset[str] = frozenset()
    digests: tuple[bytes, ...] = field(default=(), repr=False)
    is_shared: bool = False
    grants: tuple[Grant, ...] = ()
    limited: Mapping[str, Grant] = field(default_factory=dict)

    def grant_of(self, token: object, key: str = "") -> Grant | None:
        """Return what a request with this token, over a connection with this key, may do; None: it is not to be heard.
        Takes as long whether it is or not."""
        by_key = self.limited.get(key, ALL)
        if not self.digests:
            return by_key
        given = _digest(token if isinstance(token, str) else "")
        known = [hmac.compare_digest(given, digest) for digest in self.digests]
        return self.grants[known.index(True)].within(by_key) if any(known) else None

    def check_follows(self, before: Gate) -> None:
        """Raise SettingsError if a bound socket cannot go on with this trust in the place of another."""
        if self.pair != before.pair:
            raise SettingsError("the secret key of this node has changed: that needs a restart")

    def guard(self, socket: Any) -> None:
        """Have a socket that is to be bound ask the doorkeeper (bound_socket.py) about each peer; it speaks CURVE, if
        there are keys."""
        socket.zap_domain = b"wukongs"
        socket.zap_enforce_domain = True
        if self.pair is not None:
            socket.curve_server = True
            socket.curve_secretkey = self.pair.secret.encode()


def _digest(token: str) -> bytes:
    """Return a digest of one length for all tokens, so that comparing takes one time for all."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a connecting side. own: shown to the node; nodes: each node's public key by its address, or under ANY
    that of all others. A node that cannot prove this key is not talked to. Raises SettingsError (a text that is no
    key)."""

    own: KeyPair
    nodes: Mapping[str, str]

    def __post_init__(self) -> None:
        for address, key in self.nodes.items():
            if not is_key(key):
                raise _no_key(address, repr(key[:60]) if key else "none")

    def node_key(self, address: str) -> str:
        """Raises: SettingsError (no key for this address)."""
        key = self.nodes.get(address, self.nodes.get(ANY))
        if key is None:
            raise _no_key(address, "none")
        return key

    def show(self, socket: Any, address: str) -> None:
        """Have a socket that is to be connected to an address speak CURVE."""
        socket.curve_serverkey = self.node_key(address).encode()
        socket.curve_publickey = self.own.public.encode()
        socket.curve_secretkey = self.own.secret.encode()


def _no_key(address: str, found: str) -> SettingsError:
    return SettingsError(f"address = {address!r}: expected the node's public key of 40 characters, found {found}")


def read_keys(secret_key_file: str, node_keys_file: str) -> Keys:
    """Return a client's keys from files: its own secret key, and the public keys of the nodes it connects to: one for
    all, or one a line with the node's address behind it. Raises: SettingsError."""
    nodes = read_node_keys(node_keys_file)
    if len(nodes) > 1 and "" in nodes:
        raise SettingsError(f"{node_keys_file}: expected one public key, or each with its node's address, found others")
    return Keys(read_key_pair(secret_key_file), {address or ANY: key for address, key in nodes.items()})

"""Keys and tokens in files: made, read, and refused by name and line when they are none.

A key is 32 bytes of Curve25519 as 40 characters of Z85, as ZeroMQ writes them. A secret key's file has one line, the
word `secret` and the key; its public key follows from it. A file of public keys, or of tokens, has one a line, and
behind it what its holder may do (live/grants.py); an empty line or one that begins with "# " is skipped.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from wukongs.errors import SettingsError
from wukongs.live.grants import Grant, read_grant
from wukongs.wire.context import new_key_pair, public_key_of

log = logging.getLogger("wukongs")
SECRET_FILE, PUBLIC_FILE = "key.secret", "key.pub"
PUBLIC_SUFFIX = ".pub"
TOKEN_LENGTH_MIN = 16
_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_SECRET_WORD = "secret"


@dataclass(frozen=True, slots=True)
class KeyPair:
    public: str
    secret: str = field(repr=False)


def make_keys(folder: str | Path) -> str:
    """Write a new key pair into a folder, which is made if need be: key.secret, readable by its owner alone, and
    key.pub. Return the public key. Raises: SettingsError (one of them is there already, or cannot be written)."""
    folder = Path(folder)
    public, secret = new_key_pair()
    secret_file, public_file = folder / SECRET_FILE, folder / PUBLIC_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (secret_file, public_file):
            if path.exists():
                raise FileExistsError(errno.EEXIST, "", str(path))
        _write_new(secret_file, 0o600, f"{_SECRET_WORD} {secret}\n")
        _write_new(public_file, 0o644, f"{public}\n")
    except FileExistsError as error:
        raise SettingsError(
            f"{error.filename}: is there already, and is not replaced: who trusts that key would not trust another. "
            "Choose another folder, or remove the file"
        ) from None
    except OSError as error:
        raise SettingsError(f"{error.filename}: cannot be written ({error.strerror})") from None
    return public


def _write_new(path: Path, mode: int, text: str) -> None:
    """Write a file that nobody has written meanwhile, and that nobody else may read before it has its mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def read_key_pair(path: str | Path) -> KeyPair:
    """Return the keys of a secret key's file. Raises: SettingsError (no such file, or not of this form)."""
    warn_if_others_read(path)
    words = _read(Path(path)).split()
    if len(words) != 2 or words[0] != _SECRET_WORD or not is_key(words[1]):
        raise SettingsError(
            f"{path}: expected the word '{_SECRET_WORD}' and a key of 40 characters, as `wukongs keys` writes them "
            f"into {SECRET_FILE}"
        )
    return KeyPair(public_key_of(words[1]), words[1])


def read_public_keys(path: str | Path) -> dict[str, Grant]:
    """Return the public keys in a file, or in the files *.pub of a folder, with the grants of their holders.

    Raises: SettingsError (what is no key, role or graph; a key twice with other grants; none at all)."""
    path = Path(path)
    files = sorted(path.glob(f"*{PUBLIC_SUFFIX}")) if path.is_dir() else [path]
    keys: dict[str, Grant] = {}
    for file in files:
        for number, words in _lines(file):
            _add(keys, _checked_key(file, number, words[0]), f"{file}, line {number}", words[1:])
    if not keys:
        where = f"a file *{PUBLIC_SUFFIX} with a public key" if path.is_dir() else "a public key a line"
        raise SettingsError(f"{path}: expected {where}, found none: nobody could connect")
    return keys


def read_node_keys(path: str | Path) -> dict[str, str]:
    """Return the public keys in a file by the addresses that stand behind them, "" where none does.

    Raises: SettingsError (what is no key, two for one address, none at all)."""
    keys: dict[str, str] = {}
    for number, words in _lines(Path(path)):
        address = next((word for word in words[1:2] if word.startswith("tcp://")), "")
        if address in keys:
            raise SettingsError(
                f"{path}, line {number}: expected one key for {address or 'all nodes'}, found another one"
            )
        keys[address] = _checked_key(Path(path), number, words[0])
    if not keys:
        raise SettingsError(f"{path}: expected a node's public key, found none")
    return keys


def _add(grants: dict[str, Grant], holder: str, place: str, words: Sequence[str]) -> None:
    """Add a token or key and its grant. Raises SettingsError."""
    grant = read_grant(place, words)
    if grants.setdefault(holder, grant) != grant:
        raise SettingsError(f"{place}: expected each token or key once, found one again with another role or graphs")


def _checked_key(file: Path, number: int, word: str) -> str:
    if word == _SECRET_WORD:
        raise SettingsError(f"{file}, line {number}: expected a public key, found a secret one: keep that for you")
    if not is_key(word):
        raise SettingsError(f"{file}, line {number}: expected a public key of 40 characters, found {word[:60]!r}")
    return word


def read_tokens(path: str | Path) -> dict[str, Grant]:
    """Return the tokens in a file, with the grants of their holders.

    Raises: SettingsError (no such file, none in it, one that is easy to guess; what is no role or graph; a token twice
    with other grants)."""
    warn_if_others_read(path)
    tokens: dict[str, Grant] = {}
    for number, (token, *words) in _lines(Path(path)):
        if len(token) < TOKEN_LENGTH_MIN:
            raise SettingsError(
                f"{path}, line {number}: expected a token of at least {TOKEN_LENGTH_MIN} characters, found {len(token)}"
            )
        if not token.isascii():
            raise SettingsError(f"{path}, line {number}: expected a token of ASCII characters, found others")
        _add(tokens, token, f"{path}, line {number}", words)
    if not tokens:
        raise SettingsError(f"{path}: expected a token a line, found none: nobody could connect")
    return tokens


def read_token(path: str | Path) -> str:
    """Return the one token of a client's file. Raises: SettingsError."""
    tokens = read_tokens(path)
    if len(tokens) != 1:
        raise SettingsError(f"{path}: expected one token, found {len(tokens)}")
    return next(iter(tokens))


def warn_if_others_read(path: str | Path) -> None:
    """Warn if everybody on this machine may read or write a file with a key or tokens, once for each state of it.

    A group may: containers and services are given their keys by one."""
    try:
        found = os.stat(path)
    except OSError:
        return  # the error of reading it says more
    if stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        _warn(str(path), stat.S_IMODE(found.st_mode), found.st_ctime_ns)


@cache
def _warn(path: str, mode: int, _changed_ns: int) -> None:
    log.warning(
        "%s: everybody on this machine can %s this file (its mode is %04o): keep it to yourself, by chmod 600, and "
        "replace what is in it if others have been here",
        path,
        "read" if mode & stat.S_IROTH else "write",
        mode,
    )


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def _lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line that has some and is no comment."""
    for number, line in enumerate(_read(file).splitlines(), start=1):
        words = line.split()
        if words and words[0] != "#":
            yield number, words


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: expected plain text in UTF-8, found other bytes") from None

"""Keys and tokens in files, and the command that makes them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.unit.conftest import Ran
from wukongs.errors import SettingsError
from wukongs.live.grants import ALL
from wukongs.wire.keys import is_key, make_keys, read_key_pair, read_public_keys, read_token, read_tokens
from wukongs.wire.trust import Keys, Trust, read_keys

KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
OTHER = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
TOKEN = "open-sesame-4711"


def test_a_made_pair_reads_back_and_its_secret_is_the_owners_alone(tmp_path: Path) -> None:
    public = make_keys(tmp_path / "new" / "node0")
    folder = tmp_path / "new" / "node0"
    pair = read_key_pair(folder / "key.secret")
    assert is_key(public)
    assert pair.public == public
    assert pair.secret != public
    assert read_public_keys(folder / "key.pub") == {public: ALL}
    assert stat.S_IMODE((folder / "key.secret").stat().st_mode) == 0o600
    assert pair.secret not in repr(pair)


def test_keys_are_not_replaced(tmp_path: Path) -> None:
    make_keys(tmp_path)
    before = (tmp_path / "key.secret").read_text()
    with pytest.raises(SettingsError, match=r"key.secret: is there already, and is not replaced"):
        make_keys(tmp_path)
    (tmp_path / "key.secret").rename(tmp_path / "mine")
    with pytest.raises(SettingsError, match=r"key.pub: is there already"):
        make_keys(tmp_path)
    assert (tmp_path / "mine").read_text() == before
    assert not (tmp_path / "key.secret").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"file.*: (is there already|cannot be written)"):
        make_keys(tmp_path / "file")
    with pytest.raises(SettingsError, match=r"cannot be written \(Not a directory\)"):
        make_keys(tmp_path / "file" / "keys")


def test_public_keys_have_comments_and_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "clients"
    file.write_text(f"# who may connect\n\n{KEY} # alice\n  {OTHER}\n")
    assert read_public_keys(file) == {KEY: ALL, OTHER: ALL}


def test_a_folder_of_public_keys_is_all_its_pub_files(tmp_path: Path) -> None:
    (tmp_path / "alice.pub").write_text(KEY)
    (tmp_path / "bob.pub").write_text(OTHER)
    (tmp_path / "key.secret").write_text("not looked at")
    assert read_public_keys(tmp_path) == {KEY: ALL, OTHER: ALL}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a public key a line, found none: nobody could connect"),
        ("# nobody\n", "expected a public key a line, found none"),
        (f"{KEY}\nabc", r"line 2: expected a public key of 40 characters, found 'abc'"),
        (f"{KEY}x", "line 1: expected a public key of 40 characters"),
        (KEY[:-1] + "~", "line 1: expected a public key of 40 characters"),
        (f"secret {KEY}", "line 1: expected a public key, found a secret one"),
        ("schlüssel", "expected a public key of 40 characters"),
    ],
)
def test_a_malformed_list_is_refused_by_its_line(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "clients"
    file.write_text(text, "utf-8")
    with pytest.raises(SettingsError, match=expected):
        read_public_keys(file)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for read in (read_public_keys, read_key_pair, read_tokens):
        with pytest.raises(SettingsError, match=r"nowhere: cannot be read \(No such file or directory\)"):
            read(tmp_path / "nowhere")  # type: ignore[operator]
    with pytest.raises(SettingsError, match=r"expected a file \*.pub with a public key, found none"):
        read_public_keys(tmp_path)


@pytest.mark.parametrize("text", ["", KEY, f"secret {KEY} more", "secret abc", "key " + KEY])
def test_a_secret_file_that_is_none_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key.secret"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"expected the word 'secret' and a key of 40 characters") as caught:
        read_key_pair(file)
    assert KEY not in str(caught.value)


def test_tokens_are_read_and_weak_ones_refused_without_their_content(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# clients\n{TOKEN} # alice\n{'x' * 40}\n")
    assert read_tokens(file) == {TOKEN: ALL, "x" * 40: ALL}
    with pytest.raises(SettingsError, match="expected one token, found 2"):
        read_token(file)
    file.write_text(TOKEN + "\nshort")
    with pytest.raises(SettingsError, match=r"line 2: expected a token of at least 16 characters, found 5"):
        read_tokens(file)
    file.write_text("")
    with pytest.raises(SettingsError, match="expected a token a line, found none"):
        read_tokens(file)
    file.write_text(TOKEN)
    assert read_token(file) == TOKEN


def test_half_a_trust_is_refused(tmp_path: Path) -> None:
    make_keys(tmp_path)
    for trust in (Trust(str(tmp_path / "key.secret")), Trust(None, str(tmp_path / "key.pub"))):
        with pytest.raises(SettingsError, match="expected both a secret key and the public keys"):
            trust.read()


def test_a_gate_admits_tokens_that_it_knows(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n{'y' * 20}")
    gate = Trust(tokens_file=str(file)).read()
    assert [gate.grant_of(one) for one in (TOKEN, "y" * 20)] == [ALL, ALL]
    strangers = [TOKEN[:-1], TOKEN + "x", "", None, 5, [TOKEN], "\ud800", TOKEN.upper()]
    assert [gate.grant_of(one) for one in strangers] == [None] * len(strangers)
    assert Trust().read().grant_of(None) == ALL
    assert TOKEN not in repr(gate)


def test_the_keys_of_a_connecting_side(tmp_path: Path) -> None:
    make_keys(tmp_path)
    keys = read_keys(str(tmp_path / "key.secret"), str(tmp_path / "key.pub"))
    assert keys.node_key("tcp://any:1") == keys.own.public
    by_address = Keys(keys.own, {"tcp://a:1": KEY, "tcp://b:1": OTHER})
    assert by_address.node_key("tcp://a:1") == KEY
    expected = "expected the node's public key of 40 characters, found"
    with pytest.raises(SettingsError, match=f"address = 'tcp://c:1': {expected} none"):
        by_address.node_key("tcp://c:1")
    with pytest.raises(SettingsError, match=f"address = 'tcp://b:1': {expected} 'abc'"):
        Keys(keys.own, {"tcp://b:1": "abc"})


def test_node_keys_are_one_for_all_or_each_with_its_address(tmp_path: Path) -> None:
    make_keys(tmp_path)
    secret, file = str(tmp_path / "key.secret"), tmp_path / "nodes"
    file.write_text(f"{KEY} our cluster\n")
    assert read_keys(secret, str(file)).node_key("tcp://any:1") == KEY
    file.write_text(f"# nodes\n{KEY} tcp://a:1\n{OTHER} tcp://b:1 the new one\n")
    keys = read_keys(secret, str(file))
    assert (keys.node_key("tcp://a:1"), keys.node_key("tcp://b:1")) == (KEY, OTHER)
    with pytest.raises(SettingsError, match="address = 'tcp://c:1': expected the node's public key"):
        keys.node_key("tcp://c:1")
    wrong = {
        f"{KEY}\n{OTHER}\n": "line 2: expected one key for all nodes, found another one",
        f"{KEY} tcp://a:1\n{OTHER} tcp://a:1\n": "line 2: expected one key for tcp://a:1, found another one",
        f"{KEY} tcp://a:1\n{OTHER}\n": "expected one public key, or each with its node's address, found others",
        "": "expected a node's public key, found none",
        "abc": "line 1: expected a public key of 40 characters, found 'abc'",
    }
    for text, expected in wrong.items():
        file.write_text(text)
        with pytest.raises(SettingsError, match=expected):
            read_keys(secret, str(file))


def test_the_command_makes_keys_and_prints_the_public_one(tmp_path: Path, ran: Ran) -> None:
    folder = tmp_path / "node0"
    status, out, err = ran("keys", str(folder))
    assert (status, out.strip()) == (0, read_key_pair(folder / "key.secret").public)
    assert err == f"the secret key is in {folder / 'key.secret'}\n"
    assert read_key_pair(folder / "key.secret").secret not in out + err
    status, out, err = ran("keys", str(folder))
    assert (status, out) == (2, "")
    assert "is there already" in err
    assert ran("keys")[0] == 2
    status, out, _ = ran("keys", "--help")
    assert (status, "wukongs keys DIR" in out) == (0, True)


@pytest.mark.parametrize(
    ("mode", "can"),
    [(0o644, "read"), (0o604, "read"), (0o602, "write"), (0o600, None), (0o640, None), (0o400, None)],
)
def test_a_secret_that_everybody_can_read_or_write_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, can: str | None
) -> None:
    """A group may read: containers and services are given their keys by one."""
    make_keys(tmp_path)
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    for file, read in ((tmp_path / "key.secret", read_key_pair), (tokens, read_tokens)):
        file.chmod(mode)
        caplog.clear()
        for _ in range(2):
            read(file)
        told = (
            [] if can is None else [f"{file}: everybody on this machine can {can} this file (its mode is {mode:04o})"]
        )
        assert [one.getMessage().partition(":")[0] for one in caplog.records] == [str(file)] * len(told)
        assert all(one.getMessage().startswith(first) for one, first in zip(caplog.records, told, strict=True))
        assert "chmod 600" in caplog.text or can is None
    caplog.clear()
    read_public_keys(tmp_path / "key.pub")
    assert not caplog.records


def test_tokens_from_a_pipe_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    reading, writing = os.pipe()
    os.write(writing, TOKEN.encode())
    os.close(writing)
    os.fchmod(reading, 0o644)
    assert read_tokens(f"/dev/fd/{reading}") == {TOKEN: ALL}
    os.close(reading)
    assert not caplog.records

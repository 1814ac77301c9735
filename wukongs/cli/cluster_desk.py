"""`wukongs cluster start`: what may be asked of a `wukongs cluster` that runs, and the desk where it is asked.

The command that runs the nodes listens at a socket in its folder, which only the user who has started it may enter. A
question is one line, the number of a node to start. So is the answer: `done`, or `refused`, and a text.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser
from wukongs.errors import NodeUnavailable, SettingsError, WukongsError

FOLDER = "wukongs-cluster-"
_DESK = "desk"
_QUESTION_BYTES_MAX = 64
_DONE, _REFUSED = "done", "refused"
_PATH_BYTES_MAX = 100
"""A little less than systems allow for the path of a socket."""

_EPILOG = """examples:
  wukongs cluster start 1
  wukongs cluster start 1 --server tcp://127.0.0.1:7411

The node comes back with the file, keys, ports and data folder that `wukongs cluster` gave it, as one of that command's
processes. It prints the address once the node serves.
"""


class Desk:
    """Takes questions of other processes until it is closed; a context manager. start_node: starts a node by its
    number and returns its address; any thread may call it, and its named errors are told to the one who asks."""

    def __init__(self, folder: str | Path, start_node: Callable[[int], str]) -> None:
        self._start_node = start_node
        self._socket = socket.socket(socket.AF_UNIX)
        with _short_path(Path(folder) / _DESK) as path:
            self._socket.bind(path)
        self._socket.listen()
        threading.Thread(target=self._serve, name="wukongs-desk", daemon=True).start()

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                asker, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(asker,), name="wukongs-asked", daemon=True).start()

    def _answer(self, asker: socket.socket) -> None:
        with contextlib.suppress(OSError), asker:  # the asker has left
            question = asker.makefile(encoding="ascii", errors="replace").readline(_QUESTION_BYTES_MAX).strip()
            try:
                if not question.isdecimal():
                    raise SettingsError(f"expected the number of a node, found {question!r}")
                answer = f"{_DONE} {self._start_node(int(question))}"
            except (WukongsError, OSError) as error:
                answer = f"{_REFUSED} {error}"
            asker.sendall((" ".join(answer.split()) + "\n").encode())


def start_again(argv: Sequence[str]) -> int:
    """The command: bring a node back of a cluster that runs on this machine. Raises NodeUnavailable."""
    options = make_start_parser().parse_args(list(argv))
    say(ask_to_start(options.node, options.server) + "\n")
    return DONE


def make_start_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs cluster start",
        description="Bring a node back that has ended, of a cluster that `wukongs cluster` runs on this machine.",
        epilog=_EPILOG,
    )
    parser.add_argument("node", type=_number, metavar="NODE", help="the number of the node, from 0 on")
    parser.add_argument(
        "--server", metavar="URL", help="the address of any node of the cluster, needed if several clusters run"
    )
    return parser


def _number(text: str) -> int:
    if text.isdecimal() and len(text) < 6:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected the number of a node, from 0 on, found {text!r}")


def ask_to_start(number: int, server: str | None = None) -> str:
    """Have a running cluster start a node, and return the node's address. server: an address of the cluster.

    Raises NodeUnavailable (there is no such cluster, or several; the node runs, is not there or does not come back)."""
    folder = _running_cluster(server)
    with socket.socket(socket.AF_UNIX) as desk:
        try:
            with _short_path(folder / _DESK) as path:
                desk.connect(path)
            desk.sendall(f"{number}\n".encode())
            word, _, text = desk.makefile(encoding="utf-8").readline().strip().partition(" ")
        except OSError as error:
            raise NodeUnavailable(f"{folder}: the `wukongs cluster` there does not answer ({error})") from None
    if word != _DONE:
        raise NodeUnavailable(text or "the `wukongs cluster` that was asked has ended meanwhile")
    return text


def _running_cluster(server: str | None) -> Path:
    found = {folder: _addresses(folder) for folder in _folders() if _is_alive(folder) and (folder / _DESK).exists()}
    if not found:
        raise NodeUnavailable(
            f"no cluster of yours runs on this machine, as far as {tempfile.gettempdir()} tells: begin one with "
            "`wukongs cluster`"
        )
    if server is None and len(found) == 1:
        return next(iter(found))
    each = "; ".join(", ".join(addresses) for addresses in found.values())
    if server is None:
        raise NodeUnavailable(f"{len(found)} clusters run: name one with --server, by an address of it: {each}")
    for folder, addresses in found.items():
        if server in addresses:
            return folder
    raise NodeUnavailable(f"--server {server}: no cluster on this machine has this address; there are: {each}")


def _addresses(folder: Path) -> list[str]:
    from wukongs.cluster.node_config import load_node_config

    with contextlib.suppress(SettingsError):
        return [member.clients for member in load_node_config(folder / "node0.toml").nodes]
    return []


def remove_folders_of_the_dead() -> None:
    """Remove the folders that processes of `wukongs cluster` have left behind when they were killed."""
    for folder in _folders():
        if not _is_alive(folder):
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


def _folders() -> Iterator[Path]:
    """Yield the folders of this user's clusters, whether they run or not."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{FOLDER}*")):
        with contextlib.suppress(OSError):
            if folder.name.removeprefix(FOLDER).partition("-")[0].isdecimal() and folder.stat().st_uid == os.getuid():
                yield folder


def _is_alive(folder: Path) -> bool:
    try:
        os.kill(int(folder.name.removeprefix(FOLDER).partition("-")[0]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Give a path that is short enough for a socket, by way of an open folder if need be."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)

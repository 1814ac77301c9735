"""`wukongs node`: serve clients and pipelines until it is told to stop; alone, or as one node of a cluster."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from wukongs.cli import DONE, INTERRUPTED, REFUSED, complain, say
from wukongs.cli.compiling import compile_first
from wukongs.cli.query import check_file
from wukongs.cluster.node_config import NodeConfig, TrustFiles, load_node_config
from wukongs.errors import WukongsError
from wukongs.settings import take_turns_quickly
from wukongs.wire.descriptors import is_lack

LEAVE_S = 10.0
"""How long a node that has failed may take to close."""

_EPILOG = """examples:
  wukongs node --config node.toml
  wukongs query --server tcp://127.0.0.1:7411 'ASK { ?s ?p ?o }'

the file, of a node that is alone (all other keys are in docs/api.md):
  data_dir = "db"
  [[node]]
  clients = "tcp://127.0.0.1:7411"

Once it serves it prints the address that clients use, and below it where it listens for whom, one a line. It ends with
Ctrl-C or SIGTERM. With [trust] in its file SIGHUP lets it read the files of keys and tokens again: the keys and tokens
that are gone are refused from then on. Its own secret key changes only with a restart.
"""


class Running(Protocol):
    """A node that serves. address: where it listens for clients; listens: the same of all its sockets, by whom they are
    for."""

    address: str
    listens: Mapping[str, str]

    def on_failure(self, tell: Callable[[BaseException], object]) -> None: ...

    def reload_trust(self) -> None: ...

    def close(self) -> None: ...


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wukongs node",
        description="Serve an engine to clients and pipelines, alone or as a node of a cluster, as one TOML file says.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="the TOML file of this node")
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="end also when standard input does, with who has started it"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(list(argv))
    check_file(options.config, "a TOML file")
    config = load_node_config(Path(options.config))
    stopped = _Stopped()
    compile_first()
    take_turns_quickly()
    node = start(config)  # it may wait for other nodes: a signal ends it at once until it serves
    try:
        stopped.watch_signals()
        if config.trust != TrustFiles():
            reload_on_hangup(node)
        if options.until_stdin_ends:
            stopped.watch_stdin()
        node.on_failure(stopped.fail)
        say(f"{node.address}\n{_told_of(node, config)}")
        tell_systemd("READY=1")
        return stopped.wait()
    finally:
        node.close()
        stopped.is_closed.set()


def start(config: NodeConfig) -> Running:
    """Return the node that a file describes, as it serves. Raises SettingsError, StorageError, CorruptionError,
    NodeUnavailable (the other nodes do not start)."""
    if len(config.nodes) == 1:
        from wukongs.cluster.serving import ServedEngine

        return ServedEngine(config)
    from wukongs.cluster.node import run

    return run(config)


def _told_of(node: Running, config: NodeConfig) -> str:
    """Return where a node listens, and where others find it if that is another address, one a line."""
    found = {"clients": config.me.clients, "other nodes": config.me.peers}
    lines = [f"node {config.number} of {len(config.nodes)}"] if len(config.nodes) > 1 else []
    for name, address in node.listens.items():
        elsewhere = found[name]
        is_named = elsewhere not in (None, address) and not str(elsewhere).endswith((":0", ":*"))
        lines.append(f"{name}: {address}" + (f", who find it at {elsewhere}" if is_named else ""))
    return "".join(line + "\n" for line in lines)


def tell_systemd(state: str) -> None:
    """Tell the process that has started this one something of its state, if it listens (Type=notify of systemd)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place[:1] in ("/", "@"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.sendto(state.encode(), "\0" + place[1:] if place[0] == "@" else place)


def reload_on_hangup(node: Running) -> None:
    """Let SIGHUP read the files of keys and tokens again; if one of them will not do, say so, and keep the old ones."""

    def reload(*_: object) -> None:
        try:
            node.reload_trust()
        except (WukongsError, OSError) as error:
            complain(f"{error}: the keys and tokens stay as they were", REFUSED)
        else:
            print("wukongs: keys and tokens are read again", file=sys.stderr, flush=True)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, reload)


class _Stopped:
    """The wish to stop, and the exit status that goes with it."""

    def __init__(self) -> None:
        self._is_wished = threading.Event()
        self.is_closed = threading.Event()
        """Whether the node is closed by now."""
        self._status = DONE

    def watch_signals(self) -> None:
        """Let Ctrl-C and SIGTERM end the node well; a second Ctrl-C interrupts at once."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._stop)
            signal.signal(signal.SIGTERM, self._stop)

    def watch_stdin(self) -> None:
        threading.Thread(target=self._read_stdin, name="wukongs-stdin", daemon=True).start()

    def wait(self) -> int:
        self._is_wished.wait()
        return self._status

    def fail(self, error: BaseException) -> None:
        """End since the node has failed. May be called from any thread."""
        advice = ": start it with a higher limit of open files (ulimit -n)" if is_lack(error) else ""
        self._status = complain(f"{error}{advice}", REFUSED)
        self._is_wished.set()
        with suppress(RuntimeError):  # no thread is left
            threading.Thread(target=self._leave, name="wukongs-leave", daemon=True).start()

    def _leave(self) -> None:
        """End the process if it has not ended by itself in a while: closing waits for a thread that hangs."""
        if not self.is_closed.wait(LEAVE_S):
            os._exit(self._status)

    def _stop(self, number: int, _: Any) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._status = INTERRUPTED
        self._is_wished.set()

    def _read_stdin(self) -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        self._is_wished.set()

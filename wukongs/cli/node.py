"""`wukongs node`: serve clients and pipelines until it is told to stop; alone, or as one node of a cluster, or several
of them in one process."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wukongs.cli import DONE, INTERRUPTED, REFUSED, complain, say
from wukongs.cli.compiling import compile_first
from wukongs.cli.logs import add_log_options, begin_logs
from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import check_file
from wukongs.cli.server import why_not_free
from wukongs.errors import NodeUnavailable, SettingsError, WukongsError
from wukongs.settings import take_turns_quickly
from wukongs.wire.descriptors import is_lack

if TYPE_CHECKING:
    from wukongs.cluster.node import Inside
    from wukongs.cluster.node_config import HttpConfig, NodeConfig
    from wukongs.engine import Engine

TRIES_MAX, PAUSE_S = 5, 1.0
"""So often in turn, and so long after it has ended, one of several nodes is started again."""
LEAVE_S = 10.0
"""How long a node that has failed may take to close."""

_EPILOG = """examples:
  wukongs node --config node.toml
  wukongs node --config node2.toml node5.toml
  wukongs query --server tcp://127.0.0.1:7411 'ASK { ?s ?p ?o }'

the file, of a node that is alone (all other keys are in docs/api.md):
  data_dir = "db"
  [[node]]
  clients = "tcp://127.0.0.1:7411"

Once it serves it prints the address that clients use, and below it where it listens for whom, one a line. It ends with
Ctrl-C or SIGTERM. With [trust] in its file SIGHUP lets it read the files of keys and tokens again: the keys and tokens
that are gone are refused from then on. Its own secret key changes only with a restart.

Several nodes in one process are as many nodes of the cluster, each with its number, folder and addresses: so a machine
takes the place of another one beside its own. One that the others have taken out is started again (a single one by
--restart, where nothing else starts the process again), and one that has failed ends alone; the process ends with the
last one.
"""


class Running(Protocol):
    """A node that serves. engine: what its clients ask; address: where it listens for clients; listens: the same of all
    its sockets, by whom they are for."""

    engine: Engine
    address: str
    listens: Mapping[str, str]

    def on_failure(self, tell: Callable[[BaseException], object]) -> None: ...

    def reload_trust(self) -> None: ...

    def close(self) -> None: ...


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs node",
        description="Serve an engine to clients and pipelines, alone or as a node of a cluster, as one TOML file says.",
        epilog=_EPILOG,
    )
    files = "the TOML file of this node; several: the files of nodes of one cluster, which this process runs together"
    parser.add_argument("--config", required=True, nargs="+", metavar="FILE", help=files)
    parser.add_argument(
        "--restart",
        action="store_true",
        help="start a node again that the others have taken out, as those of several files are",
    )
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="end also when standard input does, with who has started it"
    )
    add_log_options(parser, has_http=True)
    return parser


def main(argv: Sequence[str]) -> int:
    from wukongs.cluster.node_config import TrustFiles, load_node_config

    options = make_parser().parse_args(list(argv))
    for file in options.config:
        check_file(file, "a TOML file")
    configs = [load_node_config(Path(file)) for file in options.config]
    _check_are_together(configs)
    begin_logs(options, configs[0].number if len(configs) == 1 < len(configs[0].nodes) else None)
    compile_first()
    take_turns_quickly()
    nodes = _Nodes(configs, options.restart)
    nodes.start()  # they may wait for other nodes: a signal ends it at once until one serves
    try:
        nodes.watch_signals()
        if any(config.trust != TrustFiles() for config in configs):
            reload_on_hangup(nodes.reload_trust)
        if options.until_stdin_ends:
            nodes.watch_stdin()
        return nodes.wait()
    finally:
        nodes.close()


def _check_are_together(configs: Sequence[NodeConfig]) -> None:
    """Raises SettingsError (one node twice, nodes of several clusters, or an engine that is alone among others)."""
    first, numbers = configs[0], [config.number for config in configs]
    for config in configs[1:]:
        if config.nodes != first.nodes or len(config.nodes) == 1:
            raise SettingsError(
                f"{config.file}: expected the same [[node]] list as in {first.file}, of two nodes or more: one process "
                "runs nodes of one cluster"
            )
        if numbers.count(config.number) > 1:
            raise SettingsError(f"{config.file}: number = {config.number} is that of another file: each node runs once")


def start(config: NodeConfig) -> Running:
    """Return the node that a file describes, as it serves. Raises SettingsError, StorageError, CorruptionError,
    NodeUnavailable (the other nodes do not start)."""
    _check_ports(config)
    node, inside = _start(config)
    if config.http is None:
        return node
    try:
        return _OverHttp(node, config, config.http, inside)
    except BaseException:
        node.close()
        raise


def _check_ports(config: NodeConfig) -> None:
    """Raise SettingsError if a port of the file is in use, by the name of its key."""
    me = config.me
    of_list = f"of [[node]] {config.number}" if len(config.nodes) > 1 else "of [[node]]"
    asked = [(config.listen_clients, f"clients {of_list}" if config.listen_clients == me.clients else "listen_clients")]
    if len(config.nodes) > 1 and config.listen_peers is not None:
        asked.append((config.listen_peers, f"peers {of_list}" if config.listen_peers == me.peers else "listen_peers"))
    if config.http is not None:
        host = f"[{config.http.host}]" if ":" in config.http.host else config.http.host
        asked.append((f"{host}:{config.http.port}", "listen of [http]"))
    for address, key in asked:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        reason = why_not_free(host.strip("[]"), int(port)) if port.isdecimal() else None
        if reason is not None:
            where = ", in the file of each node" if key.endswith(of_list) and len(config.nodes) > 1 else ""
            raise SettingsError(
                f"{config.file}: {key} = {address!r}: cannot be had ({reason}). End who listens there, or give another "
                f"port{where}"
            )


def _start(config: NodeConfig) -> tuple[Running, Inside | None]:
    """Return a node, and, if it is one of several, what makes clients inside it."""
    if len(config.nodes) == 1:
        from wukongs.cluster.serving import ServedEngine

        return ServedEngine(config), None
    from wukongs.cluster.node import run

    node = run(config, partial(_say_spare, config))
    return node, node.inside


def _say_spare(config: NodeConfig, address: str) -> None:
    """Say that a node is a spare one, and where it is: for now it needs nothing, and may wait for days."""
    print(
        f"wukongs: node {config.number} is a spare one: other nodes reach it at {address}; it serves clients at "
        f"{config.me.clients} once it has taken another node's place",
        file=sys.stderr,
        flush=True,
    )
    tell_systemd("READY=1")


class _OverHttp:
    """A node that serves HTTP, too."""

    def __init__(self, node: Running, config: NodeConfig, http: HttpConfig, inside: Inside | None) -> None:
        from wukongs.server.face import Bounds
        from wukongs.server.http_server import HttpServer, HttpSettings

        settings = HttpSettings(
            host=http.host,
            port=http.port,
            tokens_file=config.trust.tokens_file,
            tls_cert=http.tls_cert,
            tls_key=http.tls_key,
            origins=http.origins,
            bounds=Bounds(timeout_max_s=http.timeout_s),
        )
        self._node, self._server = node, HttpServer(node.engine, settings, node=inside)
        self.engine, self.address = node.engine, node.address
        self.listens: Mapping[str, str] = {**node.listens, "http": self._server.address}

    def on_failure(self, tell: Callable[[BaseException], object]) -> None:
        self._node.on_failure(tell)

    def reload_trust(self) -> None:
        self._node.reload_trust()
        self._server.reload_trust()

    def close(self) -> None:
        self._server.close()
        self._node.close()


def _told_of(node: Running, config: NodeConfig) -> str:
    """Return where a node listens, and where others find it if that is another address, one a line."""
    found = {"clients": config.me.clients, "other nodes": config.me.peers, "http": None}
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


def reload_on_hangup(reload_trust: Callable[[], object]) -> None:
    """Let SIGHUP read the files of keys and tokens again; if one of them will not do, say so, and keep the old ones."""

    def reload(*_: object) -> None:
        try:
            reload_trust()
        except (WukongsError, OSError) as error:
            complain(f"{error}: the keys and tokens stay as they were", REFUSED)
        else:
            print("wukongs: keys and tokens are read again", file=sys.stderr, flush=True)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, reload)


class _Nodes:
    """The nodes of this process, until it is told to stop or the last one has ended; and the exit status.

    One of several that the others have taken out is started again, as a supervisor does with a process; restarts: a
    single one, too."""

    def __init__(self, configs: Sequence[NodeConfig], restarts: bool = False) -> None:
        self._configs, self._restarts = configs, restarts or len(configs) > 1
        self._running: dict[int, Running] = {}
        self._failures: dict[int, BaseException] = {}
        self._left = len(configs)
        """How many run, or will."""
        self._status = DONE
        self._changed = threading.Condition()
        self._is_wished = False
        """Whether the process is to end."""
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Start all nodes; return once one serves, or none will. Raises what starting raises, if none is started
        again."""
        if not self._restarts:
            node = start(self._configs[0])
            self._show(self._configs[0], node)
            node.on_failure(self._fail)
            return
        for config in self._configs:
            name = f"wukongs-node-{config.number}"
            threading.Thread(target=self._keep, args=(config,), name=name, daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._running or not self._left)

    def _keep(self, config: NodeConfig) -> None:
        """Run a node until it is to end, or ends for good."""
        tries = 0
        while not self._is_wished:
            failure, tries = self._run(config), tries + 1
            if failure is None:
                tries = 0
                failure = self._failure_of(config.number)
            if failure is None:
                return
            if _is_of_all(failure):
                self._fail(failure)
                return
            complain(str(failure), REFUSED)
            if tries == TRIES_MAX or not isinstance(failure, NodeUnavailable):
                with self._changed:
                    self._left -= 1
                    self._status = REFUSED
                    self._changed.notify_all()
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_wished, PAUSE_S)

    def _run(self, config: NodeConfig) -> BaseException | None:
        """Start a node, and tell that it serves; return why it does not."""
        try:
            node = start(config)
        except Exception as error:
            return error
        self._show(config, node)
        node.on_failure(lambda error: self._note(config.number, error))
        return None

    def _failure_of(self, number: int) -> BaseException | None:
        """Wait until a node has failed, close it, and return why; None: the process is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_wished or number in self._failures)
            failure = self._failures.pop(number, None)
            node = None if failure is None or self._is_wished else self._running.pop(number)
        if node is not None:
            node.close()
        return failure

    def _note(self, number: int, error: BaseException) -> None:
        if _is_of_all(error):
            self._fail(error)
        with self._changed:
            self._failures[number] = error
            self._changed.notify_all()

    def _show(self, config: NodeConfig, node: Running) -> None:
        """Say that a node serves; close it if the process is to end by now."""
        with self._changed:
            is_late = self._is_wished
            if not is_late:
                self._running[config.number] = node
                say(f"{node.address}\n{_told_of(node, config)}")
                tell_systemd("READY=1")
                self._changed.notify_all()
        if is_late:
            node.close()

    def watch_signals(self) -> None:
        """Let Ctrl-C and SIGTERM end the nodes well; a second Ctrl-C interrupts at once."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._stop)
            signal.signal(signal.SIGTERM, self._stop)

    def watch_stdin(self) -> None:
        threading.Thread(target=self._read_stdin, name="wukongs-stdin", daemon=True).start()

    def wait(self) -> int:
        """Wait until the process is to end, or no node is left; return the status."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_wished or not self._left)
        return self._status

    def reload_trust(self) -> None:
        """Let all nodes read the files of keys and tokens again."""
        for node in list(self._running.values()):
            node.reload_trust()

    def close(self) -> None:
        """End the nodes, at the same time."""
        self._wish()
        ending = [threading.Thread(target=node.close) for node in self._running.values()]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
        self._is_closed.set()

    def _fail(self, error: BaseException) -> None:
        """End the process since a node has failed. May be called from any thread."""
        advice = ": start it with a higher limit of open files (ulimit -n)" if is_lack(error) else ""
        self._status = complain(f"{error}{advice}", REFUSED)
        self._wish()
        with suppress(RuntimeError):  # no thread is left
            threading.Thread(target=self._leave, name="wukongs-leave", daemon=True).start()

    def _leave(self) -> None:
        """End the process if it has not ended by itself in a while: closing waits for a thread that hangs."""
        if not self._is_closed.wait(LEAVE_S):
            os._exit(self._status)

    def _stop(self, number: int, _: Any) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._status = INTERRUPTED
        threading.Thread(target=self._wish, name="wukongs-stop", daemon=True).start()  # this one may hold the lock

    def _wish(self) -> None:
        with self._changed:
            self._is_wished = True
            self._changed.notify_all()

    def _read_stdin(self) -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        self._wish()


def _is_of_all(error: BaseException) -> bool:
    """Tell whether a node has failed by what all nodes of the process lack."""
    return is_lack(error) or isinstance(error, MemoryError)

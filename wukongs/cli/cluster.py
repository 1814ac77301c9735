"""`wukongs cluster`: start the nodes of a cluster on this machine, each in a process of its own, and end them again."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from wukongs.cli import DONE, INTERRUPTED, REFUSED, complain, say
from wukongs.cli.cluster_desk import FOLDER, Desk, make_start_parser, remove_folders_of_the_dead, start_again
from wukongs.cli.compiling import compile_first
from wukongs.cli.draining import add, add_parser, drain, drain_parser, remove, remove_parser
from wukongs.cli.parsers import CommandParser
from wukongs.cli.ports import free_ports
from wukongs.cli.server import why_not_free
from wukongs.cli.spark_cluster import run_on_spark
from wukongs.errors import NodeUnavailable, SettingsError

NODES_MAX = 64
"""Each is a process with connections to all others: more are more files than one machine lets be open."""
START_S = 300.0
"""How long a node may take to start: kernels may have to be compiled, and a data folder to be recovered."""
STOP_S = 30.0
LOOK_S = 0.1

_EPILOG = """examples:
  wukongs cluster --nodes 1 --base-port 7411
  wukongs cluster --nodes 3 --replicas 2
  wukongs cluster --nodes 3 --replicas 2 --spares 1
  wukongs cluster --nodes 3 --http-base-port 7480
  wukongs cluster drain 2 --server tcp://127.0.0.1:7411
  wukongs cluster add --help
  wukongs cluster remove --help
  wukongs cluster --nodes 3 --replicas 2 --data-dir data
  wukongs cluster --nodes 5 --data-dir other --restore backups/monday

  wukongs cluster --nodes 3 --replicas 2 --spark spark://host:7077 --base-port 7411

while it runs:
  wukongs cluster start 1      bring node 1 back, which has died

Prints the addresses that clients use, one a line, once all nodes serve. Ctrl-C or SIGTERM ends the nodes. Of one that
has died it says so: to come back it needs another replica of what it held, or --data-dir. What nodes with
--data-dir have acknowledged outlives them: the same command goes on with it. Node i listens to clients at port
P + i and to other nodes at port P + N + i; with --base-port 0, at ports that are free. The nodes have a secret key in
common, made anew each time: nobody else can reach the ports that are for other nodes. With --http the addresses of HTTP
come below those of the clients.

With --spark each node is a task of Spark, which runs it again whenever it ends, at the same host and with the same
folder, if there is one. Without one, or if it is lost, the others fill it again. They end when this command does.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs cluster",
        description="Start the nodes of a cluster on this machine, on loopback addresses.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--nodes", type=_integer(1, NODES_MAX), required=True, metavar="N", help=f"how many nodes, at most {NODES_MAX}"
    )
    replicas = "nodes that hold each shard (default: 1)"
    parser.add_argument("--replicas", type=_integer(1, NODES_MAX), default=1, metavar="R", help=replicas)
    spares = "so many nodes more, which hold nothing until they take another's place (default: 0)"
    parser.add_argument("--spares", type=_integer(0, NODES_MAX), default=0, metavar="K", help=spares)
    silence = "how long nothing may be heard of a node before the others go on without it (default: 2)"
    parser.add_argument("--silence", type=_seconds, default=None, metavar="SECONDS", help=silence)
    parser.add_argument(
        "--base-port", type=_integer(0, 65535), default=0, metavar="P", help="the first port; 0: free ones (default)"
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="keep the data of node i in DIR/node<i> (default: in memory)"
    )
    parser.add_argument("--http", action="store_true", help="serve HTTP at each node (docs/http.md)")
    parser.add_argument(
        "--http-base-port",
        type=_integer(1, 65535),
        metavar="P",
        help="the same, of node i at port P + i (with --http: at free ports)",
    )
    parser.add_argument(
        "--restore",
        type=Path,
        metavar="FOLDER",
        help="fill the new cluster from a backup, or from the data folder of an engine that has ended",
    )
    parser.add_argument(
        "--spark",
        metavar="MASTER",
        help="run the nodes on the workers of this Spark master, such as spark://host:7077; needs --base-port",
    )
    parser.add_argument(
        "--hosts",
        type=lambda text: text.split(","),
        metavar="HOST,...",
        help="with --spark: the host of each node, as Spark names it (default: where Spark has room)",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="with --spark, where hosts are not loopback: the pair of `wukongs keys DIR`, of the nodes and all clients",
    )
    return parser


def make_parsers(_: str) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of `wukongs cluster ACTION`, by action; of the command alone under ""."""
    changes = {"start": make_start_parser, "add": add_parser, "drain": drain_parser, "remove": remove_parser}
    return {"": make_parser(), **{action: make() for action, make in changes.items()}}


def _integer(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        if text.isdecimal() and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"expected an integer from {low} to {high}, found {text!r}")

    return parse


def _seconds(text: str) -> float:
    from wukongs.cluster.node_config import SILENCE_MAX_S, SILENCE_MIN_S

    with contextlib.suppress(ValueError):
        if SILENCE_MIN_S <= float(text) <= SILENCE_MAX_S:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected seconds from {SILENCE_MIN_S:g} to {SILENCE_MAX_S:g}, found {text!r}")


def main(argv: Sequence[str]) -> int:
    from wukongs.wire.keys import SECRET_FILE, make_keys

    if argv and argv[0] == "start":
        return start_again(argv[1:])
    if argv and (change := {"add": add, "drain": drain, "remove": remove}.get(argv[0])) is not None:
        return change(argv[1:])
    parser = make_parser()
    options = parser.parse_args(list(argv))
    served, options.nodes = options.nodes, options.nodes + options.spares
    if options.replicas > served:
        parser.error(f"--replicas {options.replicas}: there are only {served} nodes")
    if options.base_port and options.base_port + 2 * options.nodes > 65536:
        parser.error(f"--base-port {options.base_port}: {2 * options.nodes} ports from there on are too many")
    if options.http_base_port is not None:
        options.http = True
        _check_http_ports(options, parser)
    if options.spark is not None:
        _check_for_spark(options, parser)
        return run_on_spark(options, file_of_node)
    if options.hosts is not None or options.keys is not None:
        parser.error("--hosts and --keys are for --spark: nodes of this machine listen on loopback")
    if options.restore is not None:
        _check_has_data(options.restore, parser)
    count = 2 * options.nodes
    free = free_ports(count + options.nodes)
    ports = list(range(options.base_port, options.base_port + count)) if options.base_port else free[:count]
    if options.base_port:
        _check_are_free(ports, options.nodes)
    first = options.http_base_port
    http_ports = free[count:] if first is None else list(range(first, first + options.nodes))
    remove_folders_of_the_dead()
    compile_first()
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-") as folder, _Cluster() as cluster:
        make_keys(folder)
        trust = [f"cluster_key_file = {json.dumps(str(Path(folder) / SECRET_FILE))}"]
        listening = [f"tcp://127.0.0.1:{port}" for port in ports]
        addresses_of = list(zip(listening[: options.nodes], listening[options.nodes :], strict=True))
        for number in range(options.nodes):
            file = Path(folder) / f"node{number}.toml"
            http = f'[http]\nlisten = "127.0.0.1:{http_ports[number]}"\n' if options.http else ""
            file.write_text(file_of_node(number, options, addresses_of, trust) + http, "utf-8")
            cluster.start(number, file)
        addresses = cluster.wait_until_ready(START_S, served)
        if addresses is not None and options.restore is not None:
            first, folder_restored = addresses[0], options.restore.absolute()
            cluster.until_done(lambda: _restore(first, folder_restored))
        if addresses is not None and not cluster.is_stopping:
            with Desk(folder, cluster.start_again):
                say("".join(address + "\n" for address in addresses))
                if options.http:
                    say("".join(f"http: http://127.0.0.1:{port}\n" for port in http_ports[:served]))
                cluster.wait()
    return cluster.status


def _check_http_ports(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    wanted = range(options.http_base_port, options.http_base_port + options.nodes)
    if wanted.stop > 65536:
        parser.error(f"--http-base-port {wanted.start}: {options.nodes} ports from there on are too many")
    own = range(options.base_port, options.base_port + 2 * options.nodes) if options.base_port else range(0)
    if any(port in own for port in wanted):
        parser.error(f"--http-base-port {wanted.start}: the nodes have ports {own[0]} to {own[-1]} for themselves")


def _check_for_spark(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if options.http:
        parser.error("--http is for nodes of this machine: a node elsewhere takes [http] in its file (`wukongs node`)")
    if not options.base_port:
        parser.error("--spark: name the ports too, with --base-port")
    if options.restore is not None:
        parser.error("--spark: start the cluster, then fill it with `wukongs restore --server URL FOLDER`")
    if options.hosts is not None and len(options.hosts) != options.nodes:
        parser.error(f"--hosts: expected {options.nodes} hosts, one for each node, found {len(options.hosts)}")


def _check_has_data(folder: Path, parser: argparse.ArgumentParser) -> None:
    from wukongs.durable.recovery import has_data

    if not has_data(folder):
        parser.error(f"--restore {folder}: there is no data folder")


def _restore(address: str, folder: Path) -> None:
    from wukongs.remote.client import connect

    with connect(address) as node:
        node.restore(folder)


def _check_are_free(ports: Sequence[int], nodes: int) -> None:
    """Raise SettingsError if one of the ports that --base-port stands for is in use."""
    for place, port in enumerate(ports):
        reason = why_not_free("127.0.0.1", port)
        if reason is not None:
            whom = "clients" if place < nodes else "other nodes"
            raise SettingsError(
                f"--base-port {ports[0]}: node {place % nodes} would listen to {whom} at port {port}, which cannot be "
                f"had ({reason}). The nodes need ports {ports[0]} to {ports[-1]}: name others, or leave --base-port "
                "out for free ones"
            )


def file_of_node(
    number: int, options: argparse.Namespace, addresses: Sequence[tuple[str, str]], trust: Sequence[str]
) -> str:
    """Return the file of one node. addresses: each node's, for clients and others; trust: the lines of [trust].

    json writes strings as TOML reads them."""
    lines = [f"number = {number}", f"replicas = {options.replicas}"]
    if options.data_dir is not None:
        lines.append(f"data_dir = {json.dumps(str(options.data_dir.absolute() / f'node{number}'))}")
    if options.spares:
        lines.append(f"spares = {options.spares}")
    if options.silence is not None:
        lines.append(f"silence_s = {options.silence}")
    for clients, peers in addresses:
        lines += ["[[node]]", f'clients = "{clients}"', f'peers = "{peers}"']
    return "\n".join([*lines, "[trust]", *trust]) + "\n"


class _Cluster:
    """The processes. They end with this one, however it ends: their standard input does."""

    def __init__(self) -> None:
        self.status = DONE
        self.is_stopping = False
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        """The newest of each node, by their numbers."""
        self._files: list[Path] = []
        self._coming_back: dict[int, Future[str]] = {}
        """Nodes that are started again -> their addresses, once they serve."""
        self._news: queue.SimpleQueue[tuple[subprocess.Popen[str] | None, int, str | None]] = queue.SimpleQueue()
        """(process, number of its node, its address, or None once it has ended); no process: a signal."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Cluster:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + STOP_S
        with self._lock:
            self.is_stopping = True  # from now on nobody starts one
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def start(self, number: int, file: Path) -> None:
        """Start the next node for the first time."""
        assert number == len(self._processes), number
        self._files.append(file)
        self._processes.append(self._run(number))

    def start_again(self, number: int) -> str:
        """Start a node that has ended, wait until it serves, and return its address; called by the desk's threads.

        Raises SettingsError (there is no such node), NodeUnavailable (it runs; it has ended again; it does not serve
        within START_S)."""
        if number >= len(self._processes):
            raise SettingsError(f"node {number}: the nodes of this cluster are 0 to {len(self._processes) - 1}")
        with self._lock:
            process = self._processes[number]
            if self.is_stopping:
                raise NodeUnavailable("the cluster is ending: start it anew")
            if process.poll() is None:
                raise NodeUnavailable(f"node {number} still runs, as process {process.pid}: nothing was started")
            coming_back = self._coming_back[number] = Future()
            self._processes[number] = self._run(number)
        try:
            return coming_back.result(START_S)
        except TimeoutError:
            raise NodeUnavailable(
                f"node {number} was started and does not serve after {START_S:g} s: one that was drained is a spare "
                "node now, and serves when it takes another node's place. `wukongs stats` at another node tells more"
            ) from None

    def _run(self, number: int) -> subprocess.Popen[str]:
        # -P: a folder that is named like the package, in the one where this is called, is not it.
        config = str(self._files[number])
        command = [sys.executable, "-P", "-m", "wukongs", "node", "--config", config, "--until-stdin-ends"]
        # In a session of its own: Ctrl-C at a terminal is for this process, which ends the nodes one way only.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        threading.Thread(target=self._watch, args=(number, process), daemon=True).start()
        return process

    def wait_until_ready(self, timeout_s: float, count: int) -> list[str] | None:
        """Return the addresses of the first nodes, which are no spare ones; None if it is to stop, or one of them has
        ended before.

        Raises NodeUnavailable (one that is not ready in time)."""
        addresses: dict[int, str] = {}
        deadline = time.monotonic() + timeout_s
        while len(addresses) < count:
            try:
                process, number, address = self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                missing = sorted(set(range(count)) - set(addresses))
                raise NodeUnavailable(
                    f"node {missing[0]} does not serve after {timeout_s:g} s: see what it says above, or start it "
                    "alone with `wukongs node`"
                ) from None
            if process is None:
                return None
            if address is None:
                self._note_end(process, number)
                return None
            addresses[number] = address
        return [addresses[number] for number in sorted(addresses)]

    def wait(self) -> None:
        """Wait until it is to stop, or no node is left."""
        while not self.is_stopping and any(process.poll() is None for process in self._processes):
            process, number, address = self._news.get()
            if process is None:
                return
            is_newest = process is self._processes[number]
            coming_back = self._coming_back.pop(number, None) if is_newest else None
            if address is None:
                said = self._note_end(process, number)
                if coming_back is not None:
                    coming_back.set_exception(NodeUnavailable(f"{said} before it served: see what it says"))
            elif coming_back is None:
                say(address + "\n")  # a spare one serves from now on
            else:
                coming_back.set_result(address)
                print(f"wukongs: node {number} is back at {address}", file=sys.stderr)

    def until_done(self, work: Callable[[], object]) -> None:
        """Return once some work is done, or it is to stop. Raises as the work."""
        done: Future[object] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="wukongs-restore", daemon=True).start()
        while not self.is_stopping:
            with contextlib.suppress(TimeoutError):
                done.result(LOOK_S)
                return

    def _note_end(self, process: subprocess.Popen[str], number: int) -> str:
        """Say that a node has ended, unless it was to; return what was said."""
        status = process.wait()
        said = f"node {number} " + (
            f"was ended by signal {-status}" if status < 0 else f"has ended with status {status}"
        )
        if not self.is_stopping:
            is_one_left = any(other.poll() is None for other in self._processes)
            advice = f": start it again with `wukongs cluster start {number}`" if is_one_left else ""
            self.status = complain(said + advice, REFUSED)
        return said

    def _stop(self, number: int, _: Any) -> None:
        self.is_stopping = True
        self.status = INTERRUPTED if number == signal.SIGINT else DONE
        self._news.put((None, -1, None))

    def _watch(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        if first:
            self._news.put((process, number, first))
            process.stdout.read()
        process.wait()
        self._news.put((process, number, None))

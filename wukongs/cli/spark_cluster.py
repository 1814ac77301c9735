"""`wukongs cluster --spark MASTER`: Spark runs the nodes on its workers, and brings back those that end."""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from wukongs.cli import DONE, INTERRUPTED, say
from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.wire.keys import PUBLIC_FILE, SECRET_FILE, make_keys

START_S = 300.0
NODE_FILE = "node.toml"
_CLUSTER_KEY, _NODE_KEY, _CLIENT_KEYS = "cluster.secret", "node.secret", "clients.pub"
_ASK_S = 2.0
_LOOK_S = 0.2

FileOf = Callable[[int, argparse.Namespace, Sequence[tuple[str, str]], Sequence[str]], str]
"""Makes the file of a node: its number, the options, the addresses of each node, the lines of [trust]."""


def run_on_spark(options: argparse.Namespace, file_of: FileOf) -> int:
    """Run the nodes until a signal. Raises: SettingsError, NodeUnavailable (they do not start in time)."""
    from wukongs.adapters.spark.nodes import NodeSetup, SparkNodes

    with _Stopped() as stopped, SparkNodes(options.spark, options.nodes) as nodes:
        found = nodes.hosts(START_S, stopped.event)
        if found is None:
            return stopped.status
        hosts = hosts_of_nodes(found, options.hosts, options.data_dir is not None)
        addresses, files = files_of_nodes(hosts, options, file_of)
        nodes.run([NodeSetup(number, host, files[number]) for number, host in enumerate(hosts)])
        if _serve(addresses[: options.nodes - options.spares], options.keys, stopped):
            say("".join(address + "\n" for address in addresses))
            stopped.event.wait()
    return stopped.status


def hosts_of_nodes(found: Sequence[str], wanted: Sequence[str] | None, has_data: bool) -> list[str]:
    """Return the host of each node. found: those of the executors; wanted: those that the user has named.

    Raises: SettingsError (other ones were named; folders would not be found again)."""
    if wanted is not None and sorted(wanted) != sorted(found):
        raise SettingsError(f"--hosts {','.join(wanted)}: Spark has given executors at {', '.join(sorted(found))}")
    if wanted is None and has_data and len(set(found)) > 1:
        raise SettingsError(
            f"--data-dir: name each node's host, so that it finds its folder again: --hosts {','.join(sorted(found))}"
        )
    return list(wanted or sorted(found))


def files_of_nodes(
    hosts: Sequence[str], options: argparse.Namespace, file_of: FileOf
) -> tuple[list[str], list[dict[str, str]]]:
    """Return the addresses for clients, and the files that each node reads. Raises: SettingsError (keys)."""
    keys, trust = _keys(hosts, options.keys)
    first, count = options.base_port, len(hosts)
    addresses = [
        (_address(host, first + number), _address(host, first + count + number)) for number, host in enumerate(hosts)
    ]
    files = [{NODE_FILE: file_of(number, options, addresses, trust), **keys} for number in range(count)]
    return [clients for clients, _ in addresses], files


def _address(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _keys(hosts: Sequence[str], folder: Path | None) -> tuple[dict[str, str], list[str]]:
    """Return the files of keys that each node gets, and the lines of [trust] that name them. folder: of the key pair of
    nodes and clients. The nodes have another one for each other, made for this run."""
    if folder is None and not all(map(_is_loopback, hosts)):
        raise SettingsError(
            f"the nodes are at {', '.join(sorted(set(hosts)))}: addresses that are not loopback need keys. Make a pair "
            "with `wukongs keys DIR`, name it with --keys DIR, and give it to clients"
        )
    with tempfile.TemporaryDirectory(prefix="wukongs-keys-") as made:
        make_keys(made)
        files = {_CLUSTER_KEY: Path(made, SECRET_FILE).read_text("ascii")}
    lines = [f'cluster_key_file = "{_CLUSTER_KEY}"']
    if folder is not None:
        try:
            files[_NODE_KEY] = (folder / SECRET_FILE).read_text("ascii")
            files[_CLIENT_KEYS] = (folder / PUBLIC_FILE).read_text("ascii")
        except OSError as error:
            raise SettingsError(f"--keys {folder}: {error.filename} cannot be read ({error.strerror})") from None
        lines += [f'secret_key_file = "{_NODE_KEY}"', f'allowed_clients = "{_CLIENT_KEYS}"']
    return files, lines


def _serve(addresses: Sequence[str], keys: Path | None, stopped: _Stopped) -> bool:
    """Wait until nodes serve; tell whether they do, and not a signal has come. Raises: NodeUnavailable."""
    from wukongs.remote.client import connect

    pair = None if keys is None else (keys / SECRET_FILE, keys / PUBLIC_FILE)
    left, deadline = list(addresses), time.monotonic() + START_S
    while left and not stopped.event.wait(_LOOK_S):
        with suppress(NodeUnavailable), connect(left[0], keys=pair, silence_s=_ASK_S):
            left.pop(0)
            continue
        if time.monotonic() >= deadline:
            raise NodeUnavailable(f"{left[0]} does not serve after {START_S:g} s: see Spark's logs of this application")
    return not stopped.event.is_set()


class _Stopped:
    """The signal that ends the cluster, and the exit status that goes with it."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.status = DONE
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stopped:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _: Any) -> None:
        self.status = INTERRUPTED if number == signal.SIGINT else DONE
        self.event.set()

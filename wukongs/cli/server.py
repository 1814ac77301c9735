"""Options of all commands that talk to a running node: how the node is named and trusted."""

from __future__ import annotations

import argparse
import errno
import socket
from typing import TYPE_CHECKING

from wukongs.cli.parsers import CommandParser
from wukongs.errors import SettingsError

if TYPE_CHECKING:
    from wukongs.remote.client import RemoteEngine

_TRUST_OPTIONS = ("token_file", "key", "node_key")


def add_server_options(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add --server and the options that belong to it."""
    parser.add_argument(
        "--server",
        required=required,
        metavar="URL",
        help="a running node, as tcp://127.0.0.1:7411; several with commas between them: the first that answers",
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file with the token that the node asks for")
    parser.add_argument(
        "--key", metavar="FILE", help="your secret key, of `wukongs keys`: needed for addresses that are not loopback"
    )
    parser.add_argument("--node-key", metavar="FILE", help="a file with the public key of the node; beside --key")


def check_server_options(options: argparse.Namespace, parser: argparse.ArgumentParser, *without: str) -> None:
    """Refuse options that do not go together with --server, and those that need it. without: options that the node
    would need."""
    if options.server is None:
        given = next((name for name in _TRUST_OPTIONS if getattr(options, name)), None)
        if given is not None:
            parser.error(f"{_named(given)} says how to talk to a node: give it together with --server")
        return
    given = next((name for name in without if getattr(options, name)), None)
    if given is not None:
        parser.error(f"{_named(given)} is for work in this process: leave it out, or --server")


def connect_to(options: argparse.Namespace) -> RemoteEngine:
    """Return a client of the node that the options name. Raises SettingsError, NodeUnavailable."""
    from wukongs.remote.client import connect
    from wukongs.wire.keys import read_token

    if (options.key is None) != (options.node_key is None):
        raise SettingsError("--key and --node-key go together: your secret key, and the node's public key")
    return connect(
        options.server,
        token=None if options.token_file is None else read_token(options.token_file),
        keys=None if options.key is None else (options.key, options.node_key),
    )


def elsewhere(node: RemoteEngine) -> dict[str, str]:
    """Return the queries that are registered at other nodes of a cluster: name -> where to watch it."""
    facts = node.stats()
    registered: dict[str, list[int]] = facts.get("registered", {})
    addresses = node.listen().split(",")
    away = {name: at for name, at in sorted(registered.items()) if at and facts["node"] not in at}
    return {name: addresses[at[0]] if at[0] < len(addresses) else f"node {at[0]}" for name, at in away.items()}


def why_not_free(host: str, port: int) -> str | None:
    """Return why this process could not listen there: the port is taken, or not for this user. None: it seems to be
    free."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, port))
    except OSError as error:
        return error.strerror if error.errno in (errno.EADDRINUSE, errno.EACCES) else None
    return None


def _named(option: str) -> str:
    return "--" + option.replace("_", "-")


def parser_of(command: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of a command that only needs a node."""
    parser = CommandParser(
        prog=f"wukongs {command}",
        description=description,
        epilog=epilog,
    )
    add_server_options(parser, required=True)
    return parser

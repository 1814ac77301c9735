"""`wukongs queries`, `close`, `stream` and `stats`: what a running node has, says of itself, and gives up."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wukongs.cli import DONE, say
from wukongs.cli.parsers import read_iri
from wukongs.cli.query import parse_seconds
from wukongs.cli.server import connect_to, elsewhere, parser_of
from wukongs.errors import StreamError

if TYPE_CHECKING:
    from wukongs.remote.client import RemoteEngine

_QUERIES_EPILOG = """examples:
  wukongs queries --server tcp://127.0.0.1:7411
  wukongs queries list --server tcp://127.0.0.1:7411 --why
  wukongs queries list --server tcp://127.0.0.1:7411 --format json
  wukongs queries pause --server tcp://127.0.0.1:7411 traffic
  wukongs queries close --server tcp://127.0.0.1:7411 traffic
  wukongs queries running --server tcp://127.0.0.1:7411
  wukongs queries kill --server tcp://127.0.0.1:7411 12

list is done if nothing else is said. A query that is closed is gone, whoever has registered it; its readers are told
the end. A paused one keeps its window, and fires no more until it is resumed. Of a cluster: also those at other nodes,
with the address at which to watch them. One-shot queries that run are those of the node that is asked. Who waits for
one that is killed gets QueryKilled.
"""
_STREAMS_EPILOG = """examples:
  wukongs stream add http://ex/traffic --server tcp://127.0.0.1:7411 --batch-ms 100 --timing http://ex/speed
  wukongs stream --server tcp://127.0.0.1:7411
  wukongs stream list --server tcp://127.0.0.1:7411 --format json
  wukongs stream close http://ex/traffic --server tcp://127.0.0.1:7411
  wukongs stream drop http://ex/traffic --server tcp://127.0.0.1:7411

list is done if nothing else is said; `streams` is another name of the command, declare of add. A stream is declared
once: with the same options nothing happens, with others it is refused. One that is closed has ended: its last windows
are reported, and no other stream waits for it. What a dropped stream has added to the stored graph stays; one that a
registered query reads is not dropped. `wukongs push` fills a stream.
"""
_CLOSE_EPILOG = """examples:
  wukongs close traffic --server tcp://127.0.0.1:7411
  wukongs close traffic parking --server tcp://127.0.0.1:7411

A query that is closed is gone, whoever has registered it; who watches it is told the end. If one of the names is not
there, none is closed. `wukongs queries close` is the same; `wukongs stream close` ends a stream.
"""
_STATS_EPILOG = """examples:
  wukongs stats --server tcp://127.0.0.1:7411
"""

_OF_QUERIES = {
    "list": "print their names (--why: what each waits for)",
    "close": "end queries, by their names",
    "pause": "let queries fire no more until they are resumed",
    "resume": "let paused queries fire again",
    "running": "print the one-shot queries that run now: number, seconds, MiB that they hold, how they begin",
    "kill": "end one-shot queries, by their numbers",
}
_OF_STREAMS = {
    "list": "print their IRIs",
    "add": "declare one, by its IRI",
    "close": "end streams, by their IRIs: nothing more comes",
    "drop": "forget streams, by their IRIs, and their slices",
}


def queries(argv: Sequence[str]) -> int:
    """The command. Raises StreamError (no such query)."""
    action, rest = _action_of(argv)
    options = _queries_parser(action).parse_args(rest)
    with connect_to(options) as node:
        if action == "list":
            return _list_queries(node, options)
        if action == "running":
            return _list_running(node, options)
        if action == "kill":
            for number in options.numbers:
                node.kill(number)
            return DONE
        _done_to_queries(node, options.names, action)
    return DONE


def _queries_parser(action: str) -> argparse.ArgumentParser:
    about = "List, close, pause or resume the registered queries of a running node; list or kill one-shot queries."
    parser = _parser_of("queries", action, about)
    if action in ("list", "running"):
        _add_format(parser)
    if action == "list":
        parser.add_argument("--why", action="store_true", help="what each of them waits for, and what empties it")
    elif action == "kill":
        parser.add_argument("numbers", nargs="+", type=_count, metavar="NUMBER", help="a number that `running` prints")
    elif action != "running":
        parser.add_argument("names", nargs="+", metavar="NAME", help="the name of a registered query")
    return parser


def close(argv: Sequence[str]) -> int:
    """The command. Raises StreamError (no such query)."""
    options = _close_parser().parse_args(list(argv))
    with connect_to(options) as node:
        _done_to_queries(node, options.names, "close")
    return DONE


def _close_parser() -> argparse.ArgumentParser:
    parser = parser_of("close", "End registered queries of a running node, by their names.", _CLOSE_EPILOG)
    parser.add_argument("names", nargs="+", metavar="QUERY", help="the name of a registered query")
    return parser


def _done_to_queries(node: RemoteEngine, names: Sequence[str], action: str) -> None:
    """Close, pause or resume queries. Raises StreamError if one is not there: then nothing was done."""
    found = {query.name: query for query in node.queries()}
    _check_all(names, found, "query", "registered")
    for name in dict.fromkeys(names):
        getattr(found[name], action)()


def _list_queries(node: RemoteEngine, options: argparse.Namespace) -> int:
    away, found = elsewhere(node), node.queries()
    if options.format == "json":
        stats = node.stats()
        facts = stats["queries"] | stats.get("views", {})
        rows = [{"name": query.name, "server": away.get(query.name), **facts.get(query.name, {})} for query in found]
        for row, query in zip(rows, found, strict=True):
            row.update({"why": query.why()} if options.why else {})
        return _say_json(rows)
    for query in found:
        at = f" at {away[query.name]}" if query.name in away else ""
        say((query.why() if options.why else query.name) + at + "\n")
    return DONE


def _list_running(node: RemoteEngine, options: argparse.Namespace) -> int:
    found = node.running()
    if options.format == "json":
        return _say_json([asdict(query) for query in found])
    for one in found:
        say(f"{one.number}\t{one.seconds:.1f} s\t{one.bytes / 2**20:.1f} MiB\t{one.text}\n")
    return DONE


def stream(argv: Sequence[str]) -> int:
    """The command. Raises StreamError (no such stream; one that is there with other options, or is read)."""
    action, rest = _action_of(argv)
    action = "add" if action == "declare" else action
    options = _streams_parser(action).parse_args(rest)
    with connect_to(options) as node:
        if action == "add":
            names = ("batch_ms", "into", "history_ms", "slice_bytes_max", "index", "lateness_ms", "on_late")
            options_of = ("idle_timeout_ms", "idle_advance", "late", "retractions")
            given = {name: getattr(options, name) for name in (*names, *options_of)}
            timing = options.all_timing or options.timing
            node.stream(options.iri, timing, **given, timeout_s=options.timeout)
            return DONE
        found = node.streams()
        if action != "list":
            _check_all(options.iris, found, "stream", "declared")
            for iri in dict.fromkeys(options.iris):
                node.drop_stream(iri) if action == "drop" else node.declared(iri).close()
        elif options.format == "json":
            facts = node.stats()["streams"]
            return _say_json([{"iri": iri, **facts.get(iri, {})} for iri in found])
        else:
            say("".join(iri + "\n" for iri in found))
    return DONE


def _streams_parser(action: str) -> argparse.ArgumentParser:
    parser = _parser_of("stream", action, "List, declare, close or drop the streams of a running node.")
    if action == "list":
        _add_format(parser)
    elif action == "add":
        _add_declaration(parser)
    else:
        parser.add_argument("iris", nargs="+", type=read_iri, metavar="IRI", help="the IRI of a stream")
    return parser


def _add_declaration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("iri", type=read_iri, metavar="IRI", help="the IRI of the stream")
    parser.add_argument("--batch-ms", type=_count, metavar="MS", help="how long a stream batch is")
    timing = parser.add_mutually_exclusive_group()
    timing.add_argument(
        "--timing",
        action="append",
        default=[],
        type=read_iri,
        metavar="IRI",
        help="a predicate whose triples live in windows only; may be given several times",
    )
    timing.add_argument("--all-timing", action="store_true", help="all triples live in windows only")
    parser.add_argument("--into", type=read_iri, metavar="IRI", help="the stored graph that the other triples join")
    parser.add_argument("--history-ms", type=_count, metavar="MS", help="how long slices are kept at least")
    parser.add_argument("--slice-bytes-max", type=_count, metavar="BYTES", help="what the slices may take")
    parser.add_argument(
        "--index", choices=("all", "matching"), default="all", help="which triples slices keep (default: all)"
    )
    parser.add_argument(
        "--lateness-ms", type=_count, default=0, metavar="MS", help="how far behind the newest tuple one may come"
    )
    parser.add_argument(
        "--on-late", metavar="FILE|count", help="a file of the node for tuples later than that, or count"
    )
    parser.add_argument(
        "--idle-timeout-ms", type=_count, metavar="MS", help="after so long without a tuple it holds no other stream up"
    )
    parser.add_argument(
        "--idle-advance", choices=("wall",), help="what an idle stream follows in place of the others: the wall clock"
    )
    parser.add_argument(
        "--late",
        choices=("drop", "open"),
        default="drop",
        help="open: tuples later than --lateness-ms join the windows that are not closed (default: drop)",
    )
    parser.add_argument(
        "--retractions",
        choices=("event_time",),
        help="event_time: the newest tuple of each triple counts in the stored graph, whenever it comes",
    )
    parser.add_argument(
        "--timeout", type=parse_seconds, metavar="SECONDS", help="how long other nodes may take (default: 30 a step)"
    )


def stats(argv: Sequence[str]) -> int:
    with connect_to(_stats_parser().parse_args(list(argv))) as node:
        say(json.dumps(node.stats(), indent=2) + "\n")
    return DONE


def _stats_parser() -> argparse.ArgumentParser:
    about = "Print counts and sizes (bytes) of the stored graph, streams and queries of a running node, as JSON."
    return parser_of("stats", about, _STATS_EPILOG)


def make_parsers(command: str) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of queries, close, stream or stats, by action; of the command alone under ""."""
    if command in ("close", "stats"):
        return {"": _close_parser() if command == "close" else _stats_parser()}
    actions, make = (_OF_QUERIES, _queries_parser) if command == "queries" else (_OF_STREAMS, _streams_parser)
    return {"": make("list"), **{action: make(action) for action in actions}}


def _action_of(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return what is to be done, the first word if there is one, and the other arguments."""
    if argv and not argv[0].startswith("-"):
        return argv[0], list(argv[1:])
    return "list", list(argv)


def _parser_of(command: str, action: str, about: str) -> argparse.ArgumentParser:
    actions = _OF_QUERIES if command == "queries" else _OF_STREAMS
    epilog = _QUERIES_EPILOG if command == "queries" else _STREAMS_EPILOG
    what = "".join(f"  wukongs {command} {name:<8}{text}\n" for name, text in actions.items())
    is_known = action in actions
    parser = parser_of(f"{command} {action}" if is_known else command, about, f"commands:\n{what}\n{epilog}")
    if not is_known:
        parser.error(f"{action!r} is nothing to do: expected one of {', '.join(actions)}")
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="of the list; json: with the counts of each"
    )


def _say_json(rows: list[dict[str, Any]]) -> int:
    say(json.dumps(rows, indent=2) + "\n")
    return DONE


def _check_all(names: Sequence[str], found: Collection[str], what: str, done: str) -> None:
    """Refuse all of it if one is not there."""
    for name in names:
        if name not in found:
            raise StreamError(f"no {what} {name} is {done}: there is {', '.join(found) or 'none'}")


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 0 on, found {text!r}")

"""`wukongs rules`: check rule files, add and drop rules, ask why a triple is there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from wukongs.cli import DONE, REFUSED, say
from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import say_if_compiling
from wukongs.cli.server import add_server_options, check_server_options, connect_to

if TYPE_CHECKING:
    from wukongs.engine import Engine
    from wukongs.remote.client import RemoteEngine

_EPILOG = """examples:
  wukongs rules check family.rules
  wukongs rules check family.rules rdfs
  wukongs rules add --data-dir db rdfs family.rules
  wukongs rules list --server tcp://127.0.0.1:7411
  wukongs rules why --data-dir db '<http://ex/ann>' '<http://ex/ancestor>' '<http://ex/bob>'

FILE is a rule file, or the name of a set that wukongs brings along: rdfs, owl-rl. check reads all of them as one
program, and says in which order the rules are followed; a rule that reads its own conclusions, or those of one that
reads its own, is recursive. docs/rules.md tells how rules are written.
"""
_ACTIONS = {
    "check": "read rule files, and print the order in which the rules are followed",
    "add": "follow more rules from now on",
    "list": "print the rules, and which are paused",
    "drop": "follow some rules no more: what they have concluded goes",
    "resume": "let rules go on that were paused, since they took too much",
    "why": "print why a triple is there, down to the triples that somebody has stated",
}
_NAMES = "the name of a rule"


def main(argv: Sequence[str]) -> int:
    """The command. Raises RuleError and QuerySyntaxError (a rule that is none)."""
    options = make_parsers("rules")[""].parse_args(list(argv[:1]))
    return _RUN[options.action](argv[1:])


def make_parsers(command: str) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of the command, under "", and those of its actions."""
    about = "".join(f"  wukongs {command} {name:<8}{text}\n" for name, text in _ACTIONS.items())
    parser = CommandParser(
        prog=f"wukongs {command}",
        usage=f"wukongs {command} ACTION ...",
        description="Rules, which conclude triples from stored ones.",
        epilog=f"commands:\n{about}\n{_EPILOG}",
    )
    parser.add_argument("action", choices=tuple(_ACTIONS), metavar="ACTION", help="what to do")
    return {"": parser, "check": _check_parser(), **{name: _parser(name) for name in _ACTIONS if name != "check"}}


def _parser(action: str) -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=f"wukongs rules {action}",
        description=f"{_ACTIONS[action][:1].upper()}{_ACTIONS[action][1:]}.",
        epilog=_EPILOG,
    )
    if action == "add":
        parser.add_argument("files", nargs="+", metavar="FILE", help="a rule file, or the name of a set: rdfs, owl-rl")
        parser.add_argument(
            "--into", metavar="IRI", help="the graph that they read and conclude into (default: the default graph)"
        )
    elif action in ("drop", "resume"):
        parser.add_argument("names", nargs="+", metavar="NAME", help=_NAMES)
    elif action == "list":
        parser.add_argument("--text", action="store_true", help="print the rules themselves, as a rule file")
    else:
        for part in ("SUBJECT", "PREDICATE", "OBJECT"):
            parser.add_argument(part.lower(), metavar=part, help="as N-Triples writes it")
        parser.add_argument("--graph", metavar="IRI", help="the graph that it is in (default: the default graph)")
    made = "; made if need be" if action == "add" else ""
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=f"the data folder{made}")
    add_server_options(parser)
    return parser


def _check_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs rules check",
        description="Read rule files, and print the order in which the rules are followed.",
        epilog=_EPILOG,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a rule file, or the name of a set: rdfs, owl-rl")
    return parser


def _check(argv: Sequence[str]) -> int:
    options = _check_parser().parse_args(list(argv))
    from wukongs.rules.program import Program, rules_of, warnings_of
    from wukongs.rules.sources import read_all

    found = read_all(options.files)
    program = Program.of(rule for parsed in found if parsed.standing is None for rule in rules_of(parsed))
    shown = [
        (" (recursive)" if stratum.is_recursive else "", ", ".join(dict.fromkeys(rule.name for rule in stratum.rules)))
        for stratum in program.strata
    ]
    # One text with several triples in its template is several strata.
    for number, ((recursive, names), _) in enumerate(groupby(shown), 1):
        say(f"{number}{recursive}: {names}\n")
    if standing := [parsed.name for parsed in found if parsed.standing is not None]:
        say(f"over windows: {', '.join(standing)}\n")
    for warning in warnings_of(program.rules):
        print(f"warning: {warning}", file=sys.stderr)
    return DONE


@contextmanager
def _opened(
    options: argparse.Namespace, parser: argparse.ArgumentParser, is_made: bool = False
) -> Iterator[Engine | RemoteEngine]:
    """Give the engine that the options name. is_made: whether a data folder that is not there is made."""
    check_server_options(options, parser, "data_dir")
    if options.data_dir is None and options.server is None:
        parser.error("no --data-dir and no --server: say whose rules")
    if options.server is not None:
        with connect_to(options) as node:
            yield node
        return
    say_if_compiling()
    from wukongs.durable.recovery import check_is_ours, has_data
    from wukongs.engine import Engine
    from wukongs.errors import DataError

    check_is_ours(options.data_dir)
    if not (is_made or has_data(options.data_dir)):
        raise DataError("no such data folder: `wukongs rules add --data-dir` makes one", str(options.data_dir))
    with Engine(options.data_dir) as engine:
        yield engine


def _add(argv: Sequence[str]) -> int:
    parser = _parser("add")
    options = parser.parse_args(list(argv))
    from wukongs.rules.inference import text_of
    from wukongs.rules.sources import read_all

    text = "\n".join(map(text_of, read_all(options.files)))
    with _opened(options, parser, is_made=True) as engine:
        names = engine.add_rules(text, into=options.into)
        print(f"{len(names)} rules: {', '.join(names)}", file=sys.stderr)
    return DONE


def _list(argv: Sequence[str]) -> int:
    parser = _parser("list")
    options = parser.parse_args(list(argv))
    with _opened(options, parser) as engine:
        for rule in engine.rules():
            into = "" if rule.into is None else f" into <{rule.into}>"
            say(f"{rule.text}\n\n" if options.text else f"{rule.name}{into}\n")
            if rule.is_paused:
                print(f"rule {rule.name} is paused: {rule.error}", file=sys.stderr)
    return DONE


def _change(action: str, argv: Sequence[str]) -> int:
    parser = _parser(action)
    options = parser.parse_args(list(argv))
    with _opened(options, parser) as engine:
        change = engine.drop_rules if action == "drop" else engine.resume_rules
        print(f"snapshot {change(*options.names)}", file=sys.stderr)
    return DONE


def _why(argv: Sequence[str]) -> int:
    parser = _parser("why")
    options = parser.parse_args(list(argv))
    with _opened(options, parser) as engine:
        found = engine.why((options.subject, options.predicate, options.object), options.graph)
    if found is None:
        print("there is no such triple", file=sys.stderr)
        return REFUSED
    say(f"{found}\n")
    return DONE


_RUN: Mapping[str, Callable[[Sequence[str]], int]] = {
    "check": _check,
    "add": _add,
    "list": _list,
    "drop": partial(_change, "drop"),
    "resume": partial(_change, "resume"),
    "why": _why,
}

"""`wukongs rules`: check rule files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser

_EPILOG = """examples:
  wukongs rules check family.rules
  wukongs rules check family.rules rdfs

FILE is a rule file, or the name of a set that wukongs brings along: rdfs, owl-rl. check reads all of them as one
program, and says in which order the rules are followed; a rule that reads its own conclusions, or those of one that
reads its own, is recursive. docs/rules.md tells how rules are written.
"""
_ACTIONS = {
    "check": "read rule files, and print the order in which the rules are followed",
}


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
    return {"": parser, "check": _check_parser()}


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

    program = Program.of(rule for parsed in read_all(options.files) for rule in rules_of(parsed))
    for number, stratum in enumerate(program.strata, 1):
        names = ", ".join(dict.fromkeys(rule.name for rule in stratum.rules))
        say(f"{number}{' (recursive)' if stratum.is_recursive else ''}: {names}\n")
    for warning in warnings_of(program.rules):
        print(f"warning: {warning}", file=sys.stderr)
    return DONE


_RUN = {"check": _check}

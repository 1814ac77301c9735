"""The command line: `wukongs COMMAND ...`. A module is imported when its command runs.

Exit status: 0 done; 1 the query or the data was refused (one line on standard error, and below it the place in the
query, underlined); 2 wrong usage; 3 loaded, but for malformed lines (`wukongs load`); 130 interrupted; 143 terminated
(`wukongs run` and `demo`, by SIGTERM).
Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from wukongs import __version__
from wukongs.errors import SettingsError, StorageError, WukongsError
from wukongs.query.limits import is_lack_of_memory

DONE = 0
REFUSED = 1
WRONG_USAGE = 2
SET_ASIDE = 3
INTERRUPTED = 130

COMMANDS = {
    "query": "ask one SPARQL query of RDF files, a data folder or a running node",
    "load": "load RDF files into a data folder or a running node",
    "update": "apply one SPARQL Update request to a data folder or a running node",
    "run": "streams, stored data and continuous queries from one file",
    "push": "send records from files or standard input to a stream",
    "map": "print the triples that a mapping makes of CSV, JSON lines or Parquet",
    "serve": "serve an engine over HTTP: SPARQL, streams, live windows",
    "node": "serve clients and pipelines, alone or as one of a cluster",
    "cluster": "start the nodes of a cluster on this machine",
    "stream": "declare, list, close or drop streams of a running node",
    "register": "register a continuous query with a running node",
    "watch": "show the windows of registered queries",
    "close": "end registered queries of a running node",
    "queries": "list, close, pause or resume the registered queries of a running node",
    "stats": "print counts and sizes of a running node",
    "rules": "check rule files, add and drop rules, ask why a triple is there",
    "backup": "write what a running node or cluster has to a data folder",
    "restore": "fill an empty node or cluster from a data folder",
    "keys": "make a key pair for a node or a client",
    "completion": "print a script with which bash, zsh or fish completes commands and options",
    "demo": "the main job, on data that it makes itself",
    "bench": "measure with LSBench, CityBench or graph queries, with peers",
}

MODULES = dict.fromkeys(("queries", "close", "stream", "stats"), "listing") | dict.fromkeys(
    ("backup", "restore"), "backups"
)
"""Commands that share a module."""
_ALSO_CALLED = {"streams": "stream"}
_HELP_OPTIONS = ("-h", "--help", "help")


def help_text() -> str:
    commands = "\n".join(f"  {name:<11}{text}" for name, text in COMMANDS.items())
    return f"""usage: wukongs COMMAND ...

Continuous C-SPARQL and one-shot SPARQL over one evolving RDF graph.

commands:
{commands}

  wukongs COMMAND --help   what a command takes, with examples
  wukongs --version

examples:
  wukongs query --data people.ttl 'SELECT ?s ?o WHERE {{ ?s ?p ?o }} LIMIT 10'
  wukongs load --data-dir db people.nt.gz
  wukongs update --data-dir db 'DELETE WHERE {{ ?s <http://ex/age> ?o }}'
  wukongs run traffic.toml
  wukongs cluster --nodes 1 --base-port 7411
  wukongs query --server tcp://127.0.0.1:7411 'ASK {{ ?s ?p ?o }}'
  wukongs demo

exit status: 0 done, 1 the query or the data was refused, 2 wrong usage, 3 loaded but for malformed lines,
130 interrupted, 143 terminated
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; argv without the program's name, sys.argv's if None."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stderr is None:  # closed by the caller, as in 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return complain("standard output is closed: expected a terminal, a file or a pipe", WRONG_USAGE)
    try:
        try:
            status = _dispatch(arguments)
        except SystemExit as stop:  # of argparse: it may have printed a help text
            status = _status_of(stop)
        say("")
    except KeyboardInterrupt:
        return _interrupted()
    except SystemError as error:
        if is_lack_of_memory(error):
            return _complain_of_memory(error)
        if not _was_interrupted(error):
            raise
        return _interrupted()
    except MemoryError as error:
        return _complain_of_memory(error)
    except BrokenPipeError:
        _silence_stdout()
        return DONE
    except SettingsError as error:
        return complain(error, WRONG_USAGE)
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename is not None else error
        return complain(named, REFUSED)
    except (WukongsError, UnicodeError) as error:
        return complain(error, REFUSED)
    return status


def say(text: str) -> None:
    """Write to standard output, at once. Raises BrokenPipeError (nobody reads on) and StorageError."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(
            f"standard output: {error.strerror or error}: what was written is incomplete; make room or write elsewhere"
        ) from error


def complain(error: object, status: int) -> int:
    """Say on one line of standard error what is wrong, below it the place in the query if there is one; return the
    status."""
    print("wukongs: " + " ".join(str(error).split()), file=sys.stderr)
    underlined = getattr(error, "excerpt", "")
    if underlined:
        print(underlined, file=sys.stderr)
    return status


def _complain_of_memory(error: BaseException) -> int:
    """Say that the system gave no memory. The command's own data are freed first, so that there is memory to say it."""
    found = str(error) if isinstance(error, MemoryError) else ""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    what = f"no memory ({found})" if found else "no memory"
    return complain(f"{what}: give the process more, or less to do at a time", REFUSED)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        sys.stderr.write(help_text())
        return WRONG_USAGE
    name, rest = _ALSO_CALLED.get(arguments[0], arguments[0]), arguments[1:]
    if name in _HELP_OPTIONS:
        say(help_text())
        return DONE
    if name == "--version":
        say(f"wukongs {__version__}\n")
        return DONE
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}? Expected" if near else "expected"
        return complain(f"{name!r} is no command: {hint} one of {', '.join(COMMANDS)}", WRONG_USAGE)
    module, function = (MODULES[name], name) if name in MODULES else (name, "main")
    status: int = getattr(importlib.import_module(f"wukongs.cli.{module}"), function)(rest)
    return status


def _interrupted() -> int:
    """Return the status of Ctrl-C. If it came while Python executed a text, as it does to make a dataclass, then the
    interpreter would end by the signal, whatever the status; it forgets that when it executes another one."""
    exec("")
    return INTERRUPTED


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C came while numba boxed what a kernel returns: Python then raises SystemError, from the
    KeyboardInterrupt."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _status_of(stop: SystemExit) -> int:
    return stop.code if isinstance(stop.code, int) else DONE if stop.code is None else WRONG_USAGE


def _silence_stdout() -> None:
    """Let the interpreter's own flush at exit go nowhere: the reader of our output has left."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None

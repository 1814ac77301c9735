"""`wukongs query`: load RDF files, ask one query, print its answer."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, get_args

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser, read_iri
from wukongs.cli.server import add_server_options, check_server_options, connect_to
from wukongs.consistency import LATEST, Consistency
from wukongs.errors import DataError, SettingsError, StreamError
from wukongs.query.output.formats import FORMATS, check_format
from wukongs.settings import Settings
from wukongs.settings.text_file import decode_text

if TYPE_CHECKING:
    from wukongs.engine import Engine
    from wukongs.query.output.results import Result
    from wukongs.remote.client import RemoteEngine

_EPILOG = """examples:
  wukongs query --data people.ttl 'SELECT ?s WHERE { ?s a <http://ex/Person> }'
  wukongs query --data a.nt b.nt.gz --format csv @friends.rq > friends.csv
  wukongs query --named http://ex/g=g.nq 'SELECT * WHERE { GRAPH <http://ex/g> { ?s ?p ?o } }'
  wukongs query --data-dir db 'SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }'
  wukongs query --data family.ttl --rules rdfs --rules family.rules 'SELECT ?x WHERE { ?x a <http://ex/Person> }'
  wukongs query --server tcp://127.0.0.1:7411 'ASK { ?s ?p ?o }'
  wukongs query --data a.ttl --explain 'SELECT ?a ?b WHERE { ?a <http://ex/knows> ?b }'

files: nt nq ttl trig rdf jsonld by their suffix, also with .gz or .zst
"""


class _Collect(argparse.Action):
    """Keep the values of --data and --named in the order of the command line: the last one may be the query."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        namespace.groups = [*(namespace.groups or []), (self.dest, list(values))]


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs query",
        usage="wukongs query --data FILE... [--named IRI=FILE...] [--data-dir DIR] [options] QUERY|@FILE\n"
        "       wukongs query --server URL [options] QUERY|@FILE",
        description="Ask one SPARQL query of RDF files, of a data folder made by `wukongs load`, of both, or of a\n"
        "running node; print the answer. Nothing is written.",
        epilog=_EPILOG,
    )
    parser.set_defaults(groups=[])
    parser.add_argument("bare", nargs="*", metavar="QUERY|@FILE", help="the query, or @FILE that holds it; @- is stdin")
    parser.add_argument(
        "--data", nargs="+", action=_Collect, metavar="FILE", help="files for the default graph; may be repeated"
    )
    parser.add_argument(
        "--named", nargs="+", action=_Collect, metavar="IRI=FILE", help="files for named graphs; may be repeated"
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="a data folder, which is only read")
    parser.add_argument(
        "--rules",
        action="append",
        metavar="FILE",
        default=[],
        help="what follows by these rules is there, too: a rule file, or a set: rdfs, owl-rl; may be repeated",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="table", help="of the answer (default: table; ttl and nt for CONSTRUCT)"
    )
    add_context_option(parser)
    parser.add_argument("--explain", action="store_true", help="print the plan with estimated rows, not the answer")
    parser.add_argument(
        "--analyze", action="store_true", help="with --explain: run the query too; print actual rows and times"
    )
    parser.add_argument("--base", metavar="IRI", help="resolve relative IRIs of the query and of the files against it")
    parser.add_argument(
        "--timeout", type=parse_seconds, metavar="SECONDS", help="give up after this time (default: query_timeout_s)"
    )
    parser.add_argument(
        "--consistency",
        choices=get_args(Consistency),
        default=LATEST,
        help="of a node of a cluster: local reads what it has, which may be old, also where it is cut off",
    )
    parser.add_argument("--rows-max", type=int, metavar="ROWS", help="the longest table that the query may make")
    parser.add_argument("--memory-max", type=int, metavar="BYTES", help="what the query may hold in memory")
    add_server_options(parser)
    return parser


def parse_seconds(text: str) -> float:
    """Return the value of --timeout."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a positive number of seconds, found {text!r}")


def main(argv: Sequence[str]) -> int:
    from wukongs.csparql.parser import parse_query

    parser = make_parser()
    options = parser.parse_intermixed_args(list(argv))
    argument, data, named = sort_out(options, parser)
    options.data, options.named = data, named
    check_server_options(options, parser, "data", "named", "data_dir", "rules", "context", "rows_max", "memory_max")
    text, source = read_argument(argument, "a query")
    graphs = [_named_graph(value, parser) for value in named]
    for file in [*data, *(file for _, file in graphs)]:
        check_file(file, "an RDF file")
    # Parsed before anything is loaded: a wrong query is refused at once, by the name of its file.
    query = parse_query(text, options.base, source)
    if query.registration is not None or query.dataset.windows:
        raise StreamError(
            f"{source}: a query with REGISTER or FROM STREAM is continuous: name it under [[query]] in a file for "
            "`wukongs run`; `wukongs query` answers once"
        )
    if options.analyze and not options.explain:
        parser.error("--analyze says what a plan did: give it together with --explain")
    given = {"rows_max": options.rows_max, "query_bytes_max": options.memory_max}
    settings = Settings.from_environment(
        **{name: value for name, value in given.items() if value is not None}, **contexts_given(options)
    )
    if not options.explain:
        check_format(options.format, query.form)
    if not data and not named and options.data_dir is None and options.server is None:
        print("no --data, no --named and no --data-dir: the graph is empty", file=sys.stderr)
    with _without_garbage_collection(), _open_engine(options, settings) as engine:
        for file in data:
            engine.load(file, base=options.base, strict=True)
        for iri, file in graphs:
            engine.load(file, graph=iri, base=options.base, strict=True)
        for rules in options.rules:
            engine.add_rules(rules)
        for warning in engine.warnings(text, base=options.base):
            print(f"warning: {warning}", file=sys.stderr)
        if options.explain:
            timeout_s = options.timeout
            say(engine.explain(text, base=options.base, analyze=options.analyze, timeout_s=timeout_s))
        else:
            rule, timeout_s = options.consistency, options.timeout
            result = engine.query(text, base=options.base, timeout_s=timeout_s, consistency=rule)
            print_result(result, options.format, text)
    return DONE


# --- arguments --------------------------------------------------------------------------------------------------------


def sort_out(options: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[str, list[str], list[str]]:
    """Return (query argument, data files, named graphs).

    The query is the last argument that is no option's own value; --data and --named take all that follows them, so it
    may have to be taken back from the last of them that has two.
    """
    groups: list[tuple[str, list[str]]] = options.groups
    bare: list[str] = options.bare
    if not bare:
        for _, values in reversed(groups):
            if len(values) > 1:
                bare = [values.pop()]
                break
    if not bare:
        parser.error("no query: give it as the last argument, or @FILE")
    if len(bare) > 1:
        parser.error(f"one query is expected, found also {bare[0]!r}; put --data before each list of files")
    if os.path.exists(bare[0]):
        parser.error(f"no query: the last argument, {bare[0]!r}, is a file; give the query last, or as @FILE")
    data = [value for name, values in groups if name == "data" for value in values]
    named = [value for name, values in groups if name == "named" for value in values]
    return bare[0], data, named


def _named_graph(value: str, parser: argparse.ArgumentParser) -> tuple[str, str]:
    """Return (graph IRI, file) of IRI=FILE; an IRI may itself hold `=`, so the longest file name that exists wins."""
    splits = [(value[:place], value[place + 1 :]) for place, mark in enumerate(value) if mark == "="]
    iri, file = next((split for split in splits if os.path.exists(split[1])), splits[-1] if splits else ("", ""))
    iri = iri.removeprefix("<").removesuffix(">")
    if not file or re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*", iri) is None:
        parser.error(f"argument --named: expected IRI=FILE such as http://ex/g=g.ttl, found {value!r}")
    return iri, file


def add_context_option(parser: argparse._ActionsContainer) -> None:
    """Let a command take files for contexts of JSON-LD, as the option `context`."""
    parser.add_argument(
        "--context",
        action="append",
        type=_read_context,
        default=[],
        metavar="IRI=FILE",
        help="a file that stands for a @context of JSON-LD, since none is fetched; may be repeated (default: those of "
        "WUKONGS_CONTEXTS)",
    )


def contexts_given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the setting `contexts` if the command line gives it. Raises SettingsError (no such file)."""
    for _, file in options.context:
        check_file(file, "a file with a @context")
    return {"contexts": tuple(options.context)} if options.context else {}


def _read_context(text: str) -> tuple[str, str]:
    iri, _, file = text.rpartition("=")
    if not iri or not file:
        raise argparse.ArgumentTypeError(f"expected IRI=FILE, found {text!r}")
    return read_iri(iri), file


def check_file(file: str, kind: str) -> None:
    """Raise DataError unless this is a file that can be opened. kind: what it should be, such as `an RDF file`."""
    if not os.path.exists(file):
        raise DataError(f"no such file; give the path of {kind}", file or "''")
    if os.path.isdir(file):
        raise DataError("is a directory, not a file; name the files in it", file)
    if not os.access(file, os.R_OK):
        raise DataError("cannot be read; check its permissions", file)


def read_argument(argument: str, kind: str) -> tuple[str, str]:
    """Return the text that an argument is, or names as @FILE, and how errors call it. kind: what it should be."""
    if not argument.startswith("@"):
        return argument, kind.split()[-1]
    file = argument[1:]
    if file == "-":
        content, file = standard_input().read(), "standard input"
    else:
        check_file(file, f"{kind} file")
        content = Path(file).read_bytes()
    return decode_text(content, kind, file), file


def standard_input() -> BinaryIO:
    """Raises DataError (it is closed, as in <&-)."""
    if sys.stdin is None:
        raise DataError("is closed: expected something to read", "standard input")
    return sys.stdin.buffer


# --- work -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A short command makes no cycles worth finding, and looking for them is a tenth of its start-up time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _open_engine(options: argparse.Namespace, settings: Settings) -> Engine | RemoteEngine:
    if options.server is not None:
        return connect_to(options)
    say_if_compiling()
    if options.data_dir is not None:
        from wukongs.cli.folder_query import open_folder

        return open_folder(options.data_dir, settings)
    from wukongs.engine import Engine

    return Engine(settings=settings)


def say_if_compiling() -> None:
    """Say once on standard error that the kernels have to be compiled, if no earlier run has left them."""
    from wukongs.store.jit import are_kernels_compiled

    if not are_kernels_compiled():
        told = "compiling kernels behind this, once (about two minutes): until then all takes longer"
        print(told, file=sys.stderr, flush=True)


def print_result(result: Result, format: str, text: str) -> None:
    """Write an answer to standard output as it is made. text: of the query, whose prefixes shorten IRIs."""
    if format == "arrow" and sys.stdout.isatty():
        raise SettingsError("format = 'arrow' is binary: expected a file or pipe; add > answer.arrow")
    from wukongs.query.output.serialize import write
    from wukongs.query.output.table_cells import declared_prefixes

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    write(result, format, sys.stdout.buffer, declared_prefixes(text), width)

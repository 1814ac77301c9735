"""`wukongs load`: load RDF files into a data folder, or a running node."""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from wukongs.cli import DONE, INTERRUPTED, REFUSED, SET_ASIDE, complain, say
from wukongs.cli.parsers import CommandParser
from wukongs.cli.progress import make_progress, short_bytes
from wukongs.cli.query import add_context_option, check_file, contexts_given, say_if_compiling, standard_input
from wukongs.cli.server import add_server_options, check_server_options, connect_to
from wukongs.errors import DataError
from wukongs.settings import Settings

if TYPE_CHECKING:
    from wukongs.cli.engine_load import EngineLoad
    from wukongs.durable.folder_load import FolderLoad
    from wukongs.durable.loaded_files import FileState
    from wukongs.store.bulk import FilePart
    from wukongs.store.encoded import MalformedLine

MALFORMED_SHOWN_MAX = 5
_STDIN = "-"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

_EPILOG = """examples:
  wukongs load --data-dir db people.ttl knows.nt.gz
  wukongs load --data-dir db 'dump/*.nq.zst' --rejects bad.nq
  curl ... | wukongs load --data-dir db --format nt -
  wukongs load --server tcp://127.0.0.1:7411 people.ttl
  wukongs load --server tcp://127.0.0.1:7411 --spark spark://master:7077 'dump/*.nt'
  wukongs query --data-dir db 'SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }'

files: nt nq ttl trig n3 rdf jsonld by their suffix, also with .gz or .zst; - is standard input

Interrupted, by Ctrl-C or by force, the same command for a data folder goes on where it had come to: files in nt and nq
behind the last commit, others from their beginning. Files that were loaded are skipped, unless they have changed. At a
node each file is one snapshot, and one that was interrupted adds nothing.

Malformed lines of nt and nq are set aside: all other lines are loaded, and the status is 3. --rejects FILE keeps them,
with --allow-malformed the status is 0, --strict stops at the first.

With --spark the workers of a Spark cluster read the files, which all of them have to see under the same paths: files in
nt and nq in parts, others whole. Each part is one snapshot. local[2] is Spark in this process.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs load",
        usage="wukongs load --data-dir DIR|--server URL [options] FILE...",
        description="Load RDF files into a data folder or a running node: what they hold is added to what is there.",
        epilog=_EPILOG,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a glob (quoted or not), or - for stdin")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the data folder; made if need be")
    add_server_options(parser)
    parser.add_argument(
        "--spark",
        metavar="MASTER",
        help="let a Spark cluster read the files; beside --server (spark://host:7077, yarn)",
    )
    parser.add_argument(
        "--graph", type=_graph, metavar="IRI", help="graph of triples without one (default: the default graph)"
    )
    parser.add_argument("--base", metavar="IRI", help="resolve relative IRIs of the files against it")
    parser.add_argument("--format", metavar="FORMAT", help="of all files (default: by suffix; nt for stdin)")
    add_context_option(parser)
    malformed = parser.add_mutually_exclusive_group()
    malformed.add_argument("--strict", action="store_true", help="stop at the first malformed line or file")
    malformed.add_argument(
        "--allow-malformed", action="store_true", help="end with status 0 though malformed lines were set aside, not 3"
    )
    parser.add_argument("--again", action="store_true", help="load also the files that were loaded before")
    parser.add_argument("--rejects", type=Path, metavar="FILE", help="write malformed lines here, with what is wrong")
    parser.add_argument("--workers", type=_count, metavar="N", help="threads (default: the setting load_workers)")
    parser.add_argument(
        "--memory",
        type=_size,
        metavar="BYTES",
        help="what may be in flight beside the loaded graph, as 512M or 2G (default: the setting load_bytes_max)",
    )
    return parser


def _count(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 256:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 1 to 256, found {text!r}")


def _graph(text: str) -> str:
    from wukongs.query.terms.names import written_graph

    try:
        written_graph(text)
    except DataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _size(text: str) -> int:
    number, unit = text.rstrip("KMG"), text[len(text.rstrip("KMG")) :]
    if number.isdecimal() and unit in _UNITS and int(number) * _UNITS[unit] >= 1 << 20:
        return int(number) * _UNITS[unit]
    raise argparse.ArgumentTypeError(f"expected bytes, at least 1M, as 1000000000, 512M or 2G, found {text!r}")


def main(argv: Sequence[str]) -> int:
    parser = make_parser()
    options = parser.parse_intermixed_args(list(argv))
    check_server_options(options, parser, "data_dir", "again", "workers", "memory")
    if options.data_dir is None and options.server is None:
        parser.error("no --data-dir and no --server: say where to load the files to")
    if options.spark is not None and options.server is None:
        parser.error("--spark loads into running nodes: give --server, too")
    files = find_files(options.files)
    if options.rejects is not None and any(_is_same_file(options.rejects, file) for file in files):
        parser.error(
            f"--rejects {options.rejects} is one of the files to load, and would be emptied: name another file"
        )
    if options.spark is not None:
        return _load_by_spark(options, files)
    if options.server is not None:
        return _load_to_node(options, files)
    settings = Settings.from_environment(**contexts_given(options))
    say_if_compiling()
    from wukongs.cli.engine_load import open_load

    settings = replace(
        settings,
        load_bytes_max=options.memory or settings.load_bytes_max,
        load_workers=options.workers or settings.load_workers,
    )
    with contextlib.ExitStack() as owned:
        rejects = owned.enter_context(_open_rejects(options.rejects)) if options.rejects else None
        folder = open_load(options.data_dir, settings)
        owned.enter_context(folder)
        is_stopping = owned.enter_context(_interruptible())
        session = _Session(folder, options, _SetAside(options.rejects, rejects), is_stopping)
        for file in files:
            if not is_stopping.is_set():
                session.load(file)
        session.finish()
    say(session.summary())
    if is_stopping.is_set():
        return complain("interrupted: what is loaded stays; the same command goes on from there", INTERRUPTED)
    return _status(session.refused, session.aside, options.allow_malformed)


def _load_to_node(options: argparse.Namespace, files: Sequence[str]) -> int:
    """Send files to a node, each one more snapshot. An error in one of them does not stop the others."""
    loaded, sn, refused = 0, 0, list[str]()
    with contextlib.ExitStack() as owned:
        rejects = owned.enter_context(_open_rejects(options.rejects)) if options.rejects else None
        aside = _SetAside(options.rejects, rejects)
        node = owned.enter_context(connect_to(options))
        contexts = dict(Settings.from_environment(**contexts_given(options)).contexts)
        for file in files:
            source = standard_input() if file == _STDIN else file
            format = options.format or ("nt" if file == _STDIN else None)
            try:
                sn = node.load(
                    source,
                    options.graph,
                    options.base,
                    format,
                    strict=options.strict,
                    on_malformed=aside.add,
                    contexts=contexts,
                )
                loaded += 1
            except DataError as error:
                if options.strict:
                    raise
                refused.append(" ".join(str(error).split()))
    lines = [
        f"files: {loaded} loaded, {len(refused)} refused",
        *aside.summary(),
        *(f"refused {text}" for text in refused),
        *([f"snapshot {sn}"] if loaded else []),
    ]
    say("\n".join(lines) + "\n")
    return _status(refused, aside, options.allow_malformed)


def _load_by_spark(options: argparse.Namespace, files: Sequence[str]) -> int:
    """Let Spark's workers send parts of the files to the nodes. An error in one of them does not stop the others."""
    from wukongs.adapters.sink import Access
    from wukongs.adapters.spark.load import LoadTarget, PartLoaded, load_parts, parts_of
    from wukongs.adapters.spark.session import active_session, start_session, stop_session

    if _STDIN in files:
        raise DataError("standard input cannot be read by Spark's workers: name files", _STDIN)
    addresses = [address.strip() for address in options.server.split(",") if address.strip()]
    access = Access.read(addresses, options.token_file, options.key, options.node_key, timeout_s=60.0)
    target = LoadTarget(access, options.graph, options.base, options.format, options.strict)
    parts = parts_of(files, options.format)
    size_bytes = sum(part.end - part.first for part in parts)
    done_bytes, sn, refused = 0, 0, list[str]()
    with contextlib.ExitStack() as owned:
        rejects = owned.enter_context(_open_rejects(options.rejects)) if options.rejects else None
        aside = _SetAside(options.rejects, rejects)
        owned.enter_context(connect_to(options))  # says at once if no node answers
        found = active_session()  # of a program that calls this: it stays
        session = found or start_session(master=options.spark)
        if found is None:
            owned.callback(stop_session, session)
        progress = owned.enter_context(make_progress(f"{len(parts)} parts"))

        def on_loaded(one: PartLoaded) -> None:
            nonlocal done_bytes, sn
            done_bytes, sn = done_bytes + one.part.end - one.part.first, max(sn, one.sn)
            for file, line in one.malformed:
                aside.add(file, line)
            aside.count += one.malformed_count - len(one.malformed)
            refused.extend([] if one.refused is None else [one.refused])
            progress.show(done_bytes, size_bytes, 0)

        load_parts(session, parts, target, on_loaded)
    lines = [
        f"files: {len(files)} in {len(parts)} parts, {len(refused)} parts refused",
        *aside.summary(),
        *(f"refused {text}" for text in refused),
        *([f"snapshot {sn}"] if sn else []),
    ]
    say("\n".join(lines) + "\n")
    return _status(refused, aside, options.allow_malformed)


def _status(refused: Sequence[str], aside: _SetAside, is_allowed: bool) -> int:
    """Return the status of a load; say on standard error why it is not 0 although no file was refused."""
    if refused:
        return REFUSED
    if not aside.count or is_allowed:
        return DONE
    return complain(
        f"malformed lines: {aside.told}. All others are loaded. --strict stops at the first, --allow-malformed takes "
        "them for nothing wrong",
        SET_ASIDE,
    )


def _is_same_file(path: Path, file: str) -> bool:
    return file != _STDIN and path.exists() and path.samefile(file)


def _open_rejects(path: Path) -> BinaryIO:
    """Open the file of --rejects, without a buffer: so a full disk is told at the line that it has no room for."""
    with _rejects_errors(path):
        return path.open("wb", buffering=0)


def _rejects_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    from wukongs.store.disk import storage_errors

    return storage_errors(f"cannot write the rejects to {path}", "Give --rejects a file that can be written")


def find_files(patterns: Sequence[str]) -> list[str]:
    """Return the files that are meant, globs resolved, each once. Raises DataError (none, or a folder)."""
    found: dict[str, None] = {}
    for pattern in patterns:
        names = [pattern]
        if pattern != _STDIN and not os.path.exists(pattern) and glob.has_magic(pattern):
            names = sorted(name for name in glob.glob(pattern, recursive=True) if not os.path.isdir(name))
            if not names:
                raise DataError("no file matches this pattern", pattern)
        for name in names:
            if name != _STDIN:
                if os.path.isdir(name):
                    raise DataError(f"is a directory: name the files in it, as '{name.rstrip('/')}/*.nt'", name)
                check_file(name, "an RDF file")
            found[name] = None
    return list(found)


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Let the first Ctrl-C only set the event, so that the work under way ends well; a second one interrupts."""
    is_stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield is_stopping
        return

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGINT, before)
        is_stopping.set()
        print("stopping as soon as what was read is safe; again to stop at once", file=sys.stderr, flush=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield is_stopping
    finally:
        signal.signal(signal.SIGINT, before)


class _SetAside:
    """The malformed lines: counted, the first of them to be shown, all of them in the file of --rejects."""

    def __init__(self, path: Path | None, rejects: BinaryIO | None) -> None:
        self._path, self._rejects = path, rejects
        self.count = 0
        self._shown: list[str] = []

    def add(self, file: str, line: MalformedLine) -> None:
        self.count += 1
        place = f"{file}, line {line.line}, column {line.column}: {line.reason}"
        if len(self._shown) < MALFORMED_SHOWN_MAX:
            self._shown.append(place)
        if self._rejects is not None and self._path is not None:
            with _rejects_errors(self._path):
                self._rejects.write(f"# {place}\n{line.text}\n".encode())

    @property
    def told(self) -> str:
        """How many they are, and where they are kept."""
        kept = f"in {self._path}" if self._path is not None else "nowhere (--rejects FILE keeps them)"
        return f"{self.count:,} set aside" + (f", kept {kept}" if self.count else "")

    def summary(self) -> list[str]:
        return [
            f"malformed lines: {self.told}",
            *(f"  {place}" for place in self._shown),
            *(["  ..."] if self.count > len(self._shown) else []),
        ]


@dataclass
class _Session:
    """One run of the command, and what its summary says."""

    folder: FolderLoad | EngineLoad
    options: argparse.Namespace
    aside: _SetAside
    is_stopping: threading.Event
    states: list[FileState] = field(default_factory=list)
    read: int = 0
    skipped: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    disk_bytes: int = 0

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._held = len(self.folder)

    def load(self, file: str) -> None:
        """Load one file, or note why it is left out. Raises DataError with --strict, after a commit."""
        options = self.options
        path = None if file == _STDIN else Path(file)
        known = self.folder.known(path, options.graph) if path is not None and not options.again else None
        if known is not None and known.is_done:
            self.skipped.append(f"{file}: loaded before; --again loads it once more")
            return
        if known is not None and known.offset:
            self.resumed.append(f"{file}: from line {known.line:,}")
        format = options.format or ("nt" if path is None else None)
        try:
            with make_progress(file, known.offset if known is not None else 0) as progress:

                def on_run(state: FileState, run: FilePart, size_bytes: int) -> bool:
                    self.read += run.read_count
                    for line in run.malformed:
                        self.aside.add(file, line)
                    progress.show(run.read_bytes, size_bytes, run.read_count)
                    return self.is_stopping.is_set()

                state = self.folder.load(
                    standard_input() if path is None else path,
                    options.graph,
                    options.base,
                    format,
                    strict=options.strict,
                    again=options.again,
                    on_run=on_run,
                )
        except DataError as error:
            if options.strict:
                self.folder.commit()
                raise
            self.refused.append(" ".join(str(error).split()))
        else:
            self.states.append(state)

    def finish(self) -> None:
        """Commit."""
        self.disk_bytes = self.folder.commit()
        self._seconds = time.monotonic() - self._began_s

    def summary(self) -> str:
        """Return what was loaded, skipped and why."""
        loaded = sum(state.is_done for state in self.states)
        new, rate = len(self.folder) - self._held, self.read / max(self._seconds, 1e-9)
        lines = [
            f"files: {loaded} loaded, {len(self.skipped)} skipped, {len(self.refused)} refused",
            f"triples: {self.read:,} read, {new:,} new, {self.read - new:,} duplicates; {len(self.folder):,} in all",
            *self.aside.summary(),
            *(f"went on with {text}" for text in self.resumed),
            *(f"skipped {text}" for text in self.skipped),
            *(f"refused {text}" for text in self.refused),
            f"{self._seconds:.1f} s, {rate:,.0f} triples/s, {short_bytes(self.disk_bytes)} on disk",
        ]
        return "\n".join(lines) + "\n"

"""The runs that others can repeat: LSBench, CityBench and interactive queries, with peers, checked, resumable.

A run is a list of experiments over one set of data. Each experiment is a function that looks up what the record has,
measures the rest, and writes its figures down as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.citybench import data as city
from wukongs.bench.citybench.generate import City
from wukongs.bench.experiments import (
    composite,
    fault_tolerance,
    fuel,
    injection,
    join_proportionality,
    latency,
    load,
    nodes,
    one_shot,
    queries,
    rate,
    scalarization,
    scale,
    sharing,
    soak,
    through_spark,
    throughput,
)
from wukongs.bench.experiments.session import Machine, Session
from wukongs.bench.lsbench.data import QUICK_DATA, LsbenchData, find_folder, generate_lsbench, read_lsbench
from wukongs.bench.lsbench.queries import S_CONSTANTS, one_shot_bodies, with_constants
from wukongs.bench.lsbench.replay import feed_of
from wukongs.bench.peers import WUKONGS, Kind
from wukongs.bench.peers.external import External
from wukongs.bench.peers.known import KNOWN
from wukongs.bench.record import BenchError, Record, say
from wukongs.bench.report import write_report
from wukongs.bench.views import anew, dataflow, many, program, recursion
from wukongs.bench.views.tpch import run as tpch
from wukongs.errors import SettingsError

BENCHMARKS = ("lsbench", "citybench", "interactive", "views")
LONG = ("queries", "scale", "soak", "tpch", "recursion", "program")
"""Experiments of many minutes, on data of their own: they run if they are named, or with --quick."""
ON_REQUEST = ("nodes", "composite")
"""Experiments that start processes: they run if they are named, the first also if --nodes says of how many."""
USED_BY = {
    "--rate": ("latency", "rate", "scale"),
    "--through": ("latency", "rate"),
    "--nodes": ("nodes",),
    "--minutes": ("soak",),
    "--edges": ("program",),
}
"""Options that the other experiments have no use for."""
OWNERS = {
    "--data": ("lsbench", "citybench", "views"),
    "--edges": ("views", "all"),
    "--peers": ("lsbench", "citybench", "interactive", "all"),
}
"""The benchmarks that options are of, but those of lsbench alone. The peers of views are always the same."""
IDLE_WAIT_S = 120.0
SECONDS = 20


def network_settings(users: int) -> NetworkSettings:
    """Return the settings of a network with the paper's rates: 10 K, 86 K, 10 K, 7.5 K and 20 K tuples a second. Users
    have about 120 friends, or fewer in a small network, which then has fewer likes."""
    friends = min(140, max(1, users // 2 - 1))
    return NetworkSettings(
        users=users,
        friends=friends,
        duration_ms=1000 * SECONDS,
        posts_per_s=820,
        comments_per_s=100,
        likes_per_post=105,
        photos_per_s=770,
        likes_per_photo=9.75,
        positions_per_s=4000,
    )


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run. report: the folder of the run; rates, and nodes, the sizes of clusters: empty for each
    experiment's own; through: how streams enter, by pushes (also if empty) or `spark`; minutes: of the soak;
    edges: of the program."""

    data: Path | None = None
    users: int | None = None
    rates: tuple[float, ...] = ()
    queries: tuple[str, ...] = ()
    repeat: int = 5
    peers: tuple[str, ...] = ()
    report: Path | None = None
    experiments: tuple[str, ...] = ()
    is_quick: bool = False
    nodes: tuple[int, ...] = ()
    through: str = ""
    minutes: float | None = None
    edges: int | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """queries: all names; experiments: by name, in the order in which they run; each takes a session and the data."""

    queries: tuple[str, ...]
    experiments: Mapping[str, Callable[[Session, Any, Options], None]]
    read: Callable[[Options], tuple[dict[str, Any], dict[str, Any], Any]]
    """Return how the data is described, the case that figures have in common, and the data."""


def run(benchmark: str, options: Options) -> None:
    """Run a benchmark, or all of them, each into a folder of its own. Raises SettingsError (a name that is none),
    BenchError (no data, a folder of another run, queries that no experiment has; of all, once the others are done),
    KeyboardInterrupt: what was measured by then is in the folder."""
    names = BENCHMARKS if benchmark == "all" else (benchmark,)
    makers = _peers(options.peers)
    for name in names:
        _check(name, benchmark, options)
    for name in makers:
        if name in KNOWN and (lacking := KNOWN[name].lacks()):
            say(f"{name} will not be measured: {lacking}")
    cannot: list[BenchError] = []
    has_results = False
    for name in names:
        folder = options.report / name if options.report is not None and benchmark == "all" else options.report
        try:
            has_results |= _run_one(name, folder, options, makers)
        except BenchError as error:
            cannot.append(error)
    if cannot:
        raise cannot[0]
    if options.queries and not has_results:
        asked, experiments = ", ".join(options.queries), ", ".join(options.experiments) or "those that ran"
        raise BenchError(
            f"{benchmark}: nothing was measured: none of the experiments has these queries (experiments: "
            f"{experiments}; queries: {asked}): leave one of --experiment and --queries out"
        )


def _check(name: str, benchmark: str, options: Options) -> None:
    one = _BENCHMARKS[name]
    given = {
        "--data": options.data is not None,
        "--users": options.users is not None,
        "--rate": bool(options.rates),
        "--through": bool(options.through),
        "--nodes": bool(options.nodes),
        "--minutes": options.minutes is not None,
        "--edges": options.edges is not None,
        "--peers": bool(options.peers),
    }
    for option in (option for option, is_given in given.items() if is_given):
        owners = OWNERS.get(option, ("lsbench", "all"))
        if benchmark not in owners:
            named = " and ".join([*filter(None, [", ".join(owners[:-1])]), owners[-1]])
            raise SettingsError(f"{option} is of {named}, not of {benchmark}: leave it out")
        users = USED_BY.get(option, ())
        if users and not any(_runs(experiment, options) for experiment in users):
            used = " or ".join(users)
            raise SettingsError(f"{option} is of {used}, which is not run: name it with --experiment, or leave it out")
    known = {"experiment": one.experiments, "query": one.queries}
    if benchmark == "all":
        known = {
            "experiment": [key for other in _BENCHMARKS.values() for key in other.experiments],
            "query": [key for other in _BENCHMARKS.values() for key in other.queries],
        }
    for what, values in (("experiment", options.experiments), ("query", options.queries)):
        for value in values:
            if value not in known[what]:
                near = get_close_matches(value, known[what], 1)
                meant = f"did you mean {near[0]}? It is one of" if near else "expected some of"
                raise SettingsError(f"no {what} {value!r} of {benchmark}: {meant} {', '.join(known[what])}")


def _runs(experiment: str, options: Options) -> bool:
    """Tell whether an experiment is named, or runs without being named."""
    is_usual = experiment not in (*ON_REQUEST, *LONG)
    is_usual |= (experiment == "nodes" and bool(options.nodes)) or (experiment in LONG and options.is_quick)
    return experiment in options.experiments or (is_usual and not options.experiments)


def _peers(given: Sequence[str]) -> dict[str, Kind]:
    """Return the peers by name. A peer is named, or is NAME=COMMAND. Raises SettingsError."""
    found: dict[str, Kind] = {}
    for text in given:
        name, is_command, command = text.partition("=")
        if is_command and name.strip() and command.strip() and name not in (*KNOWN, WUKONGS):
            found[name.strip()] = Kind(partial(External, name.strip(), command))
        elif text in KNOWN:
            found[text] = KNOWN[text].kind(text)
        else:
            raise SettingsError(
                f"no peer {text!r}: expected some of {', '.join(KNOWN)}, or NAME=COMMAND, with another name, for an "
                "engine that runs as its own process"
            )
    return found


def _run_one(name: str, folder: Path | None, options: Options, makers: Mapping[str, Kind]) -> bool:
    """Run a benchmark; tell whether there is a result."""
    benchmark = _BENCHMARKS[name]
    data, case, feed = benchmark.read(options)
    settings = {"repeat": options.repeat, "is_quick": options.is_quick}
    record = Record.open(folder, name, data, settings)
    if record.lines:
        say(f"{name}: going on in {folder}, which has {len(record.lines)} results")
    session = Session(
        record,
        case,
        makers,
        options.queries,
        options.repeat,
        options.is_quick,
        Machine(0.0 if options.is_quick else IDLE_WAIT_S),
    )
    with _closing(record):
        for experiment, measure in benchmark.experiments.items():
            if _runs(experiment, options):
                measure(session, feed, options)
    return bool(record.lines)


@contextmanager
def _closing(record: Record) -> Iterator[None]:
    """Leave the folder of a run as it is to be, however the run ends, and print its tables."""
    is_complete = False
    try:
        yield
        is_complete = True
    except KeyboardInterrupt:
        if record.folder is not None:
            say(f"interrupted: {len(record.lines)} results are in {record.folder}; the same command goes on")
        raise
    finally:
        record.finish(is_complete)
        print(record.to_text(), flush=True)
        if record.folder is not None and record.lines:
            write_report(record.folder)
            say(f"{record.folder}: report.md, report.html")


# --- LSBench ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Network:
    """LSBench's data, and the constants of S1-S6 in it."""

    data: LsbenchData

    def texts(self) -> dict[str, str]:
        data = self.data
        constants: Mapping[str, str] = S_CONSTANTS
        if not data.is_sample:
            constants = {"user": data.user, "person": data.person, "other": data.person, "group": "g0"}
        return {name: with_constants(text, constants) for name, (_, text) in one_shot_bodies().items()}


def _read_network(options: Options) -> tuple[dict[str, Any], dict[str, Any], _Network]:
    if options.experiments and set(options.experiments) <= set(LONG):
        return {"source": "our generators", "users": options.users}, {}, _Network(generate_lsbench(QUICK_DATA))
    folder = (
        None if options.users is not None or (options.is_quick and options.data is None) else find_folder(options.data)
    )
    if folder is not None:
        say(f"lsbench: reading {folder}")
        try:
            data = read_lsbench(folder)
        except (OSError, ValueError) as error:
            raise BenchError(
                f"lsbench: {error}: give a folder of LSBench's generator with --data, or --users"
            ) from None
    else:
        users = options.users or 1000
        settings = QUICK_DATA if options.is_quick and options.users is None else network_settings(users)
        say(f"lsbench: making a network of {settings.users:,} users, {settings.duration_ms / 1000:g} s of streams")
        data = generate_lsbench(settings)
    users = data.stored.count(b"<http://www.ins.cwi.nl/sib/vocabulary/User>")
    described = {**data.describe(), "users": users, "tuples_per_s": round(feed_of(data).tuples_per_s())}
    return described, {"users": users}, _Network(data)


def _l_latency(session: Session, network: _Network, options: Options) -> None:
    for rate_ in options.rates or (1.0,):
        measure = through_spark.run_latency if options.through == "spark" else latency.run
        measure(session.with_case(rate=rate_), feed_of(network.data, rate_))


def _s_queries(session: Session, network: _Network, options: Options) -> None:
    one_shot.run(session, feed_of(network.data), network.texts())


def _s_queries_with_streams(session: Session, network: _Network, options: Options) -> None:
    one_shot.run_with_streams(session, feed_of(network.data), network.texts())


def _load(session: Session, network: _Network, options: Options) -> None:
    load.run(session, feed_of(network.data))


def _injection(session: Session, network: _Network, options: Options) -> None:
    injection.run(session, network.data)


def _throughput(session: Session, network: _Network, options: Options) -> None:
    throughput.run(session, feed_of(network.data))


def _nodes(session: Session, network: _Network, options: Options) -> None:
    counts = options.nodes or (nodes.QUICK_COUNTS if options.is_quick else nodes.COUNTS)
    nodes.run(session, network.data, network.texts(), counts)


def _scalarization(session: Session, network: _Network, options: Options) -> None:
    scalarization.run(session, network.data, feed_of(network.data))


def _fault_tolerance(session: Session, network: _Network, options: Options) -> None:
    fault_tolerance.run(session, feed_of(network.data))


def _composite(session: Session, network: _Network, options: Options) -> None:
    composite.run(session, network.data, feed_of(network.data))


def _rates(session: Session, network: _Network, options: Options) -> None:
    if not options.queries or any(session.wants(f"L{number}") for number in range(1, 7)):
        rates = options.rates or ((1.0,) if options.is_quick else rate.RATES)
        measure = through_spark.run_rates if options.through == "spark" else rate.run
        measure(session, lambda rate_: feed_of(network.data, rate_), rates)


def _scale(session: Session, network: _Network, options: Options) -> None:
    rates = options.rates or ((1.0,) if options.is_quick else rate.RATES)
    scale.run(session, options.users, network_settings, rates)


def _queries(session: Session, network: _Network, options: Options) -> None:
    queries.run(replace(session, case={}))


def _soak(session: Session, network: _Network, options: Options) -> None:
    soak.run(replace(session, case={}), options.minutes)


# --- CityBench --------------------------------------------------------------------------------------------------------


def _read_city(options: Options) -> tuple[dict[str, Any], dict[str, Any], Any]:
    last_ms = 12_000 if options.is_quick else city.LAST_MS
    folder = None if options.is_quick and options.data is None else city.find_folder(options.data)
    if folder is None:
        say(f"citybench: making a city with {last_ms // 1000} s of streams")
        source, made = "our generator", city.make_city(last_ms)
    else:
        say(f"citybench: reading {folder}")
        try:
            source, made = folder.name, city.read_city(folder, last_ms)
        except (OSError, ValueError) as error:
            raise BenchError(f"citybench: {error}: give a folder of CityBench's files with --data") from None
    stored = (made.sensors + made.culture).count(b"\n")
    described = {"source": source, "stored": stored, "streams": len(made.streams), "seconds": last_ms // 1000}
    return described, {}, (made, last_ms)


def _c_queries(session: Session, read: tuple[City, int], options: Options) -> None:
    latency.run(session, city.feed_of(read[0], city.C_QUERIES, read[1]), "citybench")


def _q_queries(session: Session, read: tuple[City, int], options: Options) -> None:
    over_culture = [name for name in city.Q_QUERIES if name not in city.OVER_LIBRARY]
    for names in (over_culture, city.OVER_LIBRARY):
        latency.run(session, city.feed_of(read[0], names, read[1]), "citybench-official")


# --- Interactive ------------------------------------------------------------------------------------------------------


def _read_graph(options: Options) -> tuple[dict[str, Any], dict[str, Any], Any]:
    from wukongs.bench.interactive.run import sizes

    described = sizes(options.is_quick)
    return described, {"edges": described["edges"]}, described


def _interactive(session: Session, described: Any, options: Options) -> None:
    from wukongs.bench.interactive.run import measure

    measure(session, described["nodes"], described["edges"])


def _install(session: Session, described: Any, options: Options) -> None:
    sharing.run_install(session, described["nodes"], described["edges"])


def _sharing(session: Session, described: Any, options: Options) -> None:
    sharing.run_sharing(replace(session, case={}))


def _fuel(session: Session, described: Any, options: Options) -> None:
    fuel.run(replace(session, case={}))


def _join(session: Session, described: Any, options: Options) -> None:
    join_proportionality.run(replace(session, case={}))


# --- Live views -------------------------------------------------------------------------------------------------------


def _read_views(options: Options) -> tuple[dict[str, Any], dict[str, Any], None]:
    described: dict[str, Any] = {"source": "our generators", "scale": tpch.size_of(options.is_quick).scale}
    described["program edges"] = program.edges_of(options.edges, options.is_quick)
    return described, {}, None


def _tpch(session: Session, _: None, options: Options) -> None:
    tpch.run(session, options.data)


def _program(session: Session, _: None, options: Options) -> None:
    program.run(session, program.edges_of(options.edges, options.is_quick))


def _without_options(measure: Callable[[Session], None]) -> Callable[[Session, None, Options], None]:
    return lambda session, _, options: measure(session)


_BENCHMARKS: Mapping[str, Benchmark] = {
    "lsbench": Benchmark(
        (
            *(f"L{number}" for number in range(1, 13)),
            *(f"S{number}" for number in range(1, 7)),
            *injection.QUERIES,
            *throughput.MIXES,
            *fault_tolerance.QUERIES,
            scalarization.BOUNDED,
            scalarization.NOT_BOUNDED,
            *queries.QUERIES,
            scale.GRAPH,
            soak.QUERY,
        ),
        {
            "latency": _l_latency,
            "one-shot": _s_queries,
            "one-shot-with-streams": _s_queries_with_streams,
            "rate": _rates,
            "load": _load,
            "injection": _injection,
            "throughput": _throughput,
            "nodes": _nodes,
            "scalarization": _scalarization,
            "fault-tolerance": _fault_tolerance,
            "composite": _composite,
            "queries": _queries,
            "scale": _scale,
            "soak": _soak,
        },
        _read_network,
    ),
    "citybench": Benchmark(
        (*city.C_QUERIES, *city.Q_QUERIES), {"citybench": _c_queries, "citybench-official": _q_queries}, _read_city
    ),
    "interactive": Benchmark(
        ("look-up", "one hop", "two hops", "path", *sharing.QUERIES, *fuel.QUERIES, join_proportionality.QUERY),
        {
            "interactive": _interactive,
            "install": _install,
            "sharing": _sharing,
            "fuel": _fuel,
            "join-proportionality": _join,
        },
        _read_graph,
    ),
    "views": Benchmark(
        (*anew.VIEWS, *dataflow.QUERIES, *many.QUERIES, *tpch.QUERIES, *recursion.QUERIES, *program.QUERIES),
        {
            "anew": _without_options(anew.run),
            "dataflow": _without_options(dataflow.run),
            "many": _without_options(many.run),
            "tpch": _tpch,
            "recursion": _without_options(recursion.run),
            "program": _program,
        },
        _read_views,
    ),
}

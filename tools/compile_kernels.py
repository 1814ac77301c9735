"""Compile the kernels, once, into the user's cache: part of `make setup`, so that demo and tests start at once.

Two processes begin with different kernels, and find in the cache what the other one has compiled.

    WUKONGS_KERNELS=compile python tools/compile_kernels.py             # not interpreted meanwhile
    python tools/compile_kernels.py --list      # compile nothing; print the kernels that the cache has nothing of
"""

import importlib
import io
import multiprocessing
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import wukongs
from wukongs import Engine, connect
from wukongs.adapters.demo import demo_config
from wukongs.adapters.lsbench_generator import NetworkSettings, generate_network
from wukongs.adapters.mapping.mapping import load_mapping
from wukongs.adapters.replay import replay
from wukongs.adapters.run_config import LsbenchSource, RecordSource, StreamConfig
from wukongs.cluster.node_config import MemberConfig, NodeConfig
from wukongs.cluster.serving import ServedEngine
from wukongs.query.rows import PIECE_ROWS, stable_order
from wukongs.settings import Settings
from wukongs.store.arrangement import Arrangement
from wukongs.store.jit import COMPILED, are_kernels_compiled
from wukongs.wire.link import IngestLink

EX = "http://example.org/"
PATIENT = Settings(query_timeout_s=0)
"""On a busy machine, what one firing needs may take minutes to compile."""
MAPPING = f"""
[time]
every_ms = 1000

[[triple]]
subject = "{EX}{{id}}"
predicate = "{EX}reading"
value = "{{a}}"
"""
ASKED = (
    "SELECT * WHERE { :1 :p+ ?x . ?x (:p|^:p)* :5 }",
    "SELECT * WHERE { ?x :p/:p? ?y MINUS { ?x :p :7 } FILTER EXISTS { ?y :name ?n } }",
    "SELECT * WHERE { ?x :name ?n FILTER(REGEX(?n, '[13]$') || STRLEN(?n) > 20) BIND(UCASE(?n) AS ?up) } ORDER BY ?n",
    "SELECT (SUM(?d) AS ?sum) (MAX(?d) AS ?m) ?k WHERE { ?x :size ?d BIND(FLOOR(?d) AS ?k) } GROUP BY ?k ORDER BY ?k",
    "SELECT DISTINCT ?o WHERE { { ?x :p ?o } UNION { GRAPH ?g { ?x :p ?o } } FILTER(?o IN (:1, :2)) } LIMIT 5",
    "SELECT (SUM(?c) AS ?sum) WHERE { ?x :cost ?c FILTER(?c > 10.5) }",
    "SELECT * WHERE { GRAPH ?g { :1 :p ?o } }",
    "SELECT * WHERE { VALUES (?x ?n) { (:1 UNDEF) (:2 UNDEF) } ?x :name ?n OPTIONAL { ?x :p ?y . ?y :p ?z } }",
)


def main() -> None:
    """Run every kind of step once over little data."""
    parts = [run_little_demo, read_other_sources, merge_and_delete]
    parts += [push_and_ask, ask_everything, serve_and_ask, keep_and_open_again]
    if not are_kernels_compiled():
        print("compiling the kernels, once (a minute or two) ...", file=sys.stderr, flush=True)
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.map(run, (parts[:1], parts[1:]), chunksize=1)
    run(parts)  # two processes that write a kernel's list at once may lose an entry
    COMPILED.touch()


def uncompiled() -> list[str]:
    """Return the names of the kernels that the cache has nothing of: they are compiled when they are first used."""
    found = []
    for module in pkgutil.walk_packages(wukongs.__path__, "wukongs."):
        if module.name.endswith("_kernels") and not module.name.startswith("wukongs.bench."):
            for name, kernel in vars(importlib.import_module(module.name)).items():
                is_own = getattr(getattr(kernel, "py_func", None), "__module__", "") == module.name
                if is_own and not Path(kernel._cache._cache_file._index_path).exists():
                    found.append(f"{module.name}.{name}")
    return sorted(found)


def run(parts: Sequence[Callable[[], None]]) -> None:
    for part in parts:
        part()


def run_little_demo() -> None:
    """Do what the demo does, but without Spark."""
    with tempfile.TemporaryDirectory(prefix="wukongs-compile-") as folder, Engine(settings=PATIENT) as engine:
        config = demo_config(generate_network(Path(folder), NetworkSettings(users=40, duration_ms=1000, friends=10)))
        for stored in config.stored:
            engine.load(stored.file)
        for stream in config.streams:
            engine.stream(stream.iri, timing=stream.timing, batch_ms=stream.batch_ms)
        for query in config.queries:
            engine.register(query.text)
        with IngestLink([engine.listen()], timeout_s=600) as link:
            assert replay(config.streams, link).finished
        engine.settle()
        for ask in config.asks:
            engine.query(ask.text).texts()


def read_other_sources() -> None:
    """Replay the kinds of files that the demo has not: LSBench's with prefixed names, CSV through a mapping."""
    with tempfile.TemporaryDirectory(prefix="wukongs-compile-") as name, Engine(settings=PATIENT) as engine:
        folder = Path(name)
        lsbench = LsbenchSource(path=str(folder / "s.nt"), times=str(folder / "s.ts"))
        Path(lsbench.path).write_text(f'@prefix ex: <{EX}> .\nex:a ex:p "two words" .\nex:b a ex:c .\n')
        Path(lsbench.times).write_text("100\n200\n")
        (folder / "r.csv").write_text('id,a\n1,2\n2,"3"\n')
        (folder / "map.toml").write_text(MAPPING)
        readings = RecordSource(kind="csv", paths=(str(folder / "r.csv"),), mapping=load_mapping(folder / "map.toml"))
        streams = [StreamConfig(iri=EX + "l", sources=(lsbench,)), StreamConfig(iri=EX + "c", sources=(readings,))]
        for stream in streams:
            engine.stream(stream.iri, batch_ms=100)
        with IngestLink([engine.listen()], timeout_s=600) as link:
            assert replay(streams, link).triples == 2 + 2
        engine.settle()


def push_and_ask() -> None:
    """Push single tuples, and run the steps that the demo has not."""
    with Engine(settings=PATIENT) as engine:
        stream = engine.stream(EX + "s", timing=[EX + "timing"], batch_ms=100)
        query = engine.register(
            f"REGISTER QUERY q AS SELECT * FROM STREAM <{EX}s> [RANGE 400ms STEP 100ms] FROM <urn:x-wukongs:default> "
            f"WHERE {{ ?a <{EX}p> ?b . OPTIONAL {{ ?b <{EX}q> ?c }} FILTER(?a != ?b) }} ORDER BY ?a"
        )
        for time_ms in range(100, 2000, 100):
            stream.push(
                [(f"<{EX}{time_ms}>", f"<{EX}{predicate}>", f'"{time_ms}"', time_ms) for predicate in ("p", "timing")]
            )
        stream.advance(2000)
        engine.settle()
        assert sum(1 for _ in query.results(timeout_s=0)) == 20
        forget_long_texts(engine)
        engine.query("SELECT DISTINCT ?g (COUNT(*) AS ?n) WHERE { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g").texts()


def forget_long_texts(engine: Engine) -> None:
    """Let the texts of old slices take so much room that the others are moved together; ask for times of tuples."""
    stream = engine.stream(EX + "long", timing=True, batch_ms=100, history_ms=0)
    query = engine.register(
        f"REGISTER QUERY times AS SELECT ?a (timestamp(?a) AS ?t) FROM STREAM <{EX}long> [RANGE 200ms STEP 100ms] "
        "WHERE { ?a ?p ?b }"
    )
    for time_ms in range(2100, 6000, 100):
        stream.push([(f"<{EX}{time_ms}>", f"<{EX}p>", f'"{time_ms} {"long " * 1000}"', time_ms)])
    stream.advance(6000)
    engine.settle()
    query.close()


def ask_everything() -> None:
    """Ask queries that take kernels of their own: paths, functions of strings, orders, updates, and each format of
    results."""
    lines = "".join(
        f'<{EX}{i}> <{EX}p> <{EX}{i + 1}> .\n<{EX}{i}> <{EX}name> "a name of its own, {i}" .\n'
        f'<{EX}{i}> <{EX}size> "{i / 7!r}"^^<http://www.w3.org/2001/XMLSchema#double> .\n'
        f'<{EX}{i}> <{EX}cost> "{i}.25"^^<http://www.w3.org/2001/XMLSchema#decimal> .\n'
        for i in range(100)
    )
    with Engine(settings=PATIENT) as engine:
        engine.load(io.BytesIO(lines.encode()), format="nt")
        engine.load(io.BytesIO(lines.encode()), format="nt", graph=EX + "g")
        for text in ASKED:
            engine.query(f"PREFIX : <{EX}> {text}").texts()
        result = engine.query("SELECT * WHERE { ?s ?p ?o }")
        for format in ("json", "xml", "csv", "tsv"):
            result.serialize(format)
        engine.query("CONSTRUCT WHERE { ?s ?p ?o }").serialize("nt")
        engine.query(f"DESCRIBE <{EX}3>").serialize("nt")
        engine.update(f"DELETE {{ ?s ?p ?o }} INSERT {{ ?o <{EX}q> ?s }} WHERE {{ ?s ?p ?o FILTER(isIRI(?o)) }}")
        engine.query(f"SELECT * WHERE {{ ?s <{EX}q> ?o }}").texts()
        engine.update("CLEAR ALL")
        stable_order([np.arange(PIECE_ROWS + 1)])


def serve_and_ask() -> None:
    """Ask a served engine, whose answers come as they were received, and cannot be written to."""
    lines = "".join(f'<{EX}{i}> <{EX}p> "a name of its own, {i}" .\n' for i in range(100))
    at = MemberConfig(clients="tcp://127.0.0.1:*")
    served = ServedEngine(NodeConfig(file="", number=0, nodes=(at,), listen_clients=at.clients, settings=PATIENT))
    try:
        with connect(served.address) as client:
            client.load(io.BytesIO(lines.encode()), format="nt")
            result = client.query("SELECT * WHERE { ?s ?p ?o }", timeout_s=0)
            result.texts()
            for format in ("json", "xml", "csv", "tsv"):
                result.serialize(format)
    finally:
        served.close()


def keep_and_open_again() -> None:
    """Keep stored triples in a folder, and read the folder again."""
    lines = "".join(f"<{EX}{i}> <{EX}p> <{EX}{i % 7}> .\n" for i in range(100))
    with tempfile.TemporaryDirectory(prefix="wukongs-compile-") as folder:
        with Engine(folder, settings=PATIENT) as engine:
            engine.load(io.BytesIO(lines.encode()), format="nt")
        with Engine(folder, settings=PATIENT) as engine:
            assert len(engine.query(f"SELECT * WHERE {{ ?s <{EX}p> <{EX}3> }}")) == 14


def merge_and_delete() -> None:
    """Merge batches of the stored graph, with tuples that were deleted."""
    arrangement = Arrangement("compiled")
    s, p, o, g = (np.arange(k, 4000 + k, 2) for k in (2, 4, 6, 8))
    arrangement.apply(1, (s, p, o, g), (s, p, o, g))
    arrangement.apply(2, (s[:500], p[:500], o[:500], g[:500]), (s[:0], p[:0], o[:0], g[:0]))
    arrangement.trace.merge_all()
    assert len(arrangement) == 1500


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(uncompiled()))
    else:
        main()

"""Compile the kernels, once, into the user's cache: part of `make setup`, so that demo and tests start at once."""

import sys

from adapters.demo import one_shot_queries
from store.jit import kernels_are_cached
from wukongs import Engine

EX = "http://example.org/"


def main() -> None:
    """Run every kind of step once over a handful of triples."""
    if not kernels_are_cached():
        print("compiling the kernels, once (a minute or two) ...", file=sys.stderr, flush=True)
    with Engine() as engine:
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
        for text in one_shot_queries(1).values():
            engine.query(text).texts()
        engine.query("SELECT DISTINCT ?g (COUNT(*) AS ?n) WHERE { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g").texts()


if __name__ == "__main__":
    main()

"""An engine that runs as its own process, as bench/peers/README.md says: pyoxigraph behind JSON lines. For tests.

The word behind its name is what is wrong with it: `right` nothing, `less` leaves out the first row, `dies` ends at the
first query, `refuses` answers queries with an error, `babbles` with no JSON, `counts` with a number for a term,
`sleeps` not at all; `cannot` says that it cannot say them; `deaf` reads nothing after the stored triples.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyoxigraph as ox

NT = ox.RdfFormat.N_TRIPLES


def main(way: str) -> None:
    store = ox.Store()
    for line in sys.stdin:
        message = json.loads(line)
        answer: dict[str, object] = {}
        if message["do"] == "hello":
            answer = {"name": "stub", "version": str(message["version"])}
        elif message["do"] == "load":
            store.bulk_load(Path(message["path"]).read_bytes(), format=NT)
            if way == "deaf":
                print("{}", flush=True)
                time.sleep(60)
        elif message["do"] == "window":
            for graph in list(store.named_graphs()):
                store.remove_graph(graph)
            for name, lines in message["graphs"].items():
                store.load(lines.encode(), format=NT, to_graph=ox.NamedNode(name))
        elif way == "dies":
            sys.exit("out of ideas")
        elif way == "refuses":
            answer = {"error": "not today"}
        elif way == "cannot":
            answer = {"cannot": "paths"}
        elif way == "counts":
            answer = {"rows": [["<http://e/a>", 1]]}
        elif way == "babbles":
            print("hm", flush=True)
            continue
        elif way == "sleeps":
            time.sleep(60)
        else:
            found = store.query(message["query"])
            assert isinstance(found, ox.QuerySolutions)
            rows = [[None if term is None else str(term) for term in row] for row in found]
            answer = {"rows": sorted(rows)[way == "less" :]}
        print(json.dumps(answer), flush=True)


main(sys.argv[1])

"""TPC-H as live views: the 22 queries in SPARQL (q01.rq to q22.rq) over rows as triples, and their twins in SQL."""

#!/usr/bin/env bash
# pyoxigraph 0.5.13, rdflib 7.6.0: COUNT of an expression that is an error in one of three rows is nothing, or 3, not 2.
#
# SPARQL 1.1, 18.5.1.2: Count counts how often an expression has a bound value that is no error. So a row whose
# expression is an error is left out. pyoxigraph lets the error through, as SUM does by 18.5.1.3, and the column is
# unbound for the whole group. rdflib counts the error as a value. A good guess is that both treat errors as they treat
# unbound values, since an unbound variable is an error as an expression. They do not: with BIND before COUNT, which
# leaves the variable unbound in that row, both count 2.
#
# For users: one malformed reading makes a count disappear in one library, and raises no doubt in the other;
# HAVING (COUNT(?v * 1.0) > 10) then drops the group, or keeps it, without a word. Bind the expression first:
# BIND(?v * 1.0 AS ?w) and COUNT(?w) is right in both.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$D" pyoxigraph==0.5.13 rdflib==7.6.0
PYTHONPATH="$D" python3 - <<'PY'
import pyoxigraph
import rdflib

DATA = '<http://e/a> <http://e/v> 1, 2, "broken" . <http://e/b> <http://e/v> 3 .'
READ = "?s <http://e/v> ?v"
DIRECT = f"SELECT ?s (COUNT(?v * 1) AS ?n) {{ {READ} }} GROUP BY ?s ORDER BY ?s"
BOUND = f"SELECT ?s (COUNT(?w) AS ?n) {{ {READ} BIND(?v * 1 AS ?w) }} GROUP BY ?s ORDER BY ?s"
store = pyoxigraph.Store()
store.update(f"INSERT DATA {{ {DATA} }}")
graph = rdflib.Graph().parse(data=DATA, format="turtle")


def of_pyoxigraph(text):
    return [None if row["n"] is None else int(row["n"].value) for row in store.query(text)]


def of_rdflib(text):
    return [None if row.n is None else int(row.n) for row in graph.query(text)]


print("COUNT(?v * 1):                 pyoxigraph", of_pyoxigraph(DIRECT), "rdflib", of_rdflib(DIRECT))
print("BIND(?v * 1 AS ?w), COUNT(?w): pyoxigraph", of_pyoxigraph(BOUND), "rdflib", of_rdflib(BOUND))
assert of_pyoxigraph(DIRECT) == [None, 1], "another behaviour than in pyoxigraph 0.5.13"
assert of_rdflib(DIRECT) == [3, 1], "another behaviour than in rdflib 7.6.0"
assert of_pyoxigraph(BOUND) == of_rdflib(BOUND) == [2, 1]
PY

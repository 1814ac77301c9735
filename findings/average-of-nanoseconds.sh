#!/usr/bin/env bash
# pyoxigraph 0.5.13: the AVG of six times in nanoseconds is unbound, though it would fit; that of five is there.
#
# The values are xsd:integer, about 1.76e18 each, as time.time_ns() and many streams of sensors give them. AVG(?v) is
# SUM(?v) divided by COUNT(?v) (SPARQL 1.1, 18.5.1.4), pyoxigraph adds integers in 64 bits with a sign, and six of them
# pass 2^63. The sum is an error then, so both SUM and AVG are unbound: the row comes, its cell is empty, nothing is
# raised. A good guess is that an average, which lies between MIN and MAX, is there whenever these are, or that the sum
# goes on as a decimal, as it does when one of the values is one: six decimals of this size are averaged. XML Schema's
# integers have no largest one, and rdflib answers.
#
# For users: the average of a column is right while its window is small, and gone when the window grows. Have one value
# be a decimal, AVG(?v + 0.0), or subtract what all have in common, AVG(?v - ?start).
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$D" pyoxigraph==0.5.13 rdflib==7.6.0
PYTHONPATH="$D" python3 - <<'PY'
import pyoxigraph
import rdflib

FIRST_NS = 1_764_500_000_000_000_000
INTEGER = "http://www.w3.org/2001/XMLSchema#integer"


def text(count, expression):
    values = " ".join(f'"{FIRST_NS + at}"^^<{INTEGER}>' for at in range(count))
    return f"SELECT (SUM({expression}) AS ?s) (AVG({expression}) AS ?a) (MAX(?v) AS ?m) {{ VALUES ?v {{ {values} }} }}"


def theirs(count, expression="?v"):
    (row,) = pyoxigraph.Store().query(text(count, expression))
    return [None if cell is None else cell.value for cell in row]


five, six, added = theirs(5), theirs(6), theirs(6, "?v + 0.0")
(other,) = rdflib.Graph().query(text(6, "?v"))
print("pyoxigraph", pyoxigraph.__version__, "SUM, AVG, MAX of five:", five)
print("of six:", six)
print("of six, + 0.0:", added)
print("rdflib", rdflib.__version__, "of six:", [str(cell) for cell in other])
assert five == [str(5 * FIRST_NS + 10), str(FIRST_NS + 2), str(FIRST_NS + 4)], five
assert six == [None, None, str(FIRST_NS + 5)], "another behaviour than in 0.5.13"
assert added == [str(6 * FIRST_NS + 15), f"{FIRST_NS + 2}.5", str(FIRST_NS + 5)], added
assert [str(cell) for cell in other] == [str(6 * FIRST_NS + 15), f"{FIRST_NS + 2}.5", str(FIRST_NS + 5)], other
PY

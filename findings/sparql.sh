#!/usr/bin/env bash
# pyoxigraph 0.5.13: `?t + "PT1H"^^xsd:dayTimeDuration` has a value, `NOW() + "PT1H"^^xsd:dayTimeDuration` has none.
#
# XPath adds a duration to a dateTime in both orders (op:add-dayTimeDuration-to-dateTime, Functions and Operators 9.7.6;
# operator mapping of XPath 3.1, B.2), and pyoxigraph has the sum of a variable and a duration. A constant dateTime, or
# NOW(), beside a duration gives no value, in either order. A good guess is that the sum is not supported at all, or
# that constants are worked out as variables are. Neither holds: the difference `NOW() - "PT1H"` is right, and so is
# the sum of xsd:dateTime("...") and a constant duration. So the shape of the query decides.
#
# For users: FILTER(?t < NOW() + "PT1H"^^xsd:dayTimeDuration) silently drops each row, since its condition is an error.
# Write FILTER(?t - "PT1H"^^xsd:dayTimeDuration < NOW()) or NOW() - "-PT1H"^^xsd:dayTimeDuration there.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$D" pyoxigraph==0.5.13
PYTHONPATH="$D" python3 - <<'PY'
import pyoxigraph

PREFIX = "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> PREFIX : <http://e/> "
T = '"2020-01-01T00:00:00Z"^^xsd:dateTime'
D = '"PT1H"^^xsd:dayTimeDuration'
store = pyoxigraph.Store()
store.update(f"{PREFIX}INSERT DATA {{ :a :t {T} ; :d {D} }}")


def value(expression):
    rows = store.query(f"{PREFIX}SELECT ({expression} AS ?x) {{ :a :t ?t ; :d ?d }}")
    found = next(iter(rows))[0]
    return None if found is None else found.value


seen = {expression: value(expression) for expression in (
    "?t + ?d", f"?t + {D}", f"{D} + ?t", f"xsd:dateTime('2020-01-01T00:00:00Z') + {D}",  # right
    f"{T} + {D}", f"{D} + {T}", f"{T} + ?d", f"NOW() + {D}",                              # no value
    f"{T} - {D}",                                                                           # right
)}
print("pyoxigraph", pyoxigraph.__version__)
for expression, found in seen.items():
    print(f"{expression:95} {found}")
later = "2020-01-01T01:00:00Z"
expected = [later] * 4 + [None] * 4 + ["2019-12-31T23:00:00Z"]
assert list(seen.values()) == expected, "another behaviour than in 0.5.13"
assert value(f"NOW() - {D}") is not None
PY

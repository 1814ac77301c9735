#!/usr/bin/env bash
# pyoxigraph 0.5.13 writes RDF/XML that is not well-formed, for a valid graph.
#
# Valid input: one triple whose predicate is http://example.org/1, and one whose text holds U+000B. Both are valid in
# N-Triples (RDF 1.1 N-Triples, 2). RDF/XML cannot hold them: a predicate is an XML name (RDF/XML 1.1, 6.1.4), and XML
# 1.0 has no U+000B (XML 1.0, 2.2). A good guess is an error, as the library gives for rdf:li and as rdflib gives.
# Behaviour: it writes `<oxprefix: xmlns:oxprefix="http://example.org/1">` and the raw character, without an error. It
# reads both back itself, so a round trip by the same library does not show it. Parsers of XML refuse the document.
# For users: a server that answers in RDF/XML by this writer gives documents that other clients cannot read.
set -euo pipefail
D=$(mktemp -d)
trap 'rm -rf "$D"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$D" pyoxigraph==0.5.13
PYTHONPATH="$D" python3 - <<'PY'
import pyoxigraph as ox
from xml.parsers import expat

print("pyoxigraph", ox.__version__)
for what, line in (
    ("predicate that ends in no XML name", '<http://example.org/a> <http://example.org/1> "x" .'),
    ("control character", '<http://example.org/a> <http://example.org/p> "\\u000B" .'),
):
    triples = [quad.triple for quad in ox.parse(line.encode(), ox.RdfFormat.N_TRIPLES)]
    written = ox.serialize(triples, format=ox.RdfFormat.RDF_XML)
    own = [quad.triple for quad in ox.parse(written, ox.RdfFormat.RDF_XML)]
    assert own == triples, "it reads back what it writes"
    try:
        expat.ParserCreate(namespace_separator=" ").Parse(written, True)
    except expat.ExpatError as error:
        print(f"{what}: not well-formed ({error}):", written.splitlines()[3])
    else:
        raise SystemExit(f"{what}: now it is well-formed: {written!r}")
PY

"""One-shot queries beside pyoxigraph and rdflib, in one run over the same triples."""

"""SPARQL Update: a request over one snapshot becomes one snapshot."""

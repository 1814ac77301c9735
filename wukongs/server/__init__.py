"""The engine over HTTP: SPARQL 1.1 Protocol, Graph Store Protocol, streams, registered queries and their windows."""

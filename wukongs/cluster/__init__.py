"""One node of a cluster: protocol, store and sockets brought together."""

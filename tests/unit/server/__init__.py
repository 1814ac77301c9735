"""The engine over HTTP: real servers on loopback."""

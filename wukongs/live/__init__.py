"""Time moves on: streams, windows, registered queries, updates, loads."""

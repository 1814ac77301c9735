"""The engine over HTTP under load: subscribers of windows, point queries and streams at the same time."""

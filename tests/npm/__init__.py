"""Clients from npm, run unchanged against a server (`make test-face`); they skip where npm cannot be reached."""

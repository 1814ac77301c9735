"""Bulk loads, into an engine or a data folder."""

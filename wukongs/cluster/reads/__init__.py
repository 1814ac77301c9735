"""Queries over a graph that is divided among nodes."""

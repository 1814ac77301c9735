"""Tuples taken, once each, sealed under their snapshot into slices and the stored graph; then firings begin."""

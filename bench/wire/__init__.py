"""The wire between nodes, measured."""

"""Interactive graph queries while the graph changes, as in section 6 of the paper on shared arrangements."""

"""The algebra, executed: from a parsed query to its answer, and what EXPLAIN says of it."""

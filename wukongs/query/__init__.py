"""A plan over a dataset at one snapshot becomes a result."""

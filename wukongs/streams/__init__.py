"""What one stream has: the rows it took, the tuples that wait, its slices."""

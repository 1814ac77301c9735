"""Property paths: automata searched on the arrangements."""

"""Results and the formats that they are written in."""

"""Figures of a cluster: its nodes as processes on loopback."""

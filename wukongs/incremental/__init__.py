"""Queries whose answers are kept up to date while the stored graph changes."""

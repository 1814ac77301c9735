"""Exploration plans: lowered to tables of numbers, kept with their queries, run by one kernel over a dataset."""

"""The start of a run through Spark, measured."""

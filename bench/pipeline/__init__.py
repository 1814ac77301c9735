"""The pipeline of `wukongs run`, through Spark and without it, and DataFrames on their way into a stream, measured."""

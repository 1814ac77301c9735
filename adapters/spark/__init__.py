"""The pipeline on Spark. Nothing here is imported before it is used: Spark takes seconds to start."""

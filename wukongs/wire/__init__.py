"""Messages between the pipeline and a node, over ZeroMQ."""

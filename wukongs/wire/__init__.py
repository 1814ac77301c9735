"""Traffic between nodes, clients and pipelines, over ZeroMQ: docs/wire.md."""

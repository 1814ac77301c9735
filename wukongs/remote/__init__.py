"""An engine in another process: its client, and the service that answers."""

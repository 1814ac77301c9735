"""An engine in another process: its client, and who answers it."""

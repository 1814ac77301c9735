"""What outlives the process: log, checkpoints, recovery, backups."""

"""Data that outlive the process: log, checkpoints, recovery, backups."""

"""Worker processes of one service: they try its jobs, and the service does everything else."""

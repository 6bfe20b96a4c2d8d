"""`switch`: move running jobs to another cluster, with a short standstill."""

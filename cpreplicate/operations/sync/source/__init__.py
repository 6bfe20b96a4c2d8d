"""The source of a sync: the checkpoint that is replicated, and what is missing there."""

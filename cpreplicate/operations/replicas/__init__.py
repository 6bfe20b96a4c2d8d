"""Replicas as they are: which there are, what each holds, and how far it is behind."""

"""Replicas are handed over to jobs, and taken back."""

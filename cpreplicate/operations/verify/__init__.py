"""Proofs that a replica can be restored."""

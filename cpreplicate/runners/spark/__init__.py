"""Spark executors."""

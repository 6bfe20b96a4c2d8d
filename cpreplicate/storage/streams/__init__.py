"""Streams of files that are read at positions."""

"""Storages around another one: retries and limits."""

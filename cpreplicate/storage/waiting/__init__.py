"""Calls that are not answered, threads that wait, and how both end."""

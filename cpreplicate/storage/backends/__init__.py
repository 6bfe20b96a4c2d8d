"""One module for each filesystem."""

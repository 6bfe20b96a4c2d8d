"""A module for each kind of result: a pure function that returns its page."""

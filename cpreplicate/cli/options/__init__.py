"""Options: kinds of values, and the options of the commands."""

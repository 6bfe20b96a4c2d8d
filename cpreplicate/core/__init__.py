"""Pure: no I/O, and nothing to install but numpy."""

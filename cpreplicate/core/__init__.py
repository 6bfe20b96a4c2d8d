"""The pure core: it does no I/O, and imports nothing to install but numpy."""

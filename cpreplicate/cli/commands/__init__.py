"""The commands: options in, one call, its result to `output`."""

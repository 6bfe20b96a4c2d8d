"""TOML files: options, places, and their schema."""

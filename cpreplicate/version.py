"""The version, which is written here only."""

__version__ = "0.3.0.dev0"

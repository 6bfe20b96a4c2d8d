"""Object stores, through their fsspec classes."""

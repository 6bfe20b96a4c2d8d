"""`diff` and `sync`, step by step: `sync.py` is the story, the others are its parts."""

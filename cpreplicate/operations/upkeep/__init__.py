"""Changes of a replica that is there: its orphans, paths, packs, and its promotion."""

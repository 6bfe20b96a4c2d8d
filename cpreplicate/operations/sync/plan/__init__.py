"""The plan of a sync, and what it is made of."""

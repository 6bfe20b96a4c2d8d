"""Changes of a replica, and what is checked before one: its place, space, and rights."""

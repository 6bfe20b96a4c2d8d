"""What a user can ask for, each a story read from top to bottom."""

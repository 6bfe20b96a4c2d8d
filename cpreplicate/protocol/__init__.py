"""What is in a replica and at a source, and who may change it."""

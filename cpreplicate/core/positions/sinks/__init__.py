"""What sinks keep in their states: committables, and part files outside of the checkpoint."""

"""The filesystems of this machine."""

"""A bus server that this process starts and stops."""

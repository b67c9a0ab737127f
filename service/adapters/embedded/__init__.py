"""A bus server that is started, and ended, by the process that wants it."""

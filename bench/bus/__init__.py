"""The cost of the bus: the whole runner against an echo without the service."""

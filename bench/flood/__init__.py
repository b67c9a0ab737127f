"""More requests at once than the workers can take."""

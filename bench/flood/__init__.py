"""More requests at once than workers can take."""

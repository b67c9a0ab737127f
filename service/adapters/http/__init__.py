"""HTTP, for whatever a worker serves over it."""

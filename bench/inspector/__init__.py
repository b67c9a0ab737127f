"""What a look at a worker's builds costs the worker."""

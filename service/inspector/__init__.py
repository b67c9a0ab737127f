"""What a worker answers and shows over HTTP: contexts, its builds, histories to be pruned."""

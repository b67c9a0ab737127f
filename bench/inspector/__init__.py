"""The cost of the inspector for the worker that serves it."""

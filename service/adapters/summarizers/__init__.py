"""Summarizers: extractive, or a model over HTTP."""

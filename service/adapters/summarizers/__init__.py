"""Summarizers: extractive, or a model behind an HTTP API."""

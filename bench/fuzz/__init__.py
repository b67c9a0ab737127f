"""Fuzz the decoding of requests."""

"""Traces, exported to a collector."""

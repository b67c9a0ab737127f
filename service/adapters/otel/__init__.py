"""Traces, sent to a collector."""

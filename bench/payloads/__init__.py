"""Payloads that nobody should send."""

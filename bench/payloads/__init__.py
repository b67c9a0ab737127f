"""Malformed and hostile payloads."""

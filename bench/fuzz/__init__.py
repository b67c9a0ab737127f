"""Bytes made to find ways through the decoding of requests."""

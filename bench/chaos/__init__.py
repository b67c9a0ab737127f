"""Faults, and whether what is promised holds through them."""

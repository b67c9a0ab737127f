"""Fault injection: check that the delivery guarantees hold."""

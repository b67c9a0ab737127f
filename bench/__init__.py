"""Benchmarks, each of which reports a ratio to a baseline in the same run."""

"""Run all benchmarks, and collect their results in one table."""

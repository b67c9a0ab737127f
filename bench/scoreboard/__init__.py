"""All benches, one after the other, in one table."""

"""Which parts of a context fit into how many tokens: pure arithmetic on counted entries."""

"""Convert the canonical messages to the request bodies of each provider."""

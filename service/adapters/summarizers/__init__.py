"""What makes summaries: the conversation's own sentences, or a model behind an HTTP API."""

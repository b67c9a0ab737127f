"""What the context still has of the messages that answer a question."""

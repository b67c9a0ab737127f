"""How many of the messages that answer a question remain in the context."""
